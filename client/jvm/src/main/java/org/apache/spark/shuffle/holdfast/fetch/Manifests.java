package org.apache.spark.shuffle.holdfast.fetch;

import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * What was committed, by generation: asked once per JVM, however many tasks want it.
 *
 * <p>Rules: the first caller asks the masters, on its own thread, and all others wait for that answer; if it was
 * interrupted, the next one asks. If the winners are not committed, the caller commits them, if it has them. Kept manifests are bounded by
 * count and by epochs; the least recently used is dropped first. Thread-safe. Made once by the plug-in's runtime, called as a
 * reader is made.
 */
public final class Manifests {
    private static final int KEPT_MAX = 64;
    /** Rows of all manifests that are kept; a larger one is kept alone. */
    private static final long EPOCHS_KEPT_MAX = 4_000_000;
    private static final int POLL_MS = 5_000;
    /** For how long the pending commit of another caller is waited for. */
    private static final long COMMIT_WAIT_NS = 180_000_000_000L;

    private final Masters masters;
    private final Consumer<List<WorkerAddress>> onWorkers;
    private final Map<ShuffleKey, Manifest> kept = new LinkedHashMap<>(16, 0.75f, true);
    private final Map<ShuffleKey, CompletableFuture<Manifest>> asking = new HashMap<>();
    private long keptEpochs;

    /**
     * @param masters the masters to ask
     * @param onWorkers gets the masters' view of the workers of a manifest, once
     */
    public Manifests(Masters masters, Consumer<List<WorkerAddress>> onWorkers) {
        this.masters = masters;
        this.onWorkers = onWorkers;
    }

    /**
     * Returns the manifest of a committed generation.
     *
     * @param winners gives the REDUCE_WINNERS array for a missing commit, or null if the caller does not have it
     *     yet; asked at most once, on the calling thread
     * @throws HoldfastException what the masters refuse; NOT_COMMITTED without a commit for three minutes
     */
    public Manifest get(ShuffleKey key, Supplier<byte[]> winners) throws HoldfastException {
        for (;;) {
            CompletableFuture<Manifest> answer;
            boolean mine = false;
            synchronized (this) {
                Manifest found = kept.get(key);
                if (found != null) {
                    return found;
                }
                answer = asking.get(key);
                if (answer == null) {
                    mine = true;
                    answer = new CompletableFuture<>();
                    asking.put(key, answer);
                }
            }
            Manifest found = mine ? ask(key, winners, answer) : await(key, answer);
            if (found != null) {
                return found;
            }
        }
    }

    /** Forgets all generations of a shuffle up to and including the one named. */
    public synchronized void forget(ShuffleKey upTo) {
        for (Iterator<Manifest> each = kept.values().iterator(); each.hasNext(); ) {
            Manifest manifest = each.next();
            ShuffleKey key = manifest.key();
            if (key.shuffle() == upTo.shuffle() && key.instance().equals(upTo.instance())
                    && Integer.compareUnsigned(key.generation(), upTo.generation()) <= 0) {
                keptEpochs -= manifest.epochs().size();
                each.remove();
            }
        }
    }

    /** Manifests that are kept. */
    public synchronized int size() {
        return kept.size();
    }

    private Manifest ask(ShuffleKey key, Supplier<byte[]> winners, CompletableFuture<Manifest> answer)
            throws HoldfastException {
        Manifest found = null;
        try {
            found = askMasters(key, winners);
            onWorkers.accept(found.workers());
            keep(key, found);
            return found;
        } catch (HoldfastException error) {
            if (!Thread.currentThread().isInterrupted()) {
                answer.completeExceptionally(error);
            }
            throw error;
        } finally {
            synchronized (this) {
                asking.remove(key);
            }
            answer.complete(found); // null: one of the waiters asks
        }
    }

    private static Manifest await(ShuffleKey key, CompletableFuture<Manifest> answer) throws HoldfastException {
        LongWait slow = new LongWait();
        try {
            for (;;) {
                try {
                    return answer.get(POLL_MS, TimeUnit.MILLISECONDS);
                } catch (TimeoutException later) {
                    say(slow, key, "the answer to another task of this executor");
                }
            }
        } catch (ExecutionException failed) {
            HoldfastException error = (HoldfastException) failed.getCause();
            throw new HoldfastException(error.status(), error.getMessage(), error);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new ReadInterruptedException("shuffle " + key);
        }
    }

    private Manifest askMasters(ShuffleKey key, Supplier<byte[]> winners) throws HoldfastException {
        boolean offers = winners != null;
        long endNs = System.nanoTime() + COMMIT_WAIT_NS;
        LongWait slow = new LongWait();
        for (;;) {
            say(slow, key, "its commit, which is under way elsewhere");
            try {
                return masters.getManifest(key, POLL_MS, offers);
            } catch (HoldfastException error) {
                boolean wanted = error.status() == Status.NEED_WINNERS && offers;
                if (!wanted && (error.status() != Status.NOT_COMMITTED || System.nanoTime() - endNs > 0)) {
                    throw error;
                }
                if (wanted) {
                    offers = false;
                    commit(key, winners.get());
                }
            }
        }
    }

    private static void say(LongWait slow, ShuffleKey key, String what) {
        if (slow.due(System.nanoTime())) {
            LogEvent.READ_WAITING.log("shuffle", key, "what", what);
        }
    }

    private void commit(ShuffleKey key, byte[] winners) throws HoldfastException {
        if (winners == null) {
            return; // then another caller has to, and the poll waits for that
        }
        try {
            masters.commit(key, winners);
        } catch (HoldfastException error) {
            if (error.status() != Status.CONFLICT) {
                throw error;
            }
            // another commit was faster and named another attempt: a commit is final, and readers use it
        }
    }

    private synchronized void keep(ShuffleKey key, Manifest manifest) {
        Manifest before = kept.put(key, manifest);
        keptEpochs += manifest.epochs().size() - (before == null ? 0 : before.epochs().size());
        Iterator<Manifest> oldest = kept.values().iterator();
        while (kept.size() > 1 && (kept.size() > KEPT_MAX || keptEpochs > EPOCHS_KEPT_MAX)) {
            keptEpochs -= oldest.next().epochs().size();
            oldest.remove();
        }
    }
}
