package org.apache.spark.shuffle.holdfast.data;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Connections to workers that are used again; one pool serves the whole JVM.
 *
 * <p>Rules: a borrowed connection belongs to one thread at a time until it is given back (nothing under way on it, its
 * {@link Books} closed, which is asserted where it is borrowed again) or discarded (anything else). With security one that showed a token which is half over is not used again where there is a newer one. At most {@link #IDLE_MAX} lie idle, {@link #IDLE_PER_WORKER_MAX} of one worker; idle ones
 * are closed after {@link #IDLE_MS} by the next caller, and by a timer thread that runs only while something is
 * idle. The borrowers bound how many are borrowed. Thread-safe. Called by the push writer and the fetch
 * reader.
 */
public final class ConnectionPool implements AutoCloseable {
    static final int IDLE_MS = 30_000;
    static final int IDLE_MAX = 64;
    static final int IDLE_PER_WORKER_MAX = 16;
    private static final int CONNECT_MS = 5_000;

    /** A restarted worker may be elsewhere, and another one where it was. */
    private record Endpoint(int worker, String address) {}

    private final Supplier<Hello> hello;
    private final CredentialsProvider credentials;
    private final Buffers buffers;
    private final int connectMs;
    private final Map<Endpoint, ArrayDeque<WorkerConnection>> idle = new HashMap<>();
    private int idleCount;
    private int borrowed;
    private ScheduledThreadPoolExecutor timer;
    private boolean closed;

    /** @param hello what to say on a new connection: the highest Raft index seen changes */
    public ConnectionPool(Supplier<Hello> hello, Buffers buffers) {
        this(hello, new CredentialsProvider(), buffers);
    }

    /** @param credentials how workers are known, and whose token {@code hello} says */
    public ConnectionPool(Supplier<Hello> hello, CredentialsProvider credentials, Buffers buffers) {
        this(hello, credentials, buffers, CONNECT_MS);
    }

    /** @param connectMs how long a new connection may take until the worker has answered */
    public ConnectionPool(Supplier<Hello> hello, CredentialsProvider credentials, Buffers buffers, int connectMs) {
        this.connectMs = connectMs;
        this.hello = hello;
        this.credentials = credentials;
        this.buffers = buffers;
    }

    /** Where connections take their buffers from. */
    public Buffers buffers() {
        return buffers;
    }

    /** Returns a connection, an idle one if there is any. Throws UNAVAILABLE if the worker cannot be reached. */
    public WorkerConnection borrow(int worker, String address) throws HoldfastException {
        return borrow(worker, address, connectMs);
    }

    /** The same, with how long a new one may take until the worker has answered. */
    public WorkerConnection borrow(int worker, String address, int timeoutMs) throws HoldfastException {
        WorkerConnection found = borrowIdle(worker, address);
        if (found != null) {
            return found;
        }
        WorkerConnection made = WorkerConnection.open(worker, address, hello.get(), credentials, timeoutMs, buffers);
        synchronized (this) {
            if (!closed) {
                borrowed++;
                return made;
            }
        }
        made.close();
        throw new HoldfastException(Status.UNAVAILABLE, "the connections to workers are closed");
    }

    /** Returns an idle connection, null without one. Throws UNAVAILABLE where the pool is closed. */
    public WorkerConnection borrowIdle(int worker, String address) throws HoldfastException {
        Endpoint endpoint = new Endpoint(worker, address);
        for (;;) {
            WorkerConnection found = pollIdle(endpoint);
            if (found == null || isGood(found)) {
                return found;
            }
        }
    }

    /** Whether one lies idle, which may be of no use any more. */
    public synchronized boolean hasIdle(int worker, String address) {
        return idle.containsKey(new Endpoint(worker, address));
    }

    /** Whether a borrowed connection that lay idle may be used; it is discarded if not, also if that is unknown. */
    public boolean isGood(WorkerConnection found) {
        boolean good = false;
        try {
            if (found.attachment() != null && !found.attachment().closed()) {
                throw new AssertionError(found + " was given back with open books: " + found.attachment());
            }
            good = found.isQuiet() && !credentials.outdated(found.token());
        } finally {
            if (!good) {
                discard(found);
            }
        }
        return good;
    }

    /** Takes back a connection on which nothing is under way; a closed one is discarded. */
    public void giveBack(WorkerConnection connection) {
        connection.idleSinceNs = System.nanoTime();
        synchronized (this) {
            borrowed--;
            if (!connection.isClosed() && !closed && idleCount < IDLE_MAX) {
                Endpoint endpoint = new Endpoint(connection.worker(), connection.address());
                ArrayDeque<WorkerConnection> line = idle.computeIfAbsent(endpoint, any -> new ArrayDeque<>());
                if (line.size() < IDLE_PER_WORKER_MAX) {
                    connection.releaseBody();
                    line.addLast(connection);
                    idleCount++;
                    startTimer();
                    connection = null;
                }
            }
        }
        if (connection != null) {
            connection.close();
        }
    }

    /** Closes a connection that failed, or that something is still under way on. */
    public void discard(WorkerConnection connection) {
        synchronized (this) {
            borrowed--;
        }
        connection.close();
    }

    /** Connections that are out. */
    public synchronized int borrowed() {
        return borrowed;
    }

    /** Connections that lie idle. */
    public synchronized int idle() {
        return idleCount;
    }

    /** Closes what is idle now, and everything that is given back later. */
    @Override
    public void close() {
        synchronized (this) {
            closed = true;
            if (timer != null) {
                timer.shutdownNow();
                timer = null;
            }
        }
        closeIdle(0);
    }

    /** The newest idle connection, since it is the likeliest to be alive. */
    private WorkerConnection pollIdle(Endpoint endpoint) throws HoldfastException {
        closeIdle(IDLE_MS);
        synchronized (this) {
            if (closed) {
                throw new HoldfastException(Status.UNAVAILABLE, "the connections to workers are closed");
            }
            ArrayDeque<WorkerConnection> line = idle.get(endpoint);
            WorkerConnection found = line == null ? null : line.pollLast();
            if (found != null) {
                idleCount--;
                borrowed++;
            }
            return found;
        }
    }

    private void closeIdle(long olderThanMs) {
        long bornBeforeNs = System.nanoTime() - olderThanMs * 1_000_000L;
        List<WorkerConnection> old = null;
        synchronized (this) {
            for (Iterator<ArrayDeque<WorkerConnection>> lines = idle.values().iterator(); lines.hasNext(); ) {
                ArrayDeque<WorkerConnection> line = lines.next();
                while (!line.isEmpty() && line.peekFirst().idleSinceNs - bornBeforeNs <= 0) {
                    old = old == null ? new ArrayList<>() : old;
                    old.add(line.pollFirst());
                    idleCount--;
                }
                if (line.isEmpty()) {
                    lines.remove();
                }
            }
        }
        if (old != null) {
            old.forEach(WorkerConnection::close);
        }
    }

    private void startTimer() {
        if (timer != null) {
            return;
        }
        timer = new ScheduledThreadPoolExecutor(1, work -> {
            Thread thread = new Thread(work, "holdfast-idle-connections");
            thread.setDaemon(true);
            return thread;
        });
        timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        timer.setContinueExistingPeriodicTasksAfterShutdownPolicy(false);
        timer.scheduleWithFixedDelay(this::onTimer, IDLE_MS, IDLE_MS, TimeUnit.MILLISECONDS);
    }

    private void onTimer() {
        closeIdle(IDLE_MS);
        synchronized (this) {
            if (idleCount == 0 && timer != null) {
                timer.shutdown(); // this thread ends
                timer = null;
            }
        }
    }
}
