package org.apache.spark.shuffle.holdfast.control;

import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.Location;

/**
 * New places, in the order of the failed epochs asked about, and the workers that they name; {@code limitsMet} says which limits
 * were met where no worker has room for the others, else it is empty.
 */
public record Revived(List<NewEpoch> epochs, List<WorkerAddress> workers, long raftIndex, String limitsMet) {
    /** The newest place of a partition; its epoch is above the failed one. */
    public record NewEpoch(int partition, Location location) {}
}
