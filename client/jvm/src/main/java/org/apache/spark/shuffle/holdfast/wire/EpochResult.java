package org.apache.spark.shuffle.holdfast.wire;

import java.util.List;

/** The final word on one epoch of one partition; {@code copies} are all that were placed, the primary's first. */
public record EpochResult(int partition, int epoch, List<CopyResult> copies) {
    /**
     * Whether acknowledged batches may be missing: no copy is OK and none is UNKNOWN_FILE. All copies hold what was acknowledged,
     * so if one never had a batch nothing was.
     */
    public boolean lost() {
        return copies.stream().noneMatch(copy -> copy.readable() || copy.status() == Status.UNKNOWN_FILE);
    }
}
