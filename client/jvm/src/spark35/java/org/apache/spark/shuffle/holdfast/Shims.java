package org.apache.spark.shuffle.holdfast;

import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.math.Ordering;

/**
 * What differs between Spark's lines, for 3.5 and 4.0, which know no checksums of rows. Its sibling of the same name serves 4.1 and later.
 *
 * <p>Rules: nothing is decided here; a method is one call of Spark in the shape its version wants. Called by the writers and the reader.
 */
final class Shims {
    private Shims() {}

    /** The status of a finished map; these lines have no place for a checksum. */
    static MapStatus mapStatus(BlockManagerId location, long[] sizes, long mapId, long checksum) {
        return MapStatus$.MODULE$.apply(location, sizes, mapId);
    }

    /** A sorter of one partition, as Spark's own reader builds it. */
    static <K, V, C> ExternalSorter<K, V, C> sorter(
            TaskContext context, Option<Aggregator<K, V, C>> aggregator, Option<Ordering<K>> ordering, Serializer serializer) {
        return new ExternalSorter<>(context, aggregator, Option.empty(), ordering, serializer);
    }

    /** None: these lines do not ask for checksums of rows. */
    static RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency) {
        return null;
    }
}
