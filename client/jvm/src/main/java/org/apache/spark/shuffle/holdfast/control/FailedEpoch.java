package org.apache.spark.shuffle.holdfast.control;

/** An epoch that a new place is asked for. {@code status}: what the worker answered, or UNAVAILABLE. */
public record FailedEpoch(int partition, int epoch, int status) {}
