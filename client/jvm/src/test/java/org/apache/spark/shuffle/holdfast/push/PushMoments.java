package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.Waiter;

/** Attempts that something happens to at one certain moment: real writers and workers, held by a lock they need or by memory. Used by {@link PushMain}. */
final class PushMoments {
    private static final int SECONDS_MAX = 60;
    private static final int RECORD_BYTES = 300_000;
    /** Enough for several frames of the usual size. */
    private static final int RECORDS = 16;

    private final PushContext context;
    private final RegisteredShuffle registered;
    private final PartitionLocations locations;

    PushMoments(PushContext context, RegisteredShuffle registered, PartitionLocations locations) {
        this.context = context;
        this.registered = registered;
        this.locations = locations;
    }

    /**
     * Aborts an attempt whose pusher has just taken an answer, and has not sent yet what that answer gave room for: it is held where it gives
     * the memory of the answered frame back.
     */
    void abortBetweenAnswerAndPush(long attempt) throws Exception {
        Buffers buffers = context.buffers();
        PushWriter writer = new PushWriter(context, registered, locations, 0, attempt, Compression.NONE, null);
        synchronized (buffers) {
            for (int each = 0; each < RECORDS; each++) {
                writer.write(0, new byte[RECORD_BYTES], 0, RECORD_BYTES);
            }
            await("an answer is taken", stacks -> stacks.entrySet().stream().anyMatch(
                    each -> each.getKey().getState() == Thread.State.BLOCKED && isIn(each.getValue(), PushSession.class, "answered")));
            writer.abort();
        }
        await("the attempt is left", any -> context.busyThreads() == 0);
    }

    /** Pushes while nobody has direct memory for a connection; there is some again once the pusher is seen to wait. */
    void connectWithoutMemory(long attempt) throws Exception {
        Thread task = Thread.currentThread();
        PushWriter writer = new PushWriter(context, registered, locations, 0, attempt, Compression.NONE, null);
        writer.write(0, new byte[100], 0, 100);
        List<ByteBuffer> taken = new ArrayList<>();
        for (int size = 1 << 20; size > 0; size /= 2) {
            fill(taken, size);
        }
        Thread feeder = new Thread(() -> {
            try {
                await("the pusher waits", stacks -> isIn(stacks.get(task), Waiter.class, "await"));
            } finally {
                taken.clear();
            }
        });
        feeder.start();
        try {
            writer.close();
        } finally {
            feeder.interrupt();
            feeder.join();
            writer.abort();
        }
    }

    private static void fill(List<ByteBuffer> taken, int size) {
        for (;;) {
            try {
                taken.add(ByteBuffer.allocateDirect(size));
            } catch (OutOfMemoryError full) {
                return;
            }
        }
    }

    private static boolean isIn(StackTraceElement[] stack, Class<?> where, String method) {
        return stack != null && Arrays.stream(stack).anyMatch(
                each -> each.getClassName().equals(where.getName()) && each.getMethodName().equals(method));
    }

    private static void await(String what, Predicate<Map<Thread, StackTraceElement[]>> holds) {
        long deadlineNs = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (!holds.test(Thread.getAllStackTraces())) {
            if (System.nanoTime() - deadlineNs > 0) {
                throw new AssertionError("not within " + SECONDS_MAX + " s: " + what);
            }
            if (Thread.interrupted()) {
                return; // it is not wanted any more
            }
            Thread.onSpinWait();
        }
    }
}
