package org.apache.spark.shuffle.holdfast.jobs;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.HashPartitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.HoldfastShuffleHandle;
import org.apache.spark.shuffle.holdfast.HoldfastShuffleManager;
import org.apache.spark.shuffle.holdfast.MapAttempt;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.client.BlockReader;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * What a columnar engine does to Holdfast's manager: its shuffles, known by the format of their dependency, are batches of Arrow that its own writer
 * and reader pass on as blocks, with no record of Spark in between. It refuses all other shuffles. Its {@link #job} is the same over Spark's own
 * shuffle, which serialises the batches.
 */
public final class ArrowShuffleManager extends HoldfastShuffleManager {
    private static final int MAPS = 4;
    private static final int BATCHES = 5;
    private static final int ROWS = 1_000;
    private static final int PARTITIONS = 3;

    /** Called by Spark. */
    public ArrowShuffleManager(SparkConf conf, boolean isDriver) {
        super(conf, isDriver);
    }

    /** Marks the dependencies of the engine: the keys of their records are partitions, the values Arrow streams of one batch. */
    public static final class ArrowFormat extends JavaSerializer {
        private static final long serialVersionUID = 1L;

        /** For deserialization. */
        public ArrowFormat() {
            this(new SparkConf(false));
        }

        ArrowFormat(SparkConf conf) {
            super(conf);
        }
    }

    @SuppressWarnings("unchecked")
    private static <K, V, C> HoldfastShuffleHandle<K, V, C> arrow(ShuffleHandle handle) {
        if (handle instanceof HoldfastShuffleHandle<?, ?, ?> ours && ours.dependency().serializer() instanceof ArrowFormat) {
            return (HoldfastShuffleHandle<K, V, C>) ours;
        }
        throw new IllegalStateException("this engine has no such shuffle: " + handle);
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        return new Writer<>(mapAttempt(arrow(handle), context, metrics, BlockCodec.ENGINE));
    }

    @Override
    public <K, C> ShuffleReader<K, C> getReader(
            ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        HoldfastShuffleHandle<K, ?, C> ours = arrow(handle);
        return () -> new Batches<>(
                blocks(ours, startMap, endMap, startPartition, endPartition, context, metrics, BlockCodec.ENGINE), metrics);
    }

    private static final class Writer<K, V> extends ShuffleWriter<K, V> {
        private final MapAttempt attempt;

        Writer(MapAttempt attempt) {
            this.attempt = attempt;
        }

        @Override
        public void write(scala.collection.Iterator<Product2<K, V>> records) throws IOException {
            attempt.write(blocks -> {
                while (records.hasNext()) {
                    Product2<K, V> record = records.next();
                    byte[] stream = (byte[]) record._2();
                    // As native engines have it: outside the heap.
                    ByteBuffer block = ByteBuffer.allocateDirect(stream.length).put(stream).flip();
                    blocks.write((Integer) record._1(), block, 1);
                }
            });
        }

        @Override
        public Option<MapStatus> stop(boolean success) {
            return attempt.stop(success);
        }

        @Override
        public long[] getPartitionLengths() {
            return attempt.partitionLengths();
        }
    }

    /** Pairs of a partition and a batch. */
    private static final class Batches<K, C> extends AbstractIterator<Product2<K, C>> {
        private final BlockReader blocks;
        private final ShuffleReadMetricsReporter metrics;
        /** Whether the present block was not given yet; null: not known. */
        private Boolean more;

        Batches(BlockReader blocks, ShuffleReadMetricsReporter metrics) {
            this.blocks = blocks;
            this.metrics = metrics;
        }

        @Override
        public boolean hasNext() {
            if (more == null) {
                try {
                    more = blocks.next();
                } catch (HoldfastException undeclared) {
                    throw new IllegalStateException(undeclared);
                }
            }
            return more;
        }

        @Override
        @SuppressWarnings("unchecked")
        public Product2<K, C> next() {
            if (!hasNext()) {
                throw new java.util.NoSuchElementException();
            }
            more = null;
            byte[] stream = new byte[blocks.block().remaining()];
            blocks.block().get(stream);
            metrics.incRecordsRead(1);
            return (Product2<K, C>) new Tuple2<>(blocks.partition(), stream);
        }
    }

    /** Shuffles batches of 4 maps to 3 partitions by their rows' numbers; all rows, in order. */
    public static String job(JavaSparkContext context) {
        JavaPairRDD<Object, Object> batches = context.parallelize(Collections.nCopies(MAPS, 0), MAPS)
                .mapPartitionsWithIndex((map, none) -> split(map), true).mapToPair(pair -> pair);
        ClassTag<Object> any = ClassTag$.MODULE$.Any();
        ShuffledRDD<Object, Object, Object> shuffled =
                new ShuffledRDD<Object, Object, Object>(batches.rdd(), new HashPartitioner(PARTITIONS), any, any, any)
                        .setSerializer(new ArrowFormat(context.getConf()));
        return new JavaPairRDD<>(shuffled, any, any)
                .mapPartitionsWithIndex(ArrowShuffleManager::rows, true).collect().stream().sorted().toList().toString();
    }

    private static Iterator<Tuple2<Object, Object>> split(int map) throws IOException {
        List<Tuple2<Object, Object>> made = new ArrayList<>();
        for (int batch = 0; batch < BATCHES; batch++) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                made.add(new Tuple2<>(partition, stream(map * 1_000L + batch, partition)));
            }
        }
        return made.iterator();
    }

    /** The rows of a batch that belong to a partition. */
    private static byte[] stream(long batch, int partition) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (RootAllocator allocator = new RootAllocator();
                BigIntVector ids = new BigIntVector("id", allocator);
                VarCharVector names = new VarCharVector("name", allocator);
                VectorSchemaRoot root = VectorSchemaRoot.of(ids, names);
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(bytes))) {
            int count = 0;
            for (long id = batch * ROWS; id < (batch + 1) * ROWS; id++) {
                if (id % PARTITIONS == partition) {
                    ids.setSafe(count, id);
                    names.setSafe(count++, ("row " + id).getBytes(StandardCharsets.UTF_8));
                }
            }
            root.setRowCount(count);
            writer.writeBatch();
            writer.end();
        }
        return bytes.toByteArray();
    }

    /** The rows of all batches that came to this partition, each with where it should be. */
    private static Iterator<String> rows(int partition, Iterator<Tuple2<Object, Object>> batches) throws IOException {
        List<String> found = new ArrayList<>();
        while (batches.hasNext()) {
            Tuple2<Object, Object> pair = batches.next();
            try (RootAllocator allocator = new RootAllocator();
                    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream((byte[]) pair._2()), allocator)) {
                VectorSchemaRoot root = reader.getVectorSchemaRoot();
                while (reader.loadNextBatch()) {
                    BigIntVector ids = (BigIntVector) root.getVector("id");
                    VarCharVector names = (VarCharVector) root.getVector("name");
                    for (int row = 0; row < root.getRowCount(); row++) {
                        found.add(partition + "/" + pair._1() + "/" + ids.get(row) + "/" + new String(names.get(row), StandardCharsets.UTF_8));
                    }
                }
            }
        }
        return found.iterator();
    }
}
