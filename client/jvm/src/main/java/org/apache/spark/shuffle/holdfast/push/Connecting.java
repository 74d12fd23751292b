package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Opens the connections of one attempt, several at a time, so that a worker that does not answer holds up no other.
 *
 * <p>Rules: at most {@link #AT_A_TIME_MAX} are being opened, each on a thread of the context, and one to a worker. Up to {@link #AHEAD_MAX} are
 * opened before they are needed; of these a failure is forgotten, since it may have passed when the worker is needed. What the pusher wants and
 * gets is its own; all others go back to the pool. Thread-safe. Called by {@link Pusher}.
 */
final class Connecting {
    /** More workers that do not answer than this hold up the others for as long as a connection may take. */
    static final int AT_A_TIME_MAX = 8;
    /** Connections that are opened before anything is pushed to them. */
    static final int AHEAD_MAX = 64;
    /** For how long the masters are asked where a worker is: it may be elsewhere the next time. */
    private static final int ASK_MS = 5_000;

    /** What came of one: a connection, or why there is none. */
    record Opened(WorkerConnection connection, HoldfastException unreachable, NoDirectMemoryException full) {
        static Opened not(HoldfastException reason) {
            return new Opened(null, reason, null);
        }
    }

    private final PushContext context;
    private final PartitionLocations locations;
    private final String where;
    private final Runnable onReady;
    private final ArrayDeque<Integer> waiting = new ArrayDeque<>();
    /** Workers in {@code waiting}, and those that are being connected to. */
    private final Set<Integer> coming = new HashSet<>();
    /** Workers that the pusher waits for. */
    private final Set<Integer> wanted = new HashSet<>();
    private final Map<Integer, Opened> ready = new HashMap<>();
    private int threads;
    private boolean closed;

    /** @param onReady called, on any thread, when something that is wanted has come */
    Connecting(PushContext context, PartitionLocations locations, String where, Runnable onReady) {
        this.context = context;
        this.locations = locations;
        this.where = where;
        this.onReady = onReady;
    }

    /** Begins with the workers that the partitions are on now, but for those to which an idle connection is there. */
    void ahead() {
        for (int worker : locations.primaries(AHEAD_MAX)) {
            String address = locations.address(worker);
            if (address != null && !context.connections().hasIdle(worker, address)) {
                begin(worker, false);
            }
        }
    }

    /** A connection, if one is there or is known not to come; null: it is being opened, and {@code onReady} says when to ask again. */
    Opened want(int worker) {
        Opened found;
        synchronized (this) {
            found = take(worker);
        }
        if (found != null && (found.connection() == null || context.connections().isGood(found.connection()))) {
            return found;
        }
        try {
            WorkerConnection idle = idle(worker);
            if (idle != null) {
                return new Opened(idle, null, null);
            }
        } catch (HoldfastException closing) {
            return Opened.not(closing);
        }
        begin(worker, true);
        synchronized (this) {
            return take(worker);
        }
    }

    /** Whether the pusher waits for any. */
    synchronized boolean awaited() {
        return !wanted.isEmpty();
    }

    /** The workers that the pusher waits for and of which it is known by now what came of them. */
    synchronized Set<Integer> arrived() {
        Set<Integer> found = new HashSet<>(wanted);
        found.retainAll(ready.keySet());
        return found;
    }

    /** Nothing is wanted any more: gives back what nobody took, now or when it comes. */
    void close() {
        Map<Integer, Opened> left;
        synchronized (this) {
            closed = true;
            waiting.clear();
            wanted.clear();
            left = Map.copyOf(ready);
            ready.clear();
        }
        left.values().forEach(this::giveBack);
    }

    private Opened take(int worker) {
        Opened found = ready.remove(worker);
        if (found != null) {
            wanted.remove(worker);
        }
        return found;
    }

    private WorkerConnection idle(int worker) throws HoldfastException {
        String address = locations.address(worker);
        return address == null ? null : context.connections().borrowIdle(worker, address);
    }

    private void begin(int worker, boolean needed) {
        synchronized (this) {
            if (needed) {
                wanted.add(worker);
            }
            if (closed) {
                ready.put(worker, Opened.not(new HoldfastException(Status.UNAVAILABLE, where + " is over")));
                return;
            }
            boolean first = coming.add(worker);
            if (needed && (first || waiting.remove(worker))) {
                waiting.addFirst(worker);
            } else if (first) {
                waiting.addLast(worker);
            }
            if (!first || threads == AT_A_TIME_MAX) {
                return;
            }
            threads++;
        }
        try {
            context.run(this::openAll);
        } catch (RejectedExecutionException | OutOfMemoryError none) {
            withoutThread(none);
        }
    }

    /** The threads that there are take what waits; where there is none nothing comes. */
    private synchronized void withoutThread(Throwable reason) {
        threads--;
        while (threads == 0 && !waiting.isEmpty()) {
            int worker = waiting.remove();
            coming.remove(worker);
            if (wanted.contains(worker)) {
                String text = where + ": no thread can be started to connect: " + reason.getMessage();
                ready.put(worker, Opened.not(new HoldfastException(Status.UNAVAILABLE, text, reason)));
            }
        }
    }

    /** On a thread of the context. */
    private void openAll() {
        for (;;) {
            int worker;
            synchronized (this) {
                if (waiting.isEmpty()) {
                    threads--;
                    return;
                }
                worker = waiting.remove();
            }
            came(worker, open(worker));
        }
    }

    private void came(int worker, Opened opened) {
        boolean unused;
        boolean tell;
        synchronized (this) {
            coming.remove(worker);
            tell = wanted.contains(worker);
            unused = closed;
            if (!unused && (tell || opened.connection() != null)) {
                ready.put(worker, opened);
            }
        }
        if (unused) {
            giveBack(opened);
        } else if (tell) {
            onReady.run();
        }
    }

    private void giveBack(Opened opened) {
        if (opened.connection() != null) {
            context.connections().giveBack(opened.connection());
        }
    }

    private Opened open(int worker) {
        try {
            return new Opened(borrow(worker), null, null);
        } catch (HoldfastException unreachable) {
            return Opened.not(unreachable);
        } catch (NoDirectMemoryException full) {
            return new Opened(null, null, full);
        } catch (RuntimeException | Error mistake) {
            return Opened.not(new HoldfastException(Status.INTERNAL, where + ": connecting to worker " + worker + ": " + mistake, mistake));
        }
    }

    /** Returns a connection, asking the masters where the worker is if it is needed and not where it was. */
    private WorkerConnection borrow(int worker) throws HoldfastException {
        String address = locations.address(worker);
        HoldfastException refused =
                new HoldfastException(Status.UNAVAILABLE, "the address of worker " + worker + " is not known");
        if (address != null) {
            try {
                return context.connections().borrow(worker, address);
            } catch (HoldfastException unreachable) {
                if (Status.barred(unreachable.status())) {
                    throw unreachable;
                }
                refused = unreachable;
            }
        }
        synchronized (this) {
            if (!wanted.contains(worker)) {
                throw refused;
            }
        }
        LogEvent.PUSH_WORKER_UNREACHABLE.log("task", where, "reason", refused);
        try {
            locations.learnAddresses(context.masters().workers(ASK_MS));
        } catch (HoldfastException silent) {
            throw new HoldfastException(
                    Status.UNAVAILABLE,
                    refused.getMessage() + "; the masters do not answer either: " + silent.getMessage(), refused);
        }
        String now = locations.address(worker);
        if (now == null || now.equals(address)) {
            throw refused;
        }
        return context.connections().borrow(worker, now);
    }
}
