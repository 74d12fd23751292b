package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;

/**
 * A payload that counts: verified, of a winner, for the first time. A record of several batches comes as one.
 *
 * <p>Rules: the reader has one of these and fills it anew; everything is valid until its next {@code next()}. The
 * payload lies between position and limit, little endian, still compressed ({@link #codec()}), and is never empty.
 */
public final class FetchedBatch {
    int partition;
    int map;
    long attempt;
    int flags;
    int codec;
    ByteBuffer payload;

    FetchedBatch() {}

    /** The partition it belongs to. */
    public int partition() {
        return partition;
    }

    /** Index of the map that wrote it. */
    public int map() {
        return map;
    }

    /** The attempt of that map that won. */
    public long attempt() {
        return attempt;
    }

    /** Flags of the batch (of a joined record: of its last one). */
    public int flags() {
        return flags;
    }

    /** Number of the codec, see {@code Codec.of}. */
    public int codec() {
        return codec;
    }

    /** The payload, without totals. */
    public ByteBuffer payload() {
        return payload;
    }
}
