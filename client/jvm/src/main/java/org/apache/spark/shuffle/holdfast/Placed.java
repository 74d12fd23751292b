package org.apache.spark.shuffle.holdfast;

import org.apache.spark.shuffle.holdfast.client.ShuffleGeneration;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/** A generation with its places, in which cluster: what a JVM knows without a call to the masters. */
record Placed(String clusterId, RegisteredShuffle registered, ShuffleShape shape) implements ShuffleGeneration {
    /** What the public API handed out before. */
    static Placed of(ShuffleGeneration shuffle) {
        if (shuffle instanceof Placed ours) {
            return ours;
        }
        throw new IllegalArgumentException("not a shuffle that HoldfastClient.register returned: " + shuffle);
    }

    ShuffleKey key() {
        return registered.key();
    }

    @Override
    public int shuffle() {
        return key().shuffle();
    }

    @Override
    public int generation() {
        return key().generation();
    }

    @Override
    public int maps() {
        return shape.maps();
    }

    @Override
    public int partitions() {
        return shape.partitions();
    }

    @Override
    public String toString() {
        return key().toString();
    }
}
