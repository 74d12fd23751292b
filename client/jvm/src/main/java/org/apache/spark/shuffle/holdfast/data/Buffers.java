package org.apache.spark.shuffle.holdfast.data;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;

/**
 * Direct buffers that are used again, in a few size classes; one pool serves the whole JVM.
 *
 * <p>Rules: a buffer belongs to its borrower until it is given back, once. Idle ones are bounded; beyond
 * that, buffers are freed at once rather than when the collector gets to them. How much is out at a time is bounded by
 * the borrowers (frames under a limit, streams under credit), not here. {@link #taken()} counts what is out, so that a
 * test sees a leak. Thread-safe. Called by {@link WorkerConnection}, the push writer and the fetch reader.
 */
public final class Buffers {
    /** Larger buffers are made for the asker and freed when given back: single records, not the daily bread. */
    static final int CLASS_BYTES_MAX = 16 << 20;
    private static final int CLASS_BYTES_MIN = 4 << 10;
    /** 4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB, 4 MiB, 16 MiB. */
    private static final int CLASSES = 7;

    private final long keptBytesMax;
    private final ArrayDeque<ByteBuffer>[] idle;
    private long keptBytes;
    private long takenBytes;
    private int taken;

    /** @param keptBytesMax what may lie idle, all classes together */
    @SuppressWarnings({"unchecked", "rawtypes"})
    public Buffers(long keptBytesMax) {
        this.keptBytesMax = keptBytesMax;
        idle = new ArrayDeque[CLASSES];
        for (int each = 0; each < CLASSES; each++) {
            idle[each] = new ArrayDeque<>();
        }
    }

    /**
     * Returns an empty little-endian buffer of at least {@code bytes}: position 0, limit = capacity. Throws
     * {@link NoDirectMemoryException}.
     */
    public ByteBuffer take(int bytes) {
        int size = classOf(bytes);
        ByteBuffer found = null;
        int capacity = size < CLASSES ? CLASS_BYTES_MIN << (2 * size) : bytes;
        synchronized (this) {
            taken++;
            takenBytes += capacity;
            if (size < CLASSES) {
                found = idle[size].pollLast();
                if (found != null) {
                    keptBytes -= capacity;
                }
            }
        }
        if (found == null) {
            found = allocate(capacity);
        }
        return found.clear().order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Makes a buffer; what lies idle in other sizes makes room for it where it has to. */
    private ByteBuffer allocate(int capacity) {
        try {
            return ByteBuffer.allocateDirect(capacity);
        } catch (OutOfMemoryError full) {
            trim();
        }
        try {
            return ByteBuffer.allocateDirect(capacity);
        } catch (OutOfMemoryError full) {
            synchronized (this) {
                taken--;
                takenBytes -= capacity;
                throw new NoDirectMemoryException(capacity, taken, takenBytes, full.getMessage());
            }
        }
    }

    /** Gives back what {@link #take} returned: that very object, no slice of it. */
    public void release(ByteBuffer buffer) {
        int capacity = buffer.capacity();
        int size = classOf(capacity);
        boolean kept = false;
        synchronized (this) {
            taken--;
            takenBytes -= capacity;
            if (size < CLASSES && keptBytes + capacity <= keptBytesMax) {
                idle[size].addLast(buffer);
                keptBytes += capacity;
                kept = true;
            }
        }
        if (!kept) {
            Free.free(buffer);
        }
    }

    /** Buffers that are out. */
    public synchronized int taken() {
        return taken;
    }

    /** Bytes that are out. */
    public synchronized long takenBytes() {
        return takenBytes;
    }

    /** Bytes that lie idle. */
    public synchronized long keptBytes() {
        return keptBytes;
    }

    /** Frees everything that lies idle; buffers that are out may still be given back. */
    public void trim() {
        for (ArrayDeque<ByteBuffer> each : idle) {
            for (;;) {
                ByteBuffer buffer;
                synchronized (this) {
                    buffer = each.pollLast();
                    if (buffer == null) {
                        break;
                    }
                    keptBytes -= buffer.capacity();
                }
                Free.free(buffer);
            }
        }
    }

    private static int classOf(int bytes) {
        int size = 0;
        while (size < CLASSES && CLASS_BYTES_MIN << (2 * size) < bytes) {
            size++;
        }
        return size;
    }

    /** Frees direct memory without waiting for the collector, where the JVM lets us. */
    private static final class Free {
        private static final MethodHandle CLEAN = find();

        private static MethodHandle find() {
            try {
                Class<?> unsafe = Class.forName("sun.misc.Unsafe");
                Field field = unsafe.getDeclaredField("theUnsafe");
                field.setAccessible(true);
                MethodType type = MethodType.methodType(void.class, ByteBuffer.class);
                return MethodHandles.lookup().findVirtual(unsafe, "invokeCleaner", type).bindTo(field.get(null));
            } catch (ReflectiveOperationException | RuntimeException missing) {
                return null; // the collector frees it then
            }
        }

        static void free(ByteBuffer buffer) {
            if (CLEAN == null) {
                return;
            }
            try {
                CLEAN.invoke(buffer);
            } catch (Error error) {
                throw error;
            } catch (Throwable impossible) {
                throw new IllegalStateException("a buffer given back is not one that was taken", impossible);
            }
        }
    }
}
