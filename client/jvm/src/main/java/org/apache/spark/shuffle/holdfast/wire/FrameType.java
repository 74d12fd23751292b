package org.apache.spark.shuffle.holdfast.wire;

/** What a frame is; numbers are fixed for ever ({@code common/formats/frame.py}). Those of MAP files are known but not spoken here. */
public final class FrameType {
    /** First frame of every connection, both ways. */
    public static final int HELLO = 1;
    public static final int PING = 2;
    /** The sender says why it closes the connection; request id 0. */
    public static final int CLOSING = 3;
    public static final int MAP_OPEN = 16;
    public static final int MAP_PUSH = 17;
    public static final int MAP_SEAL = 18;
    public static final int MAP_ABORT = 19;
    public static final int STREAM_OPEN = 32;
    public static final int STREAM_CREDIT = 33;
    public static final int STREAM_DATA = 34;
    public static final int STREAM_CLOSE = 35;
    public static final int PUSH = 48;
    public static final int REPLICATE = 49;
    public static final int PUSH_CREDIT = 50;
    public static final int SEAL = 51;
    /** Credit and closing are STREAM_CREDIT and STREAM_CLOSE. */
    public static final int CHUNKS_OPEN = 52;
    /** Worker to client; request id is the one of CHUNKS_OPEN. */
    public static final int CHUNKS_DATA = 53;
    /** From the leading master to a worker. */
    public static final int REGISTERED = 54;
    public static final int RESTORE = 55;
    public static final int PUSH_SETTLE = 56;

    private FrameType() {}

    /** The name of a type, for messages; "" of a number that is none. */
    public static String name(int type) {
        return switch (type) {
            case HELLO -> "HELLO";
            case PING -> "PING";
            case CLOSING -> "CLOSING";
            case MAP_OPEN -> "MAP_OPEN";
            case MAP_PUSH -> "MAP_PUSH";
            case MAP_SEAL -> "MAP_SEAL";
            case MAP_ABORT -> "MAP_ABORT";
            case STREAM_OPEN -> "STREAM_OPEN";
            case STREAM_CREDIT -> "STREAM_CREDIT";
            case STREAM_DATA -> "STREAM_DATA";
            case STREAM_CLOSE -> "STREAM_CLOSE";
            case PUSH -> "PUSH";
            case REPLICATE -> "REPLICATE";
            case PUSH_CREDIT -> "PUSH_CREDIT";
            case SEAL -> "SEAL";
            case CHUNKS_OPEN -> "CHUNKS_OPEN";
            case CHUNKS_DATA -> "CHUNKS_DATA";
            case REGISTERED -> "REGISTERED";
            case RESTORE -> "RESTORE";
            case PUSH_SETTLE -> "PUSH_SETTLE";
            default -> "";
        };
    }
}
