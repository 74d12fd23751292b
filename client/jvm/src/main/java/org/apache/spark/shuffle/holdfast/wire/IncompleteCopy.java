package org.apache.spark.shuffle.holdfast.wire;

/** A copy that lacks something that was acknowledged, or may lack it; others have it. */
public record IncompleteCopy(int partition, int epoch, int worker) {
    static final int BYTES = 12;
}
