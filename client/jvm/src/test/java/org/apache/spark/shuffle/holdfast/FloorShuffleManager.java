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
    /** By shuffle and map attempt, what it wrote for each partition; null where it wrote nothing. */
    private final Map<Integer, Map<Long, Rows[]>> shuffles = new ConcurrentHashMap<>();

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
            List<Rows> found = new ArrayList<>();
            while (places.hasNext()) {
                for (var blocks = places.next()._2().iterator(); blocks.hasNext(); ) {
                    ShuffleBlockId block = (ShuffleBlockId) blocks.next()._1();
                    found.add(shuffles.get(shuffle).get(block.mapId())[block.reduceId()]);
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

    /** What one map wrote for one partition: each row behind its length. */
    private static final class Rows {
        private static final int FIRST_BYTES = 4096;
        private static final int PREFIX_BYTES = 8;

        private byte[] bytes = new byte[FIRST_BYTES];
        private int used;

        void add(UnsafeRow row) {
            int size = row.getSizeInBytes();
            int end = Math.addExact(used, PREFIX_BYTES + size);
            if (end > bytes.length) {
                bytes = Arrays.copyOf(bytes, Math.max(end, 2 * bytes.length));
            }
            Platform.putInt(bytes, Platform.BYTE_ARRAY_OFFSET + (long) used, size);
            Platform.copyMemory(
                    row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET + (long) used + PREFIX_BYTES, size);
            used = end;
        }

        /** Points at the row there; returns where the next one is. */
        int show(int at, UnsafeRow row) {
            int size = Platform.getInt(bytes, Platform.BYTE_ARRAY_OFFSET + (long) at);
            row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + (long) at + PREFIX_BYTES, size);
            return at + PREFIX_BYTES + size;
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
            for (int partition = 0; partition < rows.length; partition++) {
                lengths[partition] = rows[partition] == null ? 0 : rows[partition].used;
            }
            shuffles.computeIfAbsent(dependency.shuffleId(), shuffle -> new ConcurrentHashMap<>()).put(mapId, rows);
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

        private final List<Rows> all;
        private final UnsafeRow row;
        private final Product2<K, C> pair;
        private final ShuffleReadMetricsReporter metrics;
        private int next;
        private int at;

        @SuppressWarnings("unchecked")
        Reading(List<Rows> all, int fields, ShuffleReadMetricsReporter metrics) {
            this.all = all;
            this.metrics = metrics;
            row = new UnsafeRow(fields);
            pair = (Product2<K, C>) new Tuple2<Object, Object>(NO_KEY, row);
        }

        @Override
        public boolean hasNext() {
            while (next < all.size() && at == all.get(next).used) {
                next++;
                at = 0;
            }
            return next < all.size();
        }

        @Override
        public Product2<K, C> next() {
            if (!hasNext()) {
                throw new NoSuchElementException("the rows are at their end");
            }
            at = all.get(next).show(at, row);
            metrics.incRecordsRead(1);
            return pair;
        }
    }
}
