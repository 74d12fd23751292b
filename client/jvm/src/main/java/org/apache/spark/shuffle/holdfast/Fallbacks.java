package org.apache.spark.shuffle.holdfast;

import java.util.EnumMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Shuffles of this driver that became Spark's own: logged, counted by reason, and reported to the masters when they can be reached.
 *
 * <p>Rules: makes no call itself. Thread-safe. Called by the manager and {@link DriverShuffles}.
 */
final class Fallbacks {
    /** Why; FallbackReason of the masters' API. */
    enum Reason {
        OTHER, MASTERS_AWAY, NO_ROOM, QUOTA, REFUSED;

        static Reason of(HoldfastException error) {
            return switch (error.status()) {
                case Status.QUOTA_EXCEEDED -> QUOTA;
                case Status.NO_ROOM -> NO_ROOM;
                case Status.UNAUTHENTICATED, Status.FORBIDDEN, Status.TOKEN_EXPIRED -> REFUSED;
                default -> error.again() ? MASTERS_AWAY : OTHER;
            };
        }

        /** As metrics and logs call it. */
        String word() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** What the masters do not know yet of one reason. */
    record Untold(Reason reason, int shuffles, String text) {}

    /** Tells the masters. */
    interface Report {
        void send(Untold untold) throws HoldfastException;
    }

    private final Map<Reason, Integer> counts = new EnumMap<>(Reason.class);
    private final Map<Reason, Untold> untold = new EnumMap<>(Reason.class);
    private Untold last = new Untold(Reason.OTHER, 0, "");

    /** A shuffle fell back, for this error. */
    synchronized void add(int shuffle, HoldfastException error) {
        Reason reason = Reason.of(error);
        add(new Untold(reason, 1, error.getMessage()));
        LogEvent.SHUFFLE_FALLBACK.log("shuffle", shuffle, "count", count(), "why", reason.word(), "reason", error);
    }

    /** A shuffle fell back for the same reason as the one before: the masters were not asked. */
    synchronized void addAnother(int shuffle) {
        add(new Untold(last.reason(), 1, last.text()));
        LogEvent.SHUFFLE_FALLBACK.log("shuffle", shuffle, "count", count(), "why", last.reason().word(), "reason", "one fell back a moment ago");
    }

    private void add(Untold one) {
        last = one;
        counts.merge(one.reason(), 1, Integer::sum);
        restore(one);
    }

    private void restore(Untold one) {
        untold.merge(one.reason(), one, (old, more) -> new Untold(one.reason(), old.shuffles() + more.shuffles(), more.text()));
    }

    /** So far, of all reasons. */
    synchronized int count() {
        return counts.values().stream().mapToInt(Integer::intValue).sum();
    }

    /** So far, of one. */
    synchronized int count(Reason reason) {
        return counts.getOrDefault(reason, 0);
    }

    /** Whether the masters are to be told now: they do not know all, and the last word was theirs. */
    synchronized boolean due() {
        return !untold.isEmpty() && last.reason() != Reason.MASTERS_AWAY;
    }

    /** A shuffle was registered, so the masters are there. */
    synchronized void reached() {
        last = new Untold(Reason.OTHER, 0, "");
    }

    /** Sends what the masters do not know. What fails is kept, and thrown. */
    void report(Report masters) throws HoldfastException {
        for (Reason each : Reason.values()) {
            Untold one;
            synchronized (this) {
                one = untold.remove(each);
            }
            if (one == null) {
                continue;
            }
            try {
                masters.send(one);
            } catch (HoldfastException error) {
                synchronized (this) {
                    restore(one);
                }
                throw error;
            }
        }
    }
}
