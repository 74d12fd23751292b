package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;

/**
 * Keeps how reads from each worker went in this JVM, and orders copies by that; the twin of
 * {@code client/core/read/read_book.py}.
 *
 * <p>Rules: what the masters said of a worker holds for as long as a failure is remembered; then it is taken for one that
 * serves again, and the next read shows whether it does. An unknown worker counts as one that takes data. Thread-safe, and
 * everything is bounded. One per plug-in's runtime, for all its readers.
 */
public final class ReadBook {
    /** Workers of which it is remembered what the masters said; the oldest word is forgotten first. */
    private static final int SEEN_MAX = 16_384;

    private record Sight(boolean alive, boolean draining, String region, long atNs) {}

    private final ReadSettings settings;
    private final ReadOrder.Health health;
    private final Latencies latencies = new Latencies();
    /** What the masters said, and when; the newest last. */
    private final Map<Integer, Sight> seen = new LinkedHashMap<>();
    /** Whether any of them is worth a thought. */
    private boolean odd;
    /** Open streams by worker. */
    private final Map<Integer, Integer> pending = new HashMap<>();

    public ReadBook(ReadSettings settings) {
        this.settings = settings;
        health = new ReadOrder.Health(settings.failureExpireMs() * 1_000_000, settings.slowExpireMs() * 1_000_000);
    }

    /** Whether another copy is opened where the first one is late. */
    boolean speculative() {
        return settings.speculative();
    }

    /** The masters said this of workers, just now. */
    public void learn(List<WorkerAddress> workers) {
        learn(workers, System.nanoTime());
    }

    synchronized void learn(List<WorkerAddress> workers, long nowNs) {
        for (WorkerAddress each : workers) {
            seen.remove(each.worker());
            seen.put(each.worker(), new Sight(each.alive(), each.draining(), each.region(), nowNs));
            odd |= !each.alive() || each.draining();
        }
        while (seen.size() > SEEN_MAX) {
            seen.remove(seen.keySet().iterator().next());
        }
    }

    /**
     * The order of one read: it does not change between its files but by what the read itself meets. Where nothing is to be
     * thought of, which is the rule, it costs nothing per file.
     */
    Order order() {
        return new OneRead(isPlain());
    }

    /** Whether every copy is as good as any other. */
    private synchronized boolean isPlain() {
        return settings.order() == ReadSettings.OrderBy.GIVEN
                || (settings.pendingThreshold() == 0 && !isRegional() && !odd && !health.look(System.nanoTime()));
    }

    private boolean isRegional() {
        return settings.order() == ReadSettings.OrderBy.REGION && !settings.region().isEmpty();
    }

    /** All copies, the one to ask first first. */
    synchronized int[] ordered(int[] copies, long nowNs) {
        if (settings.order() == ReadSettings.OrderBy.GIVEN) {
            return copies;
        }
        Set<Integer> writable = new HashSet<>();
        Set<Integer> readOnly = new HashSet<>();
        Map<Integer, String> regions = new HashMap<>();
        for (int worker : copies) {
            Sight sight = seen.get(worker);
            boolean fresh = sight != null && nowNs - sight.atNs < settings.failureExpireMs() * 1_000_000;
            if (!fresh || sight.alive) {
                (fresh && sight.draining ? readOnly : writable).add(worker);
            }
            regions.put(worker, sight == null ? "" : sight.region);
        }
        String region = isRegional() ? settings.region() : "";
        ReadOrder.View view = new ReadOrder.View(
                writable, readOnly, regions, region, pending, settings.pendingThreshold(), settings.everyRemote());
        return ReadOrder.order(copies, view, health, nowNs);
    }

    synchronized void failed(int worker, long nowNs) {
        health.failed(worker, nowNs);
    }

    synchronized void slow(int worker, long nowNs) {
        health.slow(worker, nowNs);
    }

    /** Whether it lost to a speculative read lately. */
    synchronized boolean isSlow(int worker) {
        health.look(System.nanoTime());
        return health.isSlow(worker);
    }

    /** Whether a read from it failed lately. */
    synchronized boolean isFailed(int worker) {
        health.look(System.nanoTime());
        return health.failureNs(worker) != null;
    }

    /** A stream of it was asked for. */
    synchronized void opened(int worker) {
        pending.merge(worker, 1, Integer::sum);
    }

    /** A stream of it is over. */
    synchronized void closed(int worker) {
        pending.computeIfPresent(worker, (any, count) -> count == 1 ? null : count - 1);
    }

    /** Streams that are open, of all workers. */
    synchronized int open() {
        return pending.values().stream().mapToInt(Integer::intValue).sum();
    }

    /** The first data of a stream came after so long. */
    synchronized void took(long ns) {
        latencies.took(ns);
    }

    /** After how long without its first data a stream is late; asked only where reads are speculative. */
    synchronized long delayNs() {
        return settings.speculativeDelayMs() > 0 ? settings.speculativeDelayMs() * 1_000_000 : latencies.delayNs();
    }

    private final class OneRead implements Order {
        private final boolean plain;
        /** There are few pairs of workers, and many files. */
        private final Map<Long, int[]> known = new HashMap<>();

        OneRead(boolean plain) {
            this.plain = plain;
        }

        @Override
        public int[] ordered(int... copies) {
            if (plain || copies.length < 2) {
                return copies;
            }
            if (copies.length > 2) {
                return ReadBook.this.ordered(copies, System.nanoTime());
            }
            long pair = (long) copies[0] << 32 | Integer.toUnsignedLong(copies[1]);
            return known.computeIfAbsent(
                    pair, any -> ReadBook.this.ordered(Arrays.copyOf(copies, copies.length), System.nanoTime()));
        }

        @Override
        public void failed(int worker) {
            ReadBook.this.failed(worker, System.nanoTime());
        }

        @Override
        public void slow(int worker) {
            ReadBook.this.slow(worker, System.nanoTime());
        }
    }
}
