package org.apache.spark.shuffle.holdfast.wire;

/** The worker that holds the second copy of everything in a push. */
public record ReplicaPlace(int worker, int incarnation, String address) {}
