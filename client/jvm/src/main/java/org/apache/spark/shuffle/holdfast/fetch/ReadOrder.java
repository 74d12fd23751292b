package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Which copy is read first; the twin of {@code client/core/read/read_order.py}, and one list of cases tests both.
 *
 * <p>Rules: pure, a sort by several keys; nothing is ever dropped. Categories: those that take data and never failed here, in
 * the own region; those of it that failed; the same of other regions; those that only serve; slow ones; those that are
 * gone. Within a category: the one whose failure is longest ago, of slow ones the one with the fewest requests under way,
 * then the given order. Without an own region none is another one; a worker of which no region is known is in another
 * one. Called by {@link ReadBook}.
 */
final class ReadOrder {
    /** Workers of which a failure, or a slow answer, is remembered; the oldest is forgotten first. */
    static final int REMEMBERED_MAX = 4_096;
    /** After how many local copies the first of another region comes. */
    private static final int REMOTE_AT = 2;

    private ReadOrder() {}

    /** The earlier the better. */
    enum Category {
        CLEAN,
        FAILED,
        REMOTE,
        REMOTE_FAILED,
        READ_ONLY,
        SLOW,
        UNAVAILABLE
    }

    /** What this process met at each worker. */
    static final class Health {
        private final long failureExpireNs;
        private final long slowExpireNs;
        /** The newest last. */
        private final Map<Integer, Long> failedNs = new LinkedHashMap<>();
        private final Map<Integer, Long> slowNs = new LinkedHashMap<>();

        Health(long failureExpireNs, long slowExpireNs) {
            this.failureExpireNs = failureExpireNs;
            this.slowExpireNs = slowExpireNs;
        }

        /** A read from it failed. */
        void failed(int worker, long nowNs) {
            note(failedNs, worker, nowNs);
        }

        /** Another copy that was asked later answered first. */
        void slow(int worker, long nowNs) {
            note(slowNs, worker, nowNs);
        }

        /** Forgets what is long ago; returns whether anything is left. */
        boolean look(long nowNs) {
            failedNs.values().removeIf(at -> nowNs - at >= failureExpireNs);
            slowNs.values().removeIf(at -> nowNs - at >= slowExpireNs);
            return !failedNs.isEmpty() || !slowNs.isEmpty();
        }

        /** When it failed last, null if it did not lately. */
        Long failureNs(int worker) {
            return failedNs.get(worker);
        }

        /** Whether it was too slow lately. */
        boolean isSlow(int worker) {
            return slowNs.containsKey(worker);
        }

        private static void note(Map<Integer, Long> times, int worker, long nowNs) {
            times.remove(worker);
            times.put(worker, nowNs);
            if (times.size() > REMEMBERED_MAX) {
                times.remove(times.keySet().iterator().next());
            }
        }
    }

    /**
     * The state of the cluster for a reader.
     *
     * @param region the reader's, empty if it is not known
     * @param pending requests under way by worker
     * @param pendingThreshold so many more than the least loaded one, and the first copy is not asked first; 0: off
     * @param every whether a copy of another region comes after every two local ones, or one after the first two
     */
    record View(
            Set<Integer> writable,
            Set<Integer> readOnly,
            Map<Integer, String> regions,
            String region,
            Map<Integer, Integer> pending,
            int pendingThreshold,
            boolean every) {}

    private record Key(int worker, Category category, long failureNs, int pending) {}

    private static final Comparator<Key> ORDER = Comparator.comparing(Key::category)
            .thenComparingLong(Key::failureNs)
            .thenComparingInt(Key::pending);

    /** Where a copy belongs. */
    static Category category(int worker, View view, Health health) {
        if (view.writable.contains(worker)) {
            boolean failed = health.failureNs(worker) != null;
            if (health.isSlow(worker) && !failed && view.pendingThreshold == 0) {
                return Category.SLOW;
            }
            boolean remote = !view.region.isEmpty() && !view.region.equals(view.regions.get(worker));
            return remote
                    ? failed ? Category.REMOTE_FAILED : Category.REMOTE
                    : failed ? Category.FAILED : Category.CLEAN;
        }
        return view.readOnly.contains(worker) ? Category.READ_ONLY : Category.UNAVAILABLE;
    }

    /** All copies, the one to ask first first. */
    static int[] order(int[] copies, View view, Health health, long nowNs) {
        health.look(nowNs);
        List<Key> keys = new ArrayList<>(copies.length);
        for (int worker : leastPendingFirst(copies, view)) {
            Category found = category(worker, view, health);
            Long failureNs = health.failureNs(worker);
            int pending = found == Category.SLOW ? view.pending.getOrDefault(worker, 0) : 0;
            keys.add(new Key(worker, found, failureNs == null ? Long.MIN_VALUE : failureNs, pending));
        }
        keys.sort(ORDER); // stable
        List<Key> ordered = view.region.isEmpty() ? keys : interleaved(keys, view.every);
        return ordered.stream().mapToInt(Key::worker).toArray();
    }

    private static List<Integer> leastPendingFirst(int[] copies, View view) {
        List<Integer> given = new ArrayList<>(copies.length);
        Map<Integer, Integer> pending = new HashMap<>();
        for (int worker : copies) {
            given.add(worker);
            pending.put(worker, view.pending.getOrDefault(worker, 0));
        }
        if (view.pendingThreshold > 0 && !given.isEmpty()) {
            Integer least = given.get(0);
            for (Integer worker : given) {
                least = pending.get(worker) < pending.get(least) ? worker : least;
            }
            if (pending.get(given.get(0)) - pending.get(least) >= view.pendingThreshold) {
                given.remove(least);
                given.add(0, least);
            }
        }
        return given;
    }

    /** Puts copies of other regions among local ones, so that a region that is slow as a whole is found out early. */
    private static List<Key> interleaved(List<Key> ordered, boolean every) {
        List<Key> local = ordered.stream().filter(each -> each.category.compareTo(Category.FAILED) <= 0).toList();
        List<Key> remote = ordered.stream()
                .filter(each -> each.category == Category.REMOTE || each.category == Category.REMOTE_FAILED)
                .toList();
        List<Key> mixed = new ArrayList<>(ordered.size());
        int next = 0;
        for (int at = 0; at < local.size(); at++) {
            boolean turn = every ? at > 0 && at % REMOTE_AT == 0 : at == REMOTE_AT;
            if (turn && next < remote.size()) {
                mixed.add(remote.get(next++));
            }
            mixed.add(local.get(at));
        }
        mixed.addAll(remote.subList(next, remote.size()));
        mixed.addAll(ordered.subList(local.size() + remote.size(), ordered.size()));
        return mixed;
    }
}
