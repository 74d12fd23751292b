package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.wire.Codec;

/**
 * How the payloads of a writer are compressed.
 *
 * @param level of zstd; the other codecs have none
 */
public record Compression(Codec codec, int level) {
    /** Payloads go as they are. */
    public static final Compression NONE = of(Codec.NONE);

    /** This codec at its usual level. */
    public static Compression of(Codec codec) {
        return new Compression(codec, Codec.USUAL_LEVEL);
    }

    boolean on() {
        return codec != Codec.NONE;
    }

    /** See {@link Codec#compress}. */
    int compress(byte[] src, int off, int len, ByteBuffer dst) {
        return codec.compress(src, off, len, dst, level);
    }
}
