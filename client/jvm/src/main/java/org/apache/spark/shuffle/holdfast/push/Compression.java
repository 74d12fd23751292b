package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.RowPlanes;

/**
 * How the payloads of a writer are compressed.
 *
 * @param level of zstd; the other codecs have none
 * @param words of the fixed part of a row, where payloads are rows of SQL and turned into planes; otherwise 0
 */
public record Compression(Codec codec, int level, int words) {
    /** Payloads go as they are. */
    public static final Compression NONE = of(Codec.NONE, Codec.USUAL_LEVEL);
    /** So do these, which only the engine reads. */
    public static final Compression ENGINE = of(Codec.ENGINE, Codec.USUAL_LEVEL);

    /** Of any payloads. */
    public static Compression of(Codec codec, int level) {
        return new Compression(codec, level, 0);
    }

    /** The same for payloads that are rows of so many fields. */
    public Compression ofRows(int fields) {
        return new Compression(codec.ofRows(), level, RowPlanes.words(fields));
    }

    boolean on() {
        return codec != plain();
    }

    /** The codec of payloads that go as they are. */
    Codec plain() {
        return codec == Codec.ENGINE ? Codec.ENGINE : Codec.NONE;
    }

    boolean ofRows() {
        return codec.asTheyAre() != codec;
    }

    /**
     * Puts a payload at the position of {@code dst}, see {@link Codec#compress}, and returns the codec that was used.
     *
     * @param turn whether rows are turned into planes
     */
    Codec compress(byte[] src, int off, int len, ByteBuffer dst, boolean turn) {
        if (turn && ofRows() && codec.compressRows(src, off, len, words, dst, level)) {
            return codec;
        }
        codec.asTheyAre().compress(src, off, len, dst, level);
        return codec.asTheyAre();
    }
}
