package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.util.Random;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.SparkOutOfMemoryError;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * What becomes of rows when something fails, and whoever asked swallows the error: random runs of the buffers, one for every call that the sink gets in a
 * run without errors, in each of which that call fails. Arguments: the first seed, and how many. Run by tests/jvm/test_buffers.py.
 */
public final class LostRowsMain {
    private static final int STEPS = 3_000;
    private static final int PARTITIONS = 60;
    private static final int LIMIT = 16 << 10;
    private static final long HEAP = 3L << 20;

    private LostRowsMain() {}

    /** Runs all; an error ends it. */
    public static void main(String[] arguments) throws IOException {
        int first = Integer.parseInt(arguments[0]);
        int seeds = Integer.parseInt(arguments[1]);
        int runs = 0;
        for (int seed = first; seed < first + seeds; seed++) {
            Run whole = new Run(seed, 0).go();
            check(whole.errors == 0 && whole.sent == whole.put && whole.sentBytes == whole.putBytes, "seed " + seed + ": " + whole);
            for (int call = 1; call <= whole.calls; call++) {
                String where = "seed " + seed + " call " + call + ": ";
                try {
                    Run broken = new Run(seed, call).go();
                    check(broken.calls == call, "the sink was called again: " + broken);
                    check(broken.errors > 1, "nobody was told, or not for good: " + broken);
                } catch (AssertionError found) {
                    throw new AssertionError(where + found.getMessage(), found);
                }
                runs++;
            }
        }
        othersFail();
        lostBeforeTheyWereSent();
        System.out.println("ok " + runs + " runs with a failure");
    }

    /** One run of the buffers of a task whose operators want memory, too, and take every error for a refusal of it. */
    private static final class Run implements BatchSink {
        private final Random random;
        private final int failing;
        private final TaskMemoryManager memory = memory(HEAP);
        private final PartitionBuffers buffers = new PartitionBuffers(memory, PARTITIONS, LIMIT, ByteArrays.SHARED, this);
        private final Operator operator = new Operator(memory);
        private final byte[] bytes = new byte[3 * LIMIT];
        private int calls;
        private long put;
        private long putBytes;
        private long sent;
        private long sentBytes;
        private int errors;

        Run(int seed, int failing) {
            random = new Random(seed);
            this.failing = failing;
        }

        @Override
        public void write(int partition, byte[] data, int offset, int length, int records, boolean last) throws IOException {
            calls++;
            if (calls == failing) {
                switch (failing % 4) {
                    case 0 -> throw new HoldfastException(Status.NO_ROOM, "no room");
                    case 1 -> throw new NoDirectMemoryException(1, 2, 3, "full");
                    case 2 -> throw new IllegalStateException("a mistake");
                    default -> throw new IOException("the network");
                }
            }
            sent += records;
            sentBytes += length;
        }

        Run go() throws IOException {
            for (int step = 0; step < STEPS; step++) {
                boolean failed = buffers.failure() != null;
                boolean took = false;
                try {
                    took = step();
                } catch (IOException | RuntimeException error) {
                    swallowed(error);
                }
                check(!failed || !took, "a row was taken after a failure");
            }
            end();
            if (buffers.failure() != null) {
                end();
            }
            operator.give();
            buffers.close();
            buffers.close();
            check(buffers.getUsed() == 0, "memory used after the end: " + buffers.getUsed());
            check(memory.cleanUpAllAllocatedMemory() == 0, "memory not given back");
            return this;
        }

        private void end() {
            try {
                buffers.finish();
                check(buffers.failure() == null, "an end without a word of the failure");
            } catch (IOException | RuntimeException error) {
                swallowed(error);
            }
        }

        private void swallowed(Exception error) {
            errors++;
            check(buffers.failure() != null, "an error that is not remembered: " + error);
        }

        /** Does something; returns whether a record was taken. */
        private boolean step() throws IOException {
            int partition = random.nextInt(PARTITIONS);
            int size = random.nextInt(500) == 0 ? 2 * LIMIT : 8 + random.nextInt(600);
            switch (random.nextInt(40)) {
                case 0 -> {
                    operator.want(1 << 20);
                    return false;
                }
                case 1 -> {
                    operator.give();
                    return false;
                }
                case 2, 3, 4, 5, 6, 7, 8, 9 -> buffers.putBytes(partition, bytes, 0, size);
                case 10, 11, 12, 13, 14, 15 -> putInPieces(partition, size);
                default -> {
                    buffers.putRow(partition, bytes, Platform.BYTE_ARRAY_OFFSET, size);
                    size += PartitionBuffers.PREFIX_BYTES;
                }
            }
            put++;
            putBytes += size;
            if (buffers.used(partition) >= buffers.limit()) {
                buffers.send(partition, false);
            }
            return true;
        }

        private void putInPieces(int partition, int size) throws IOException {
            buffers.pin(partition);
            try {
                buffers.hold(100);
                buffers.putStream(partition, bytes, 0, size / 2);
                buffers.putStream(partition, bytes, 0, size - size / 2);
                buffers.endRecord(partition);
                buffers.letGo(100);
            } finally {
                buffers.unpin();
            }
        }

        @Override
        public String toString() {
            return put + " records of " + putBytes + " bytes were taken, " + sent + " of " + sentBytes + " sent in " + calls + " calls, " + errors
                    + " errors";
        }
    }

    /** Wants memory as a hash map of Spark does. */
    private static final class Operator extends MemoryConsumer {
        private long got;
        private boolean fails;

        Operator(TaskMemoryManager memory) {
            super(memory, memory.pageSizeBytes(), MemoryMode.ON_HEAP);
        }

        @Override
        public long spill(long size, MemoryConsumer trigger) throws IOException {
            if (fails) {
                throw new IOException("the disk of an operator is full");
            }
            return 0;
        }

        /** Whatever fails must not look like a refusal of memory. */
        void want(long bytes) {
            try {
                got += acquireMemory(bytes);
            } catch (SparkOutOfMemoryError swallowed) {
                throw new AssertionError("hash maps and sorters swallow this: " + swallowed, swallowed);
            }
        }

        void give() {
            freeMemory(got);
            got = 0;
        }
    }

    /** A row that finds no memory, since another operator cannot spill, was not taken: there is no end that does not say so. */
    private static void othersFail() throws IOException {
        TaskMemoryManager memory = memory(2L << 20);
        Operator operator = new Operator(memory);
        operator.want(3L << 19);
        operator.fails = true;
        PartitionBuffers buffers = new PartitionBuffers(
                memory, PARTITIONS, LIMIT, ByteArrays.SHARED, (partition, data, offset, length, records, last) -> { });
        byte[] row = new byte[1000];
        int failed = 0;
        for (int each = 0; each < 2_000; each++) {
            try {
                buffers.putRow(each % PARTITIONS, row, Platform.BYTE_ARRAY_OFFSET, row.length);
            } catch (SparkOutOfMemoryError | IOException swallowed) {
                failed++;
            }
        }
        check(failed > 0 && buffers.failure() != null, "failures: " + failed);
        try {
            buffers.finish();
            check(false, "an end without a word of the row that was not taken");
        } catch (HoldfastException error) {
            check(error.getMessage().contains("could not be sent"), error.getMessage());
        }
        buffers.close();
        operator.give();
    }

    /** What was counted where it came from is missed where it was sent. */
    private static void lostBeforeTheyWereSent() throws IOException {
        SentRecords sent = new SentRecords((partition, data, offset, length, records, last) -> { });
        PartitionBuffers buffers = new PartitionBuffers(memory(HEAP), 1, LIMIT, ByteArrays.SHARED, sent);
        RecordWriter writer = new RowWriter(buffers, single(), new RowSerializers.Known(1, null), null);
        UnsafeRow row = new UnsafeRow(1);
        row.pointTo(new byte[16], 16);
        Iterator<Product2<Integer, UnsafeRow>> rows = new AbstractIterator<>() {
            private int given;

            @Override
            public boolean hasNext() {
                return given < 3;
            }

            @Override
            public Product2<Integer, UnsafeRow> next() {
                given++;
                return new Tuple2<>(0, row);
            }
        };
        writer.write(rows);
        buffers.close();
        try {
            sent.check(writer, "map 1");
            check(false, "rows that were never sent are not missed");
        } catch (HoldfastException error) {
            check(error.getMessage().equals("map 1: Spark handed over 3 records of 60 bytes, and 0 records of 0 bytes were sent"),
                    error.getMessage());
        }
    }

    private static Partitioner single() {
        return new Partitioner() {
            @Override
            public int numPartitions() {
                return 1;
            }

            @Override
            public int getPartition(Object key) {
                return 0;
            }
        };
    }

    private static TaskMemoryManager memory(long bytes) {
        SparkConf conf = new SparkConf(false).set("spark.memory.fraction", "1").set("spark.testing.reservedMemory", "0")
                .set("spark.testing.memory", Long.toString(bytes));
        return new TaskMemoryManager(UnifiedMemoryManager.apply(conf, 1), 0);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
