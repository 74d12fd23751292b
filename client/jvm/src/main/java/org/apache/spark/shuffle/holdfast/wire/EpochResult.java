package org.apache.spark.shuffle.holdfast.wire;

/** The final word on one epoch of one partition. */
public record EpochResult(int partition, int epoch, CopyResult primary, CopyResult replica) {
    /**
     * Whether acknowledged batches may be missing: no copy is OK and none is UNKNOWN_FILE. Both copies hold what was acknowledged,
     * so if one never had a batch nothing was.
     */
    public boolean lost() {
        return !primary.readable() && !replica.readable() && gone(primary) && gone(replica);
    }

    private static boolean gone(CopyResult copy) {
        return copy.worker() == Limits.NO_WORKER || copy.status() != Status.UNKNOWN_FILE;
    }
}
