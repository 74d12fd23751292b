package org.apache.spark.shuffle.holdfast.data;

/**
 * Whether a wait has lasted so long that the log should say so: after 10 s, then once a minute.
 *
 * <p>Rules: no clock; one thread. {@link #over} is called whenever there was progress. Called by waiters.
 */
public final class LongWait {
    /** From when on it is said. */
    public static final long FIRST_NS = 10_000_000_000L;
    static final long AGAIN_NS = 60_000_000_000L;

    private boolean waiting;
    private long sinceNs;
    private long nextNs;

    /** There was progress, or there is nothing to wait for. */
    public void over() {
        waiting = false;
    }

    /** It continues; returns the nanoseconds since its start. */
    public long lasts(long nowNs) {
        if (!waiting) {
            waiting = true;
            sinceNs = nowNs;
            nextNs = nowNs + FIRST_NS;
        }
        return nowNs - sinceNs;
    }

    /** It continues; returns whether to log it now. */
    public boolean due(long nowNs) {
        lasts(nowNs);
        if (nowNs - nextNs < 0) {
            return false;
        }
        nextNs = nowNs + AGAIN_NS;
        return true;
    }
}
