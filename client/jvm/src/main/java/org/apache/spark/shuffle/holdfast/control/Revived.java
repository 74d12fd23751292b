package org.apache.spark.shuffle.holdfast.control;

import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.Location;

/** New places, in the order of the failed epochs asked about, and the workers that they name. */
public record Revived(List<Place> places, List<WorkerAddress> workers, long raftIndex) {
    /** The newest place of a partition; its epoch is above the failed one. */
    public record Place(int partition, Location location) {}
}
