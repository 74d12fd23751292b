package org.apache.spark.shuffle.holdfast;

import java.io.Serializable;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;

/**
 * Where a shuffle was placed when it was registered, as it travels to the tasks in its handle: none of them has to ask the masters before its first
 * push.
 *
 * <p>Rules: empty where it would make tasks large, and on the driver from the end of the shuffle's first stage on, since tasks that run later may
 * belong to another generation; then executors ask. It knows nothing of the dependency, so that the driver may keep it. Thread-safe.
 */
final class FirstPlaces implements Serializable {
    /** Spark warns of tasks above 1000 KiB. */
    static final int BYTES_MAX = 256 << 10;
    /** Of one worker's addresses, about. */
    private static final int WORKER_BYTES = 200;
    private static final long serialVersionUID = 1L;

    private volatile Placed known;

    /** Takes note of the places, unless there are too many. */
    void are(Placed placed) {
        RegisteredShuffle registered = placed.registered();
        if (registered.locationsArray().length + WORKER_BYTES * registered.workers().size() <= BYTES_MAX) {
            known = placed;
        }
    }

    /** Null: ask the masters. */
    Placed known() {
        return known;
    }

    /** Tasks that are made from now on ask the masters. */
    void over() {
        known = null;
    }
}
