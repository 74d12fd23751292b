package org.apache.spark.shuffle.holdfast.wire;

import java.util.List;

/** Where a partition takes batches: its newest epoch, on workers of different hosts, the primary first. {@code hint}: directory the masters advise, 0 the worker chooses. */
public record Location(int epoch, List<Integer> workers, int hint) {
    /** The worker that clients push to; it repeats what it takes to the others. */
    public int primary() {
        return workers.get(0);
    }
}
