package org.apache.spark.shuffle.holdfast.wire;

/**
 * Arrays that tasks of one JVM hand on to each other: the buffers of partitions, rows as planes, and what batches are inflated into.
 *
 * <p>Rules: sizes are powers of two from 1 KiB to 1 MiB, larger ones are left to the collector; what is kept is bounded, by 64 MiB and by
 * a sixteenth of the heap, since Spark's memory manager does not count it. Contents are not cleared. Safe for all threads.
 */
public final class ByteArrays {
    /** The one of this JVM. */
    public static final ByteArrays SHARED = new ByteArrays(Math.min(64L << 20, Runtime.getRuntime().maxMemory() / 16));

    private static final int LOG_LEAST = 10;
    private static final int LOG_MOST = 20;
    private static final int SLOTS_FIRST = 64;

    private final byte[][][] kept = new byte[LOG_MOST - LOG_LEAST + 1][SLOTS_FIRST][];
    private final int[] counts = new int[LOG_MOST - LOG_LEAST + 1];
    private final long bytesMax;
    private long bytes;

    public ByteArrays(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    /** An array of at least {@code length} bytes, of the next power of two where one is kept. */
    public byte[] take(int length) {
        int log = log(length);
        if (log > LOG_MOST) {
            return new byte[length];
        }
        int index = log - LOG_LEAST;
        synchronized (this) {
            int count = counts[index];
            if (count > 0) {
                byte[] array = kept[index][count - 1];
                kept[index][count - 1] = null;
                counts[index] = count - 1;
                bytes -= array.length;
                return array;
            }
        }
        return new byte[1 << log];
    }

    /** Takes an array back; the caller must not touch it any more. */
    public void give(byte[] array) {
        int log = log(array.length);
        if (log > LOG_MOST || array.length != 1 << log) {
            return;
        }
        int index = log - LOG_LEAST;
        synchronized (this) {
            if (bytes + array.length > bytesMax) {
                return;
            }
            byte[][] slots = kept[index];
            if (counts[index] == slots.length) {
                slots = java.util.Arrays.copyOf(slots, slots.length * 2);
                kept[index] = slots;
            }
            slots[counts[index]++] = array;
            bytes += array.length;
        }
    }

    /** Bytes kept for later, for tests and the log. */
    public synchronized long bytesKept() {
        return bytes;
    }

    /** The power of two, as its exponent, that holds {@code length}. */
    private static int log(int length) {
        return length <= 1 << LOG_LEAST ? LOG_LEAST : 32 - Integer.numberOfLeadingZeros(length - 1);
    }
}
