package org.apache.spark.shuffle.holdfast.wire;

/** Bounds that both sides of the wire agree on. Made from common/wire.toml by python -m tests.write_tables; change it there. */
public final class Limits {
    public static final int KIB = 1024;
    public static final int MIB = 1024 * KIB;

    /** A frame's meta section: the longest is a stream of 40,000 files at 16 bytes. */
    public static final int FRAME_META_BYTES_MAX = 1 * MIB;
    /** A frame's body. Merged frames are 256 KiB to 4 MiB; a lone large batch may fill the rest. */
    public static final int FRAME_BODY_BYTES_MAX = 16 * MIB;
    /** What a worker sends per data frame when it serves a read. */
    public static final int READ_FRAME_BYTES = 1 * MIB;
    /** One batch, header included. A larger record is sent as several batches flagged MORE. */
    public static final int BATCH_BYTES_MAX = FRAME_BODY_BYTES_MAX;
    /** Files in one STREAM_OPEN; a reader opens more streams beyond. */
    public static final int STREAM_FILES_MAX = 32_768;
    /** Batches in one push: entries of 18 bytes in a frame's meta. */
    public static final int PUSH_BATCHES_MAX = 32_768;
    /** Epochs in one PUSH_SETTLE: entries of 8 bytes asked, up to four of 12 answered; a client sends more beyond. */
    public static final int SETTLE_EPOCHS_MAX = 16_384;
    /** Failed epochs in one Revive; a client that has more asks again. */
    public static final int REVIVE_EPOCHS_MAX = 65_536;
    /** A partition file's unit of fetch; a chunk holds whole batches, so it is longer by at most one. */
    public static final int CHUNK_BYTES = 8 * MIB;
    /** Read credit a client may have outstanding on one stream. */
    public static final int STREAM_CREDIT_BYTES_MAX = 64 * MIB;
    /** Reduce partitions of one shuffle. */
    public static final int PARTITIONS_MAX = 1_000_000;
    /** Maps of one shuffle. */
    public static final int MAPS_MAX = 1_000_000;
    /** Copies of a partition or map file. */
    public static final int COPIES_MAX = 5;
    /** Tags of a worker, and those that a shuffle is confined to. */
    public static final int TAGS_MAX = 16;
    /** Epochs of one generation, all partitions together: moves are stopped before they reach it. */
    public static final int EPOCHS_MAX = 4_000_000;
    /** One control message (gRPC or HTTP body). */
    public static final int CONTROL_MESSAGE_BYTES_MAX = 64 * MIB;
    /** Names given by users: applications, hosts, racks, worker names, paths. */
    public static final int NAME_BYTES_MAX = 255;
    /** A long poll is answered after this at the latest; clients ask again. */
    public static final int LONG_POLL_MS_MAX = 30_000;
    /** Token in the first frame of a connection. */
    public static final int TOKEN_BYTES_MAX = 4 * KIB;
    /** The original of a compressed payload. */
    public static final int ORIGINAL_BYTES_MAX = 64 * MIB;
    /** An array of a control message, inflated. */
    public static final int INFLATED_BYTES_MAX = 256 * MIB;
    /** The worker in place of a copy that is not there: 2^32 - 1 in an int. */
    public static final int NO_WORKER = 0xFFFF_FFFF;
    /** The attempt of a map that has no winner: 2^64 - 1 in a long. */
    public static final long NO_ATTEMPT = 0xFFFF_FFFF_FFFF_FFFFL;
    /** End of a range of maps that has no end: 2^32 - 1 in an int. */
    public static final int ALL_MAPS = 0xFFFF_FFFF;

    private Limits() {}
}
