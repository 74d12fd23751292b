package org.apache.spark.shuffle.holdfast.wire;

/** One epoch wanted of a worker: the first chunk to send. */
public record ChunkFile(int partition, int epoch, int firstChunk) {
    static final int BYTES = 12;
}
