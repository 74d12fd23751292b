package org.apache.spark.shuffle.holdfast.wire;

/** A worker that holds another copy of everything in a push. */
public record ReplicaPlace(int worker, int incarnation, String address) {}
