package org.apache.spark.shuffle.holdfast;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.client.BlockWriter;
import org.apache.spark.shuffle.holdfast.client.MapOutput;
import org.apache.spark.shuffle.holdfast.push.PushWriter;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/** Blocks as batches of a {@link PushWriter}, which bounds and checks; counts records, and the time that it took. Made by {@link HoldfastRuntime}. */
final class PushedBlocks implements BlockWriter {
    private final PushWriter push;
    private final int map;
    private final long attempt;
    private long records;
    private long nanos;
    /** Null before the end. */
    private MapOutput output;

    PushedBlocks(PushWriter push, int map, long attempt) {
        this.push = push;
        this.map = map;
        this.attempt = attempt;
    }

    @Override
    public void write(int partition, ByteBuffer block, int rows) throws HoldfastException {
        put(partition, block, rows, false);
    }

    @Override
    public void writeLast(int partition, ByteBuffer block, int rows) throws HoldfastException {
        put(partition, block, rows, true);
    }

    private void put(int partition, ByteBuffer block, int rows, boolean last) throws HoldfastException {
        if (rows < 0 || block.remaining() > BLOCK_BYTES_MAX) {
            throw new IllegalArgumentException(push + ": a block of " + block.remaining() + " bytes and " + rows + " records; at most "
                    + BLOCK_BYTES_MAX + " bytes are possible");
        }
        long from = System.nanoTime();
        push.write(partition, block, last);
        nanos += System.nanoTime() - from;
        records += rows;
    }

    @Override
    public MapOutput finish() throws HoldfastException {
        if (output == null) {
            long from = System.nanoTime();
            long[] sizes = push.close();
            nanos += System.nanoTime() - from;
            output = new MapOutput(map, attempt, sizes, records);
        }
        return output;
    }

    /** Time in {@link #write} and {@link #finish} so far. */
    long nanos() {
        return nanos;
    }

    @Override
    public void close() {
        push.abort();
    }

    /** Names the attempt, for errors. */
    @Override
    public String toString() {
        return push.toString();
    }
}
