package org.apache.spark.shuffle.holdfast;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The least that a shuffle can cost: rows of SQL are copied into memory of this JVM, once, and read where they are.
 *
 * <p>Rules: nothing is compressed, checked, written, sent or bounded, so it says how much of a job's time no shuffle can save, and is of no other
 * use. It is for local mode; shuffles of other records are Spark's own. Used by benchmarks/sides.py.
 */
public final class FloorShuffleManager extends SortShuffleManager {
    /** By shuffle and map attempt, what it wrote for each partition. */
    private final Map<Integer, Map<Long, List<List<byte[]>>>> shuffles = new ConcurrentHashMap<>();

    public FloorShuffleManager(SparkConf conf) {
        super(conf);
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        ShuffleDependency<K, V, ?> dependency = dependency(handle);
        RowSerializers.Known known = RowSerializers.of(dependency.serializer());
        return known == null
                ? super.getWriter(handle, mapId, context, metrics)
                : new Writer<>(dependency, known, mapId, metrics);
    }

    @Override
    public <K, C> ShuffleReader<K, C> getReader(
            ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        RowSerializers.Known known = RowSerializers.of(dependency(handle).serializer());
        if (known == null) {
            return super.getReader(handle, startMap, endMap, startPartition, endPartition, context, metrics);
        }
        return () -> {
            int shuffle = handle.shuffleId();
            var places = SparkEnv.get().mapOutputTracker().getMapSizesByExecutorId(shuffle, startMap, endMap, startPartition, endPartition);
            List<byte[]> found = new ArrayList<>();
            while (places.hasNext()) {
                for (var blocks = places.next()._2().iterator(); blocks.hasNext(); ) {
                    ShuffleBlockId block = (ShuffleBlockId) blocks.next()._1();
                    found.addAll(shuffles.get(shuffle).get(block.mapId()).get(block.reduceId()));
                }
            }
            return new Reading<>(found, known.fields(), metrics);
        };
    }

    @Override
    public boolean unregisterShuffle(int shuffle) {
        shuffles.remove(shuffle);
        return super.unregisterShuffle(shuffle);
    }

    @SuppressWarnings("unchecked")
    private static <K, V> ShuffleDependency<K, V, ?> dependency(ShuffleHandle handle) {
        return ((BaseShuffleHandle<K, V, ?>) handle).dependency();
    }

    /** What one map wrote for one partition: each row behind its length and one, in arrays that grow up to a bound and end at a zero. */
    private static final class Rows {
        private static final int FIRST_BYTES = 4 << 10;
        private static final int MOST_BYTES = 1 << 20;
        private static final int PREFIX_BYTES = 8;

        final List<byte[]> arrays = new ArrayList<>();
        long total;
        private byte[] bytes = {};
        private int used;

        void add(UnsafeRow row) {
            int size = PREFIX_BYTES + row.getSizeInBytes();
            if (size > bytes.length - used) {
                bytes = new byte[Math.max(size, Math.min(Math.max(FIRST_BYTES, 2 * bytes.length), MOST_BYTES))];
                arrays.add(bytes);
                used = 0;
            }
            Platform.putInt(bytes, Platform.BYTE_ARRAY_OFFSET + (long) used, row.getSizeInBytes() + 1);
            row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + (long) used + PREFIX_BYTES);
            used += size;
            total += size;
        }
    }

    private final class Writer<K, V> extends ShuffleWriter<K, V> {
        private final ShuffleDependency<K, V, ?> dependency;
        private final RowSerializers.Known known;
        private final long mapId;
        private final ShuffleWriteMetricsReporter metrics;
        private final long[] lengths;

        Writer(ShuffleDependency<K, V, ?> dependency, RowSerializers.Known known, long mapId, ShuffleWriteMetricsReporter metrics) {
            this.dependency = dependency;
            this.known = known;
            this.mapId = mapId;
            this.metrics = metrics;
            lengths = new long[dependency.partitioner().numPartitions()];
        }

        @Override
        public void write(Iterator<Product2<K, V>> records) {
            Rows[] rows = new Rows[lengths.length];
            long count = 0;
            long size = 0;
            while (records.hasNext()) {
                Product2<K, V> record = records.next();
                int partition = dependency.partitioner().getPartition(record._1());
                UnsafeRow row = (UnsafeRow) record._2();
                if (rows[partition] == null) {
                    rows[partition] = new Rows();
                }
                rows[partition].add(row);
                count++;
                size += row.getSizeInBytes();
            }
            List<List<byte[]>> written = new ArrayList<>(rows.length);
            for (int partition = 0; partition < rows.length; partition++) {
                lengths[partition] = rows[partition] == null ? 0 : rows[partition].total;
                written.add(rows[partition] == null ? List.of() : rows[partition].arrays);
            }
            shuffles.computeIfAbsent(dependency.shuffleId(), shuffle -> new ConcurrentHashMap<>()).put(mapId, written);
            if (known.dataSize() != null) {
                known.dataSize().add(size);
            }
            metrics.incRecordsWritten(count);
            metrics.incBytesWritten(Arrays.stream(lengths).sum());
        }

        @Override
        public Option<MapStatus> stop(boolean success) {
            return success
                    ? Option.apply(Shims.mapStatus(SparkEnv.get().blockManager().shuffleServerId(), lengths, mapId, 0))
                    : Option.empty();
        }

        @Override
        public long[] getPartitionLengths() {
            return lengths;
        }
    }

    /** One UnsafeRow that is pointed at one row after the other, as Spark's own reader gives them. */
    private static final class Reading<K, C> extends AbstractIterator<Product2<K, C>> {
        private static final Integer NO_KEY = 0;

        private final List<byte[]> all;
        private final UnsafeRow row;
        private final Product2<K, C> pair;
        private final ShuffleReadMetricsReporter metrics;
        private int next;
        private int at;

        @SuppressWarnings("unchecked")
        Reading(List<byte[]> all, int fields, ShuffleReadMetricsReporter metrics) {
            this.all = all;
            this.metrics = metrics;
            row = new UnsafeRow(fields);
            pair = (Product2<K, C>) new Tuple2<Object, Object>(NO_KEY, row);
        }

        @Override
        public boolean hasNext() {
            while (next < all.size() && prefix() == 0) {
                next++;
                at = 0;
            }
            return next < all.size();
        }

        /** Of the present row and one; 0 at the end of an array. */
        private int prefix() {
            byte[] rows = all.get(next);
            return at + Rows.PREFIX_BYTES > rows.length ? 0 : Platform.getInt(rows, Platform.BYTE_ARRAY_OFFSET + (long) at);
        }

        @Override
        public Product2<K, C> next() {
            if (!hasNext()) {
                throw new NoSuchElementException("the rows are at their end");
            }
            int size = prefix() - 1;
            row.pointTo(all.get(next), Platform.BYTE_ARRAY_OFFSET + (long) at + Rows.PREFIX_BYTES, size);
            at += Rows.PREFIX_BYTES + size;
            metrics.incRecordsRead(1);
            return pair;
        }
    }
}
