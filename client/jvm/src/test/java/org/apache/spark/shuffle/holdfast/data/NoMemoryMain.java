package org.apache.spark.shuffle.holdfast.data;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.executor.Executor$;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * What is thrown where the JVM has no direct memory left: nothing for which Spark ends an executor, however far down among the causes. To be run with a
 * few MiB of direct memory. Run by tests/jvm/test_buffers.py.
 */
public final class NoMemoryMain {
    private static final int DEADLINE_MS = 3_000;
    /** How far Spark looks unless it is told otherwise (spark.executor.killOnFatalError.depth). */
    private static final int DEPTH = 5;

    private NoMemoryMain() {}

    /** An error ends it. */
    public static void main(String[] arguments) throws Exception {
        List<ByteBuffer> taken = new ArrayList<>();
        try (ServerSocket silent = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
                Masters masters = new Masters("127.0.0.1:" + silent.getLocalPort(), DEADLINE_MS)) {
            for (int size = 1 << 20; size > 0; size /= 2) {
                fill(taken, size);
            }
            try {
                new Buffers(1 << 20).take(4096);
                throw new AssertionError("there is memory");
            } catch (NoDirectMemoryException full) {
                harmless(full);
            }
            try {
                masters.workers();
                throw new AssertionError("nobody answers");
            } catch (HoldfastException error) {
                harmless(error);
            }
        }
        System.out.println("ok after " + taken.size() + " buffers");
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

    private static void harmless(Throwable thrown) {
        if (Executor$.MODULE$.isFatalError(thrown, DEPTH)) {
            throw new AssertionError("Spark ends the executor for it", thrown);
        }
    }
}
