package org.apache.spark.shuffle.holdfast.client;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * Blocks of a committed shuffle, each once, in any order. Memory is bounded by {@code spark.holdfast.fetch.inFlight} and two blocks.
 *
 * <p>Nothing is handed out before its checksum was right, and {@link #next} is false only when nothing is missing. Damaged or lost data is read
 * from another copy; without one the read ends with CORRUPT or DATA_LOST, naming shuffle, partition, epoch, and of damage the chunk and its worker. For
 * one thread; {@link #close} may be called on any.
 */
public interface BlockReader extends AutoCloseable {
    /**
     * Goes to the next block; false at the end, after which nothing is held.
     *
     * @throws HoldfastException CORRUPT, DATA_LOST; UNAVAILABLE if workers or masters stay out of reach ({@code fetch.returnGrace},
     *     {@code fetch.reachGrace}), after {@link #close} or an interrupt; BAD_REQUEST for blocks of another {@link BlockCodec}. Final
     */
    boolean next() throws HoldfastException;

    /** The partition of the present block. */
    int partition();

    /** The map that wrote it. */
    int map();

    /** The present block, never empty: a buffer over an array, which is the caller's until {@link #next} is called. */
    ByteBuffer block();

    /** Gives connections and memory back at once; a {@link #next} on another thread ends soon. Harmless when repeated. */
    @Override
    void close();
}
