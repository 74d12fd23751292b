package org.apache.spark.shuffle.holdfast.push;

/**
 * How much one attempt has on its way to one worker: slow start, halving on congestion, slow growth after.
 *
 * <p>Rules: pure; as TCP does it (RFC 5681, section 3.1), counted in body bytes; congestion is signalled by SLOW_DOWN and
 * BUSY instead of by losses. The worker's credit bounds all attempts together; the window makes one of them polite before
 * it has to. Called by {@link PushSession}.
 */
final class Window {
    static final int BYTES_MIN = 256 << 10;
    static final int BYTES_FIRST = 4 << 20;
    static final int BYTES_MAX = 32 << 20;

    private long size = BYTES_FIRST;
    /** Below it the window doubles with every window answered, above it grows by BYTES_MIN. */
    private long threshold = BYTES_MAX;
    private long unanswered;

    long size() {
        return size;
    }

    /** Pushed and not answered. */
    long unanswered() {
        return unanswered;
    }

    /** What may be pushed now. */
    long free() {
        return Math.max(0, size - unanswered);
    }

    void sent(int bytes) {
        unanswered += bytes;
    }

    /** A push is answered, or will never be; only what was kept makes the window grow. */
    void answered(int bytes, boolean kept) {
        unanswered -= bytes;
        if (kept) {
            long grow = size < threshold ? bytes : (long) bytes * BYTES_MIN / size;
            size = Math.min(BYTES_MAX, size + grow);
        }
    }

    /** The worker says that it has too much. */
    void congested() {
        size = threshold = Math.max(BYTES_MIN, size / 2);
    }

    void check() {
        Checks.that(unanswered >= 0, "unanswered bytes");
        Checks.that(BYTES_MIN <= size && size <= BYTES_MAX, "size of the window");
    }
}
