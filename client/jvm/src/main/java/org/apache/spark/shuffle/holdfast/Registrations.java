package org.apache.spark.shuffle.holdfast;

import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * How generations of shuffles are registered: with patience where no worker is alive just now or none has room, or, with
 * {@code replication.strict}, too few are alive.
 *
 * <p>Rules: workers that were killed or stopped come back, and a job that only begins its next stage then has lost nothing. Where the masters cannot
 * be reached their calls have a patience of their own. A strict registration is preceded by a look at the workers, since a generation once placed with
 * one copy keeps it. Called by the driver for generation 0 and by {@link Generations} for those after it.
 *
 * @param callMs for how long a call to the masters is repeated
 * @param strict whether a shuffle that cannot have all its copies is refused
 * @param copies how many are wanted
 * @param waitMs for how long workers are waited for
 * @param setting the key that says so
 */
record Registrations(int callMs, boolean strict, int copies, int waitMs, String setting) {
    private static final int POLL_MS = 250;

    /**
     * On the driver, for an application that is registered: where the masters cannot be reached a job that may fall back does so after
     * {@code register.timeout}. One that may not waits for masters that restart as it does for workers.
     */
    static Registrations ofDriver(HoldfastConf conf) {
        return of(conf, conf.mayFallBack() ? conf.registerMs() : (int) Math.max(conf.registerMs(), conf.push().noRoomMs()));
    }

    /** In a task, whose shuffle is registered: the masters are waited for as in its other calls. */
    static Registrations ofTask(HoldfastConf conf) {
        return of(conf, conf.requestMs());
    }

    /** With fallback allowed it waits for {@code register.timeout}, else as long as a writer without room does. */
    private static Registrations of(HoldfastConf conf, int callMs) {
        int waitMs = conf.mayFallBack() ? conf.registerMs() : (int) Math.max(conf.registerMs(), conf.push().noRoomMs());
        boolean strict = conf.strictCopies() && conf.copies() > 1;
        boolean grace = !strict && waitMs > conf.registerMs();
        return new Registrations(callMs, strict, conf.copies(), strict ? conf.registerMs() : waitMs, grace ? "no_room.grace" : "register.timeout");
    }

    /**
     * Registers a generation, see {@link Masters#registerShuffle}.
     *
     * @throws HoldfastException NO_ROOM if there were no workers, or too few, for all that time; or what the masters said
     */
    RegisteredShuffle register(
            Masters masters, ShuffleKey key, ShuffleShape shape, boolean toWrite, boolean failedBefore, Set<Integer> unusable) throws HoldfastException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        for (boolean said = false;; said = true) {
            HoldfastException reason = tooFew(masters);
            if (reason == null) {
                try {
                    RegisteredShuffle placed = masters.registerShuffle(
                            key, shape.partitions(), shape.maps(), shape.copies(), shape.ack(), shape.ackCopies(), toWrite, failedBefore, unusable,
                            callMs);
                    check(placed);
                    return placed;
                } catch (HoldfastException error) {
                    if (error.status() != Status.NO_ROOM) {
                        throw error;
                    }
                    reason = error;
                }
            }
            if (System.nanoTime() > end) {
                String waited = " (NO_ROOM after " + waitMs / 1000 + " s; how long is waited: " + HoldfastConf.PREFIX + setting + ")";
                throw new HoldfastException(reason.status(), reason.getMessage() + waited, reason);
            }
            if (!said) {
                LogEvent.SHUFFLE_WAITING.log("shuffle", key, "seconds_max", waitMs / 1000, "reason", reason);
            }
            pause();
        }
    }

    private HoldfastException tooFew(Masters masters) throws HoldfastException {
        if (!strict) {
            return null;
        }
        long hosts = masters.workers(callMs).stream().filter(WorkerAddress::alive).map(WorkerAddress::host).distinct().count();
        return hosts >= copies ? null : new HoldfastException(Status.NO_ROOM, HoldfastConf.PREFIX + "replication.strict is true and " + copies
                + " copies are wanted, but living workers are on " + hosts + " hosts");
    }

    /** Refuses a shuffle that was placed with fewer copies after all, because a worker was lost just then: it keeps them. */
    private void check(RegisteredShuffle placed) throws HoldfastException {
        if (strict && placed.copies() < copies) {
            throw new HoldfastException(Status.CONFLICT, "shuffle " + placed.key() + " was placed with " + placed.copies() + " of "
                    + copies + " copies, and " + HoldfastConf.PREFIX + "replication.strict is true");
        }
    }

    private static void pause() throws HoldfastException {
        try {
            Thread.sleep(POLL_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new HoldfastException(Status.UNAVAILABLE, "interrupted while waiting for workers");
        }
    }
}
