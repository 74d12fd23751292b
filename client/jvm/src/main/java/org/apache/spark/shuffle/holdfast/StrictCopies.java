package org.apache.spark.shuffle.holdfast;

import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * {@code replication.strict}: whoever opens a generation of a shuffle waits for workers on as many hosts as copies are wanted, and then fails.
 *
 * <p>Rules: without the setting nothing is asked and nothing refused. With it every registration is preceded by a look at the workers, since
 * a generation once placed with one copy keeps it. Called by the driver for generation 0 and by {@link Generations} for those after it.
 */
record StrictCopies(boolean strict, int copies, int waitMs) {
    private static final int POLL_MS = 250;

    static StrictCopies of(HoldfastConf conf) {
        return new StrictCopies(conf.strictCopies() && conf.copies() > 1, conf.copies(), conf.registerMs());
    }

    /** Waits until living workers are on enough hosts; NO_ROOM if they are not in time. */
    void await(Masters masters) throws HoldfastException {
        if (!strict) {
            return;
        }
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        for (;;) {
            long hosts = masters.workers().stream().filter(WorkerAddress::alive).map(WorkerAddress::host).distinct().count();
            if (hosts >= copies) {
                return;
            }
            if (System.nanoTime() > end) {
                throw new HoldfastException(Status.NO_ROOM, HoldfastConf.PREFIX + "replication.strict is true and " + copies
                        + " copies are wanted, but living workers are on " + hosts + " hosts");
            }
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new HoldfastException(Status.UNAVAILABLE, "interrupted while waiting for workers");
            }
        }
    }

    /** Refuses what was placed with fewer copies all the same, by a worker that went just then. */
    void check(RegisteredShuffle placed) throws HoldfastException {
        if (strict && placed.copies() < copies) {
            throw new HoldfastException(Status.NO_ROOM, "shuffle " + placed.key() + " was placed with " + placed.copies() + " of "
                    + copies + " copies, and " + HoldfastConf.PREFIX + "replication.strict is true");
        }
    }
}
