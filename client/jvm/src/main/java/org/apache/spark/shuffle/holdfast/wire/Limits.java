package org.apache.spark.shuffle.holdfast.wire;

/** Bounds that both sides of the wire agree on; the numbers of {@code common/limits.py}. What users may set is in the configuration. */
public final class Limits {
    public static final int KIB = 1024;
    public static final int MIB = 1024 * KIB;

    public static final int FRAME_META_BYTES_MAX = MIB;
    public static final int FRAME_BODY_BYTES_MAX = 16 * MIB;
    /** What a worker sends per data frame when it serves a read. */
    public static final int READ_FRAME_BYTES = MIB;
    /** One batch, header included. A larger record goes as several batches flagged MORE. */
    public static final int BATCH_BYTES_MAX = FRAME_BODY_BYTES_MAX;
    /** Batches in one push: entries of 18 bytes in a frame's meta section. */
    public static final int PUSH_BATCHES_MAX = 32_768;
    /** Files in one CHUNKS_OPEN; a reader opens more streams beyond. */
    public static final int STREAM_FILES_MAX = 32_768;
    /** Failed epochs in one Revive. */
    public static final int REVIVE_EPOCHS_MAX = 65_536;
    /** A partition file's unit of fetch; a chunk holds whole batches, so it is longer by at most one. */
    public static final int CHUNK_BYTES = 8 * MIB;
    /** Credit that a reader may have outstanding on one stream. */
    public static final int STREAM_CREDIT_BYTES_MAX = 64 * MIB;
    /** The original of a compressed payload. */
    public static final int ORIGINAL_BYTES_MAX = 64 * MIB;

    public static final int PARTITIONS_MAX = 1_000_000;
    public static final int MAPS_MAX = 1_000_000;
    public static final int COPIES_MAX = 2;
    /** Epochs of one generation, all partitions together. */
    public static final int EPOCHS_MAX = 4_000_000;
    /** An array of a control message, inflated. */
    public static final int INFLATED_BYTES_MAX = 256 * MIB;
    /** One control message. */
    public static final int CONTROL_MESSAGE_BYTES_MAX = 64 * MIB;
    /** Names given by users. */
    public static final int NAME_BYTES_MAX = 255;
    public static final int LONG_POLL_MS_MAX = 30_000;
    public static final int TOKEN_BYTES_MAX = 4 * KIB;

    /** The "worker" where a second copy would stand and none is: 2^32 - 1 in an int. */
    public static final int NO_WORKER = 0xFFFF_FFFF;
    /** The attempt of a map that has no winner: 2^64 - 1 in a long. */
    public static final long NO_ATTEMPT = 0xFFFF_FFFF_FFFF_FFFFL;
    /** End of a range of maps that has no end: 2^32 - 1 in an int. */
    public static final int ALL_MAPS = 0xFFFF_FFFF;

    private Limits() {}
}
