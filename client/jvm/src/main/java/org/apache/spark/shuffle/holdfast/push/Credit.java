package org.apache.spark.shuffle.holdfast.push;

import org.apache.spark.shuffle.holdfast.data.Books;

/**
 * What a worker lets one connection have unanswered.
 *
 * <p>Rules: pure; one attempt uses a connection at a time. The worker says one number, anew with every answer; what is
 * pushed never exceeds it. What it is asked for begins small, doubles while the worker lets us have it, and is halved
 * when it takes room back, since it does so only for other waiters: so many clients of a slow worker take short turns
 * instead of long ones. It stays with the connection while that lies idle, and is forgotten if that was for long, since
 * the worker then does the same. Called by {@link PushSession}.
 */
final class Credit implements Books {
    /** What the worker is asked for at most: a few frames are on their way while one is written. */
    static final int ASK_BYTES = 12 << 20;
    /** What it is asked for at first, and at least. */
    static final int ASK_BYTES_MIN = 1 << 20;
    /** Windows lapse after 10 s without use, or after 1 s where others wait. */
    static final long IDLE_NS_MAX = 900_000_000L;

    private int window;
    /** Pushed and not answered. */
    private long given;
    private int target = ASK_BYTES_MIN;
    /** Answered since the window was last taken back or the target changed. */
    private long calmBytes;
    /** The target has grown since the worker was last asked. */
    private boolean grown;
    /** The worker has taken room back since it was last asked. */
    private boolean takenBack;
    private boolean asked;
    private boolean justGranted;
    private long usedAtNs;

    int target() {
        return target;
    }

    long given() {
        return given;
    }

    int window() {
        return window;
    }

    /** Whether the worker has been asked and has not answered. */
    boolean asked() {
        return asked;
    }

    /** Takes room for a push; returns false without any. */
    boolean take(int size) {
        // Less than one frame was granted: asking again would not help, and the push gets the answer that says why.
        boolean fits = window - given >= size || (justGranted && window < size);
        justGranted = false;
        if (fits) {
            given += size;
        }
        return fits;
    }

    /** Returns what to ask the worker for so that `size` fits, 0 if an answer has to come first. */
    int ask(int size) {
        boolean lacking = given == 0 || window < size;
        if (asked || !(lacking || grown)) {
            return 0;
        }
        if (takenBack) {
            takenBack = false;
            target = Math.max(target / 2, ASK_BYTES_MIN);
        }
        asked = true;
        grown = false;
        return Math.max(size, target);
    }

    /** The worker answers what was asked for. */
    void granted(int size) {
        asked = false;
        justGranted = true;
        window = size;
    }

    /** A push is answered and says the window anew; one that was refused as beyond the window says 0. */
    void answered(int size, int newWindow) {
        given -= size;
        calmBytes += size;
        if (newWindow < window) {
            calmBytes = 0;
            takenBack = true;
            grown = false;
        } else if (window >= target && calmBytes >= window && target < ASK_BYTES) {
            calmBytes = 0;
            target = Math.min(2 * target, ASK_BYTES);
            grown = true;
        }
        window = newWindow;
    }

    /** A push will not be answered, or the answer does not say. */
    void returned(int size) {
        given -= size;
    }

    /** Whether everything that was taken or asked for is answered; a failed attempt leaves some of it as it is. */
    @Override
    public boolean closed() {
        return given == 0 && !asked;
    }

    /** The connection lies idle from now on. */
    void rests(long nowNs) {
        usedAtNs = nowNs;
    }

    /** The connection is used again. */
    void wakes(long nowNs) {
        if (nowNs - usedAtNs > IDLE_NS_MAX) {
            window = 0;
        }
    }

    @Override
    public String toString() {
        return "a window of " + window + " bytes, " + given + " of it taken" + (asked ? ", another one asked for" : "");
    }

    void check() {
        Checks.that(given >= 0, "bytes given");
    }
}
