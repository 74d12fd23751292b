package org.apache.spark.shuffle.holdfast;

/**
 * The output of a map attempt cannot be kept; for methods of Spark that declare no exception of Holdfast; the cause has the reason.
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
