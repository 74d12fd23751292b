package org.apache.spark.shuffle.holdfast.wire;

/** One epoch of a partition. */
public record EpochName(int partition, int epoch) {
    static final int BYTES = 8;
}
