package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.Aggregator;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.fetch.FetchReader;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Function1;
import scala.Function2;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.Iterator$;

/**
 * What a reduce task reads: the partitions [startPartition, endPartition) of the maps [startMap, endMap).
 *
 * <p>Rules: the maps to insist on, and the generation to ask for, are those of Spark's statuses; no status with data, no call to anybody.
 * Aggregation and order are Spark's own classes, in the order in which BlockStoreShuffleReader uses them. Called by Spark, one thread.
 */
final class HoldfastShuffleReader<K, C> implements ShuffleReader<K, C> {
    private final HoldfastRuntime runtime;
    private final HoldfastShuffleHandle<K, ?, C> handle;
    private final int startMap;
    private final int endMap;
    private final int startPartition;
    private final int endPartition;
    private final TaskContext context;
    private final ReadMetrics metrics;

    HoldfastShuffleReader(
            HoldfastRuntime runtime,
            HoldfastShuffleHandle<K, ?, C> handle,
            int startMap,
            int endMap,
            int startPartition,
            int endPartition,
            TaskContext context,
            ShuffleReadMetricsReporter reporter) {
        this.runtime = runtime;
        this.handle = handle;
        this.startMap = startMap;
        this.endMap = endMap;
        this.startPartition = startPartition;
        this.endPartition = endPartition;
        this.context = context;
        metrics = new ReadMetrics(reporter, context);
    }

    @Override
    public Iterator<Product2<K, C>> read() {
        Iterator<Product2<Object, Object>> records = records();
        ShuffleDependency<K, ?, C> dependency = handle.dependency();
        Iterator<Product2<K, C>> result = dependency.keyOrdering().isDefined()
                ? sorted(dependency, records)
                : dependency.aggregator().isDefined() ? aggregated(dependency, records) : cast(records);
        // Rows and plain records look for a kill with every batch; what was sorted or aggregated is no longer read from batches.
        return result == (Object) records ? result : new InterruptibleIterator<>(context, result);
    }

    private Iterator<Product2<Object, Object>> records() {
        MapBlocks blocks = MapBlocks.of(
                handle.shuffleId(),
                SparkEnv.get()
                        .mapOutputTracker()
                        .getMapSizesByExecutorId(handle.shuffleId(), startMap, endMap, startPartition, endPartition));
        if (blocks.count() == 0) {
            metrics.finish();
            return cast(Iterator$.MODULE$.empty());
        }
        FetchFailures failures = new FetchFailures(
                context,
                handle.shuffleId(),
                blocks,
                (generation, reason) -> runtime.generations().failed(handle, generation, reason));
        if (blocks.mixed() || blocks.named() == null) {
            settle(blocks);
            throw failures.raiseMixed();
        }
        try {
            return records(blocks, failures);
        } catch (IOException error) {
            throw failures.raise(error);
        }
    }

    /**
     * Of two generations with one number, as a restore of the masters between the maps of a stage leaves them, the one to go is that
     * which is unknown to the masters.
     */
    private void settle(MapBlocks blocks) {
        if (blocks.named() == null || blocks.rival() == null) {
            return;
        }
        try {
            runtime.masters().getManifest(handle.key(blocks.rival()), 0, false);
        } catch (HoldfastException error) {
            if (FetchFailures.unheard(error.status())) {
                blocks.blameRival();
            }
        }
    }

    private Iterator<Product2<Object, Object>> records(MapBlocks blocks, FetchFailures failures) throws IOException {
        long from = System.nanoTime();
        ShuffleKey key = handle.key(blocks.named());
        Manifest manifest = runtime.manifest(handle, key);
        FetchReader fetch = runtime.fetchReader(
                manifest, startPartition, endPartition, startMap, endMap, blocks.expected(manifest.winners()), metrics);
        metrics.waited(System.nanoTime() - from);
        metrics.blocks(blocks.count());
        IoEncryption encryption = IoEncryption.of(SparkEnv.get(), handle.encrypted());
        DecodedBatches batches = new DecodedBatches(fetch, encryption, metrics, ByteArrays.SHARED);
        Serializer serializer = handle.dependency().serializer();
        RowSerializers.Known rows = RowSerializers.of(serializer);
        BatchIterator iterator = rows != null
                ? new RowIterator(batches, rows.fields(), metrics, failures, context)
                : new StreamIterator(batches, serializer.newInstance(), metrics, failures, context);
        context.addTaskCompletionListener(iterator);
        return iterator;
    }

    @SuppressWarnings("unchecked")
    private Iterator<Product2<K, C>> aggregated(ShuffleDependency<K, ?, C> dependency, Iterator<Product2<Object, Object>> records) {
        Aggregator<K, Object, C> aggregator = (Aggregator<K, Object, C>) dependency.aggregator().get();
        return dependency.mapSideCombine()
                ? cast(aggregator.combineCombinersByKey(cast(records), context))
                : cast(aggregator.combineValuesByKey(cast(records), context));
    }

    @SuppressWarnings("unchecked")
    private Iterator<Product2<K, C>> sorted(ShuffleDependency<K, ?, C> dependency, Iterator<Product2<Object, Object>> records) {
        Option<Aggregator<K, Object, C>> aggregator = (Option<Aggregator<K, Object, C>>) (Option<?>) dependency.aggregator();
        if (aggregator.isDefined() && dependency.mapSideCombine()) {
            // What comes is combined already: combiners are merged.
            Function2<C, C, C> merge = aggregator.get().mergeCombiners();
            Function1<C, C> same = combined -> combined;
            aggregator = (Option<Aggregator<K, Object, C>>) (Option<?>) Option.apply(new Aggregator<K, C, C>(same, merge, merge));
        }
        ExternalSorter<K, Object, C> sorter =
                Shims.sorter(context, aggregator, dependency.keyOrdering(), dependency.serializer());
        return cast(sorter.insertAllAndUpdateMetrics(cast(records)));
    }

    @SuppressWarnings("unchecked")
    private static <A, B> Iterator<Product2<A, B>> cast(Iterator<?> iterator) {
        return (Iterator<Product2<A, B>>) iterator;
    }
}
