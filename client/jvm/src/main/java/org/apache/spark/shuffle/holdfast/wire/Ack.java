package org.apache.spark.shuffle.holdfast.wire;

/** How safe a batch is before it is acknowledged (docs/operate/failure_model.md). */
public final class Ack {
    /** In the worker's memory: lost with the process. */
    public static final int MEMORY = 0;
    /** In the kernel: survives kill -9 of the worker. */
    public static final int WRITTEN = 1;
    /** On the disk: survives power loss. */
    public static final int SYNCED = 2;

    private Ack() {}

    /** The level of "memory", "written" or "synced"; IllegalArgumentException for other words. */
    public static int of(String word) {
        return switch (word) {
            case "memory" -> MEMORY;
            case "written" -> WRITTEN;
            case "synced" -> SYNCED;
            default -> throw new IllegalArgumentException("an acknowledgement level is memory, written or synced, not " + word);
        };
    }

    static boolean known(int ack) {
        return ack >= MEMORY && ack <= SYNCED;
    }
}
