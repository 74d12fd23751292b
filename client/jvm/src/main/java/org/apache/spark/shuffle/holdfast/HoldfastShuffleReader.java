package org.apache.spark.shuffle.holdfast;

import org.apache.spark.Aggregator;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Function1;
import scala.Function2;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.Iterator$;

/**
 * The records of what a reduce task reads, out of its {@link TaskBlocks}.
 *
 * <p>Rules: aggregation and order are Spark's own classes, in the order in which BlockStoreShuffleReader uses them. Called by Spark, one thread.
 */
final class HoldfastShuffleReader<K, C> implements ShuffleReader<K, C> {
    private final HoldfastRuntime runtime;
    private final HoldfastShuffleHandle<K, ?, C> handle;
    private final ReadRange range;
    private final TaskContext context;
    private final ReadMetrics metrics;

    HoldfastShuffleReader(
            HoldfastRuntime runtime,
            HoldfastShuffleHandle<K, ?, C> handle,
            ReadRange range,
            TaskContext context,
            ShuffleReadMetricsReporter reporter) {
        this.runtime = runtime;
        this.handle = handle;
        this.range = range;
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
        TaskBlocks blocks = TaskBlocks.open(runtime, handle, range, context, metrics, BlockCodec.HOLDFAST);
        if (blocks.drained()) {
            return cast(Iterator$.MODULE$.empty());
        }
        Serializer serializer = handle.dependency().serializer();
        RowSerializers.Known rows = RowSerializers.of(serializer);
        BatchIterator iterator =
                rows != null ? new RowIterator(blocks, rows.fields()) : new StreamIterator(blocks, serializer.newInstance());
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
