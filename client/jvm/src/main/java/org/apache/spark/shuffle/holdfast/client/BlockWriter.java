package org.apache.spark.shuffle.holdfast.client;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * The output of one attempt of a map: blocks for partitions, in any order. {@link #finish} makes it whole; {@link #close} without that gives it up,
 * and nobody ever reads it. For one thread.
 *
 * <p>Each block is read back as one block, with its bytes as they were; those of a partition may come in another order. Memory is bounded by
 * {@code spark.holdfast.push.open} and {@code push.inFlight}: beyond that {@link #write} waits for workers, for one that has room up to
 * {@code no_room.grace}. Blocks of some hundred KiB serve best; one above 4 MiB goes in pieces, and is in the reader's heap twice for a moment.
 */
public interface BlockWriter extends AutoCloseable {
    /** The longest block. */
    int BLOCK_BYTES_MAX = Integer.MAX_VALUE - 8;

    /**
     * Writes one block. The buffer, on the heap or direct, is the caller's again when this returns, with position and limit as they were.
     *
     * @param partition from 0 on
     * @param block the bytes between position and limit, up to {@link #BLOCK_BYTES_MAX}; an empty one is not written
     * @param records how many rows these are, for {@link MapOutput#records}
     * @throws IndexOutOfBoundsException if there is no such partition
     * @throws HoldfastException what ended the attempt: COMMITTED if another one won, APPLICATION_GONE, NO_ROOM, UNAVAILABLE, INTERNAL. Final: every
     *     later call throws it again
     */
    void write(int partition, ByteBuffer block, int records) throws HoldfastException;

    /**
     * The same of the last block of a partition, which may be empty; saves a message. A block after it is an IllegalStateException. Nothing is
     * missing where this is never called.
     */
    void writeLast(int partition, ByteBuffer block, int records) throws HoldfastException;

    /**
     * Sends the rest, and returns when all is acknowledged at the level of the settings.
     *
     * @return what {@link HoldfastClient#commit} wants of an attempt that won; the same when called again
     * @throws HoldfastException as {@link #write}
     */
    MapOutput finish() throws HoldfastException;

    /** Releases everything; gives up what was not finished. Waits for nothing; harmless when repeated. */
    @Override
    void close();
}
