package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Arrays;

/** How long the first data of a stream took lately, and from when on one is late. Rules: pure. Called by {@link ReadBook}. */
final class Latencies {
    /** First data of this many streams, the newest, say when a stream is late. */
    static final int MAX = 128;
    /** Before so many were seen nothing is known. */
    static final int MIN = 16;
    /** A stream is late then after what BookKeeper waits for its first speculative read. */
    static final long DELAY_NS = 2_000_000_000L;
    /** Never sooner than this: a worker that collects garbage or syncs is not slow. */
    static final long DELAY_NS_MIN = 100_000_000L;
    /** Of 100 streams so many were in time ... */
    private static final int IN_TIME = 95;
    /** ... and one that takes so many times as long as the latest of these is late. */
    private static final int TIMES = 2;

    private final long[] newest = new long[MAX];
    private long count;

    /** The first data of a stream came after so long. Streams that were closed for another one do not count. */
    void took(long ns) {
        newest[(int) (count++ % MAX)] = ns;
    }

    /**
     * From when on a stream is late: twice what the slowest of the quickest 95 in 100 took, of the last 128 that delivered,
     * and never under 100 ms; 2 s until 16 have delivered. Losers are not among them, so one slow worker does not raise it;
     * all slow ones do.
     */
    long delayNs() {
        if (count < MIN) {
            return DELAY_NS;
        }
        long[] ordered = Arrays.copyOf(newest, (int) Math.min(count, MAX));
        Arrays.sort(ordered);
        return Math.max(DELAY_NS_MIN, TIMES * ordered[(ordered.length * IN_TIME - 1) / 100]);
    }
}
