package org.apache.spark.shuffle.holdfast.control;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/**
 * A generation of a shuffle as it was registered: {@code key} is the one meant, {@code copies} as placed (1 where no second host
 * is), {@code locationsArray} the places of all partitions at that moment, {@code workers} those that they name.
 */
public record RegisteredShuffle(
        ShuffleKey key, int copies, long raftIndex, byte[] locationsArray, List<WorkerAddress> workers) implements Serializable {
    /** The places, decoded anew at every call. */
    public ReduceLocations locations() throws HoldfastException {
        return ReduceLocations.decode(locationsArray);
    }
}
