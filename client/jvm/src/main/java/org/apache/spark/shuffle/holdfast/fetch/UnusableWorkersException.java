package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * The masters call these workers alive, but what only they have could not be read from here for too long: they were out of reach, or
 * could not read it themselves. The data is not lost; where it cannot be waited for, its maps run again, without these workers.
 */
public final class UnusableWorkersException extends HoldfastException {
    private static final long serialVersionUID = 1L;

    private final transient Set<Integer> workers;

    UnusableWorkersException(int status, String message, Set<Integer> workers) {
        super(status, message);
        this.workers = Set.copyOf(workers);
    }

    /** Their ids. */
    public Set<Integer> workers() {
        return workers;
    }
}
