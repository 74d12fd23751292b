package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** One batch of a push: its destination and length, header included. {@code number} repeats its header's. */
public record PushEntry(int partition, int epoch, int number, int sizeBytes, int hint) {
    public static final int BYTES = 18;
    /** Hint of an entry whose directory the worker chooses. */
    public static final int NO_HINT = 0;

    /** Put an entry without making one. */
    public static void put(ByteBuffer to, int partition, int epoch, int number, int sizeBytes, int hint) {
        to.putInt(partition).putInt(epoch).putInt(number).putInt(sizeBytes).putShort((short) hint);
    }
}
