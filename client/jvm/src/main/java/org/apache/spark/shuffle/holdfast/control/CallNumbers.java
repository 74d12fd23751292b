package org.apache.spark.shuffle.holdfast.control;

import java.util.TreeSet;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** The call numbers of one client id, and which of them are under way (docs/internals/control_plane.md, "Calls are applied once"). Thread-safe. */
final class CallNumbers {
    /** How far the numbers of calls under way may be apart; the answer table remembers twice as many calls of a client. */
    private static final int AT_ONCE_MAX = 64;
    private static final long LOOK_MS = 5_000;
    final byte[] client;
    /** The highest Raft index seen when the id was drawn. */
    final long drawnIndex;
    private final TreeSet<Long> open = new TreeSet<>();
    private long last;

    CallNumbers(byte[] client, long drawnIndex) {
        this.client = client;
        this.drawnIndex = drawnIndex;
    }

    /**
     * The next number. Waits while the oldest call under way is so far back that its answer might be forgotten before it is repeated;
     * BUSY when {@code end} ({@link System#nanoTime}) comes first.
     */
    synchronized long take(long end) throws HoldfastException {
        LongWait slow = new LongWait();
        while (!open.isEmpty() && last + 1 - open.first() >= AT_ONCE_MAX) {
            long now = System.nanoTime();
            long millis = (end - now) / 1_000_000;
            if (slow.due(now)) {
                LogEvent.CALL_SLOW.log("seconds_max", millis / 1_000, "reason", open.size() + " others have no answer yet");
            }
            if (millis <= 0) {
                throw new HoldfastException(Status.BUSY, open.size() + " calls of this client wait for their answers");
            }
            try {
                wait(Math.min(millis, LOOK_MS));
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw Round.interrupted();
            }
        }
        open.add(++last);
        return last;
    }

    /** The lowest number under way, where there is one: all below are over, and may be forgotten. */
    synchronized long openFrom() {
        return open.first();
    }

    /** A call came to its end. */
    synchronized void giveBack(long number) {
        open.remove(number);
        notifyAll();
    }
}
