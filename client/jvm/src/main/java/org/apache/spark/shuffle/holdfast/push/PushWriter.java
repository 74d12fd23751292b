package org.apache.spark.shuffle.holdfast.push;

import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * Pushes the output of one map attempt. Signature first; the body follows.
 */
public final class PushWriter {
    /** @param encryption null for none */
    public PushWriter(
            PushContext context,
            RegisteredShuffle registered,
            Places places,
            int map,
            long attempt,
            Codec codec,
            Encryption encryption) {
        throw new UnsupportedOperationException();
    }

    /** Writes one batch of whole records, which is not the last of its partition. */
    public void write(int partition, byte[] data, int off, int len) throws HoldfastException {
        write(partition, data, off, len, false);
    }

    /** Writes one batch of whole records; waits while too much is unacknowledged. Of any length. */
    public void write(int partition, byte[] data, int off, int len, boolean last) throws HoldfastException {
        throw new UnsupportedOperationException();
    }

    /** Writes one record of any length: the same as {@code write}, which cuts what is longer than a batch. */
    public void writeRecord(int partition, byte[] data, int off, int len) throws HoldfastException {
        write(partition, data, off, len, false);
    }

    /**
     * Pushes the rest and waits until everything is acknowledged; returns the payload bytes of each partition as sent,
     * at least 1 where any batch was sent.
     */
    public long[] close() throws HoldfastException {
        throw new UnsupportedOperationException();
    }

    /** Gives the attempt up; readers drop what it pushed. Harmless after {@code close}, and twice. */
    public void abort() {
        throw new UnsupportedOperationException();
    }
}
