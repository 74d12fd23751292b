package org.apache.spark.shuffle.holdfast.wire;

/** Where a partition takes batches: its newest epoch, on one worker or two of different hosts. {@code replica}: {@link Limits#NO_WORKER} where there is one copy; {@code hint}: directory the masters advise, 0 the worker chooses. */
public record Location(int epoch, int primary, int replica, int hint) {
    public boolean hasReplica() {
        return replica != Limits.NO_WORKER;
    }
}
