package org.apache.spark.shuffle.holdfast.client;

import java.io.Serializable;

/**
 * A shuffle as it was registered: what tasks need to write and read it. Made by {@link HoldfastClient#register}, sent to tasks by Java serialization
 * of the same version of Holdfast. Immutable, holds no secret; its size grows with the partitions, about 10 bytes each.
 */
public interface ShuffleGeneration extends Serializable {
    /** The number that it was registered with. */
    int shuffle();

    /** Which try at this shuffle it is, from 0 on. */
    int generation();

    /** How many maps write it. */
    int maps();

    /** How many partitions it has. */
    int partitions();
}
