package org.apache.spark.shuffle.holdfast;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.HashPartitioner;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.KryoSerializer;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The record writers over buffers with more or less memory, without a cluster: what goes in comes out of the sink, in batches that can be read alone,
 * and all memory is given back. Prints a line for each case; run by tests/jvm/test_buffers.py.
 */
public final class BuffersMain {
    private static final int RECORDS = 20_000;

    private BuffersMain() {}

    /** Runs all cases, or with an argument those of the shares; an error ends it. */
    public static void main(String[] arguments) throws IOException {
        if (arguments.length > 0) {
            sharesOfTasks();
            return;
        }
        SparkConf conf = new SparkConf(false);
        for (long heap : new long[] {64L << 20, 3L << 20, 0}) {
            for (int partitions : new int[] {1, 7, 500, 20_000}) {
                rows(heap, partitions);
                records(heap, partitions, new KryoSerializer(conf));
                if (partitions <= 500) {
                    records(heap, partitions, new JavaSerializer(conf));
                }
            }
        }
        othersWantMemory();
        sharesOfTasks();
    }

    /** Collects batches. */
    private static final class Collected implements BatchSink {
        final Map<Integer, List<byte[]>> batches = new HashMap<>();
        final Map<Integer, Boolean> ended = new HashMap<>();
        int count;

        @Override
        public void write(int partition, byte[] data, int offset, int length, int records, boolean last) {
            check(length > 0, "an empty batch");
            check(records > 0, "a batch without records");
            check(ended.get(partition) == null, "a batch behind the last one");
            batches.computeIfAbsent(partition, any -> new ArrayList<>()).add(Arrays.copyOfRange(data, offset, offset + length));
            if (last) {
                ended.put(partition, true);
            }
            count++;
        }
    }

    private static TaskMemoryManager memory(long bytes) {
        SparkConf conf = new SparkConf(false).set("spark.memory.fraction", "1").set("spark.testing.reservedMemory", "0")
                .set("spark.testing.memory", Long.toString(Math.max(bytes, 1)));
        return new TaskMemoryManager(UnifiedMemoryManager.apply(conf, 1), 0);
    }

    private static void rows(long heap, int partitions) throws IOException {
        TaskMemoryManager memory = memory(heap);
        Collected sink = new Collected();
        Random random = new Random(partitions);
        Map<Integer, Long> sums = new HashMap<>();
        UnsafeRow row = new UnsafeRow(1);
        byte[] bytes = new byte[1 << 20];
        random.nextBytes(bytes);
        Iterator<Product2<Integer, UnsafeRow>> records = new AbstractIterator<>() {
            private int given;

            @Override
            public boolean hasNext() {
                return given < RECORDS;
            }

            @Override
            public Product2<Integer, UnsafeRow> next() {
                int partition = random.nextInt(partitions);
                int size = given++ % 5000 == 99 ? 800_000 : 16 + 8 * random.nextInt(20);
                long value = random.nextLong();
                Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET + 8L, value);
                row.pointTo(bytes, size);
                sums.merge(partition, value * size, Long::sum);
                return new Tuple2<>(partition, row);
            }
        };
        SentRecords sent = new SentRecords(sink);
        PartitionBuffers buffers = new PartitionBuffers(memory, partitions, 64 << 10, ByteArrays.SHARED, sent);
        RecordWriter writer = new RowWriter(buffers, byKey(partitions), new RowSerializers.Known(1, null), null);
        writer.write(records);
        buffers.finish();
        check(writer.records() == RECORDS, "rows counted: " + writer.records());
        sent.check(writer, "rows");
        Map<Integer, Long> found = new HashMap<>();
        sink.batches.forEach((partition, batches) -> {
            for (byte[] batch : batches) {
                int at = 0;
                while (at < batch.length) {
                    int size = PartitionBuffers.rowLength(batch, at);
                    long value = Platform.getLong(batch, Platform.BYTE_ARRAY_OFFSET + (long) at + PartitionBuffers.PREFIX_BYTES + 8);
                    found.merge(partition, value * size, Long::sum);
                    at += PartitionBuffers.PREFIX_BYTES + size;
                }
                check(at == batch.length, "a batch ends within a row");
            }
        });
        check(found.equals(sums), "rows differ");
        done("rows", heap, partitions, sink, buffers, memory);
    }

    private static void records(long heap, int partitions, Serializer serializer) throws IOException {
        TaskMemoryManager memory = memory(heap);
        Collected sink = new Collected();
        SentRecords sent = new SentRecords(sink);
        PartitionBuffers buffers = new PartitionBuffers(memory, partitions, 64 << 10, ByteArrays.SHARED, sent);
        Map<Integer, Long> sums = new HashMap<>();
        Partitioner partitioner = new HashPartitioner(partitions);
        Iterator<Product2<Object, Object>> records = new AbstractIterator<>() {
            private final Random random = new Random(partitions);
            private int given;

            @Override
            public boolean hasNext() {
                return given < RECORDS;
            }

            @Override
            public Product2<Object, Object> next() {
                String key = "key " + random.nextInt(3000);
                byte[] value = new byte[given++ == 77 ? 20 << 20 : random.nextInt(60)];
                random.nextBytes(value);
                sums.merge(partitioner.getPartition(key), (long) Arrays.hashCode(value) * key.hashCode(), Long::sum);
                return new Tuple2<>(key, value);
            }
        };
        RecordWriter writer = serializer.supportsRelocationOfSerializedObjects()
                ? new SharedStreamWriter(buffers, partitioner, serializer, null)
                : new OwnStreamsWriter(buffers, partitioner, serializer, null);
        writer.write(records);
        buffers.finish();
        check(writer.records() == RECORDS, "records counted: " + writer.records());
        sent.check(writer, "records");
        Map<Integer, Long> found = new HashMap<>();
        sink.batches.forEach((partition, batches) -> {
            for (byte[] batch : batches) {
                Iterator<Tuple2<Object, Object>> each =
                        serializer.newInstance().deserializeStream(new ByteArrayInputStream(batch)).asKeyValueIterator();
                while (each.hasNext()) {
                    Tuple2<Object, Object> record = each.next();
                    found.merge(partition, (long) Arrays.hashCode((byte[]) record._2()) * record._1().hashCode(), Long::sum);
                }
            }
        });
        check(found.equals(sums), "records differ");
        done(serializer.getClass().getSimpleName(), heap, partitions, sink, buffers, memory);
    }

    /** A consumer of the same task that needs memory gets it; the buffers are pushed. */
    private static void othersWantMemory() throws IOException {
        TaskMemoryManager memory = memory(20L << 20);
        Collected sink = new Collected();
        PartitionBuffers buffers = new PartitionBuffers(memory, 200, 64 << 10, ByteArrays.SHARED, sink);
        byte[] record = new byte[1000];
        for (int each = 0; each < 7_000; each++) {
            buffers.putBytes(each % 200, record, 0, record.length);
        }
        check(sink.count == 0, "sent with memory to spare");
        MemoryConsumer other = new MemoryConsumer(memory, MemoryMode.ON_HEAP) {
            @Override
            public long spill(long size, MemoryConsumer trigger) {
                return 0;
            }
        };
        long got = other.acquireMemory(15L << 20);
        check(got == 15L << 20, "the other consumer got " + got);
        check(sink.count > 0, "nothing was sent");
        other.freeMemory(got);
        buffers.finish();
        check(sink.batches.values().stream().mapToInt(each -> each.stream().mapToInt(one -> one.length).sum()).sum() == 7_000_000, "bytes");
        done("others", 20L << 20, 200, sink, buffers, memory);
    }

    /** How many tasks run at once, and what each may take of direct memory. */
    private static void sharesOfTasks() {
        int processors = 8;
        SparkConf plain = new SparkConf(false);
        Map<String, Integer> masters = Map.of("local", 1, "local[3]", 3, "local[3, 2]", 3, "local[*]", 8, "spark://one:7077", 8);
        masters.forEach((master, tasks) -> {
            SparkConf conf = plain.clone().set("spark.master", master);
            check(TaskShare.tasks(conf, processors) == tasks, master + ": " + TaskShare.tasks(conf, processors));
        });
        SparkConf cluster = plain.clone().set("spark.master", "spark://one:7077").set("spark.executor.cores", "6");
        check(TaskShare.tasks(cluster, processors) == 6, "cores of an executor");
        check(TaskShare.tasks(cluster.set("spark.task.cpus", "4"), processors) == 1, "cores of a task");
        check(TaskShare.tasks(cluster.set("spark.task.cpus", "7"), processors) == 1, "a task at least");
        for (int tasks : new int[] {1, 2, 64}) {
            TaskShare share = TaskShare.of(plain.clone().set("spark.master", "local[" + tasks + "]"), 0.4);
            long heap = Runtime.getRuntime().maxMemory();
            boolean least = share.bytes() < 3 * TaskShare.LEAST;
            check(least || tasks * (share.open() + share.held() + share.fetch()) <= heap / 2, tasks + " tasks take more than half");
            check(Math.min(share.open(), Math.min(share.held(), share.fetch())) >= TaskShare.LEAST, tasks + " tasks get too little to work");
        }
        sharesOfTheOverhead(plain);
        System.out.println("shares are as they should be");
    }

    /** All tasks of an executor, and what lies idle, stay within the share of what its container has beside the heap. */
    private static void sharesOfTheOverhead(SparkConf plain) {
        long gib = 1L << 30;
        for (int cores : new int[] {1, 4, 32}) {
            for (long memory : new long[] {gib, 4 * gib, 8 * gib, 64 * gib}) {
                SparkConf conf = plain.clone().set("spark.master", "k8s://https://one").set("spark.executor.cores", "" + cores)
                        .set("spark.executor.memory", memory / gib + "g");
                check(TaskShare.overhead(conf) == Math.max(384L << 20, memory / 10 >> 20 << 20), memory + ": " + TaskShare.overhead(conf));
                within(conf, memory, cores, TaskShare.overhead(conf), 0.4);
                within(conf.clone().set("spark.executor.memoryOverheadFactor", "0.25"), memory, cores, Math.max(384L << 20, memory / 4), 0.4);
                within(conf.clone().set("spark.executor.memoryOverhead", "2g"), memory, cores, 2 * gib, 0.7);
            }
        }
        SparkConf plenty = plain.clone().set("spark.master", "yarn").set("spark.executor.cores", "2").set("spark.executor.memoryOverhead", "2g");
        TaskShare usual = TaskShare.of(plenty, 0.4, 8 * gib, 2);
        check(usual.open() == 32L << 20 && usual.held() == 64L << 20 && usual.fetch() == 48L << 20, "the usual limits where there is room");
    }

    private static void within(SparkConf conf, long heap, int cores, long overhead, double part) {
        TaskShare share = TaskShare.of(conf, part, heap, cores);
        long all = cores * (share.open() + share.held() + share.fetch()) + share.idle();
        check(all <= overhead * part, cores + " cores on " + heap + " bytes take " + all + " of " + overhead);
        check(share.frame() <= share.open() && share.frame() <= share.held(), "a frame fits");
    }

    private static Partitioner byKey(int partitions) {
        return new Partitioner() {
            @Override
            public int numPartitions() {
                return partitions;
            }

            @Override
            public int getPartition(Object key) {
                return (Integer) key;
            }
        };
    }

    private static void done(
            String name, long heap, int partitions, Collected sink, PartitionBuffers buffers, TaskMemoryManager memory) {
        buffers.close();
        check(buffers.getUsed() == 0, "memory used after the end: " + buffers.getUsed());
        check(memory.cleanUpAllAllocatedMemory() == 0, "memory not given back");
        System.out.println(name + " memory=" + heap + " partitions=" + partitions + " batches=" + sink.count + " peak="
                + buffers.peakBytes());
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
