package org.apache.spark.shuffle.holdfast;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.client.BlockReader;
import org.apache.spark.shuffle.holdfast.fetch.BatchSource;
import org.apache.spark.shuffle.holdfast.fetch.FetchedBatch;
import org.apache.spark.shuffle.holdfast.fetch.ReadCosts;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The batches of a read as blocks, decrypted and decompressed, one at a time.
 *
 * <p>Rules: two arrays take turns, so what the batch before the present one held is whole until {@link #next} is called again. Iterators need that:
 * asking {@code hasNext} must not change the row that {@code next} gave. For the same reason an uncompressed payload is copied, which happens
 * while its checksum still has it in the cache, and rows never point into memory that is given back. One thread reads. The task's end may close it
 * from another one (a pipe's or a script's feeder reads on a thread without a waiter), and waits for nothing: memory is released between
 * batches only, never while one is written to it, so a running read is asked to stop and releases everything itself. At the end nothing is
 * held any more, since a task may read thousands of partitions one after the other.
 */
final class DecodedBatches implements BlockReader {
    /** Longer arrays are not kept for the next task, nor for the next batch. */
    private static final int KEPT_BYTES_MAX = 1 << 20;

    private static final byte[] EMPTY = new byte[0];

    private final BatchSource source;
    private final IoEncryption encryption;
    private final BlockCodec expected;
    private final ReadCosts costs;
    private final ByteArrays arrays;
    /** These belong to the thread that reads. */
    private byte[] data = EMPTY;
    private byte[] spare = EMPTY;
    private int length;
    private int partition;
    private int map;
    private boolean atEnd;
    /** These do not: under the lock, which is never held during a wait. */
    private boolean reading;
    private boolean closed;
    private boolean released;

    /** @param encryption null where the shuffle is not encrypted */
    DecodedBatches(BatchSource source, IoEncryption encryption, BlockCodec expected, ReadCosts costs, ByteArrays arrays) {
        this.source = source;
        this.encryption = encryption;
        this.expected = expected;
        this.costs = costs;
        this.arrays = arrays;
    }

    /** Goes to the next batch; false at the end. Throws UNAVAILABLE if this was closed before, or has failed. */
    @Override
    public boolean next() throws HoldfastException {
        if (atEnd) {
            return false;
        }
        begin();
        boolean over = true; // after an error as well: the next call must not get the batch after this one
        try {
            over = !advance();
            atEnd = over;
        } finally {
            end(over);
        }
        if (atEnd) { // the last row given may still be in use: its array is left to the collector
            data = EMPTY;
            length = 0;
        }
        return !atEnd;
    }

    private boolean advance() throws HoldfastException {
        FetchedBatch batch = source.next();
        if (batch == null) {
            return false;
        }
        ByteBuffer payload = batch.payload();
        costs.received(payload.remaining());
        decode(batch, payload);
        partition = batch.partition();
        map = batch.map();
        return true;
    }

    private synchronized void begin() throws HoldfastException {
        if (closed) {
            throw new HoldfastException(Status.UNAVAILABLE, "the read has failed, or its task has ended");
        }
        reading = true;
    }

    private synchronized void end(boolean over) {
        reading = false;
        closed |= over;
        if (closed) {
            release();
        }
    }

    @Override
    public int partition() {
        return partition;
    }

    @Override
    public int map() {
        return map;
    }

    @Override
    public ByteBuffer block() {
        return ByteBuffer.wrap(data, 0, length);
    }

    private void decode(FetchedBatch batch, ByteBuffer payload) throws HoldfastException {
        byte[] last = data;
        try {
            ByteBuffer plain = encryption == null ? payload : encryption.open(payload);
            Codec codec = codec(batch.codec());
            int size = codec.originalBytes(plain);
            byte[] target = spare.length >= size && spare.length <= Math.max(size, KEPT_BYTES_MAX) ? spare : exchange(size);
            data = codec.decompress(plain, target);
            length = size;
        } catch (HoldfastException error) {
            throw error.status() == Status.CORRUPT
                    ? error.at("partition " + batch.partition() + ", map " + batch.map() + ", attempt " + batch.attempt())
                    : error;
        }
        spare = last;
    }

    private Codec codec(int number) throws HoldfastException {
        if (expected == BlockCodec.HOLDFAST) {
            return Codec.of(number);
        }
        if (number != Codec.ENGINE.number()) {
            throw new HoldfastException(Status.BAD_REQUEST, "this block has codec " + number + ", not the engine's own: writers and readers of"
                    + " a shuffle name the same BlockCodec");
        }
        return Codec.NONE; // passed through
    }

    private byte[] exchange(int size) {
        arrays.give(spare);
        spare = EMPTY;
        return arrays.take(size);
    }

    /** The lock is held, and no read runs; rows of the present batch may still be used. */
    private void release() {
        if (!released) {
            released = true;
            source.close();
            arrays.give(spare);
            spare = EMPTY;
        }
    }

    /** Ends the read, at once; a wait for a batch ends soon, in the thread that waits. */
    @Override
    public synchronized void close() {
        closed = true;
        if (reading) {
            source.stop();
        } else {
            release();
        }
    }
}
