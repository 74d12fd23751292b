package org.apache.spark.shuffle.holdfast.push;

import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;

/**
 * What all push writers of a JVM share: the masters, the connections, the buffers, and the threads that push.
 *
 * <p>Rules: threads are daemons, made when needed and ended after {@link #THREAD_IDLE_SECONDS} without work; there are at
 * most ten per busy writer (one pushes, one asks the masters, {@link Connecting#AT_A_TIME_MAX} connect). Thread-safe. Made once by the plug-in's runtime.
 */
public final class PushContext implements AutoCloseable {
    static final int THREAD_IDLE_SECONDS = 10;

    private final Masters masters;
    private final ConnectionPool connections;
    private final Buffers buffers;
    private final int ack;
    private final int ackCopies;
    private final PushLimits limits;
    private final PushMetrics metrics = new PushMetrics();
    private final ThreadPoolExecutor threads;

    /**
     * @param ack acknowledgement level: 0 memory, 1 written, 2 synced
     * @param ackCopies on how many copies; 0: all
     */
    public PushContext(Masters masters, ConnectionPool connections, Buffers buffers, int ack, int ackCopies, PushLimits limits) {
        this.masters = masters;
        this.connections = connections;
        this.buffers = buffers;
        this.ack = ack;
        this.ackCopies = ackCopies;
        this.limits = limits;
        AtomicInteger made = new AtomicInteger();
        threads = new ThreadPoolExecutor(
                0, Integer.MAX_VALUE, THREAD_IDLE_SECONDS, TimeUnit.SECONDS, new SynchronousQueue<>(), work -> {
                    Thread thread = new Thread(work, "holdfast-push-" + made.incrementAndGet());
                    thread.setDaemon(true);
                    return thread;
                });
    }

    /** The masters. */
    public Masters masters() {
        return masters;
    }

    /** The connections to workers. */
    public ConnectionPool connections() {
        return connections;
    }

    /** Where frames take their memory from. */
    public Buffers buffers() {
        return buffers;
    }

    /** The acknowledgement level of everything that is pushed. */
    public int ack() {
        return ack;
    }

    /** How many copies hold a batch before it is acknowledged; 0: all. */
    public int ackCopies() {
        return ackCopies;
    }

    /** What each writer may hold. */
    public PushLimits limits() {
        return limits;
    }

    /** What the writers count. */
    public PushMetrics metrics() {
        return metrics;
    }

    /** Threads that are at work now; 0 when all writers are closed. */
    public int busyThreads() {
        return threads.getActiveCount();
    }

    /** Runs it on a thread of ours. */
    void run(Runnable work) {
        threads.execute(work);
    }

    /** Interrupts what is still pushing and lets the threads end. */
    @Override
    public void close() {
        threads.shutdownNow();
    }
}
