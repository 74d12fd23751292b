package org.apache.spark.shuffle.holdfast;

/**
 * What a map attempt wrote cannot be kept, told where Spark's methods declare no exception of ours; the cause says why.
 *
 * <p>Unchecked, and no kind of error that Spark gives a meaning of its own: TaskMemoryManager makes a SparkOutOfMemoryError of an IOException that
 * {@code spill} throws, which hash maps, sorters and queues take for a refusal of memory and swallow; and an InterruptedIOException loses its kind there.
 * Thrown by {@link PartitionBuffers#spill} and {@link HoldfastShuffleWriter#stop}.
 */
final class WriteFailedException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    WriteFailedException(Exception cause) {
        super(cause.getMessage(), cause);
    }
}
