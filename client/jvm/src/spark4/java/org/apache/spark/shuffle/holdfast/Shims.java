package org.apache.spark.shuffle.holdfast;

import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.checksum.RowBasedChecksum;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.math.Ordering;

/**
 * What differs between Spark's lines, for 4.1 and later. Its sibling of the same name serves 3.5 and 4.0.
 *
 * <p>Rules: nothing is decided here; a method is one call of Spark in the shape its version wants. Called by the writers and the reader.
 */
final class Shims {
    private static final RowBasedChecksum[] NO_CHECKSUMS = {};

    private Shims() {}

    /** The status of a finished map; {@code checksum} is what {@link RowChecksums#value()} says, 0 where there are none. */
    static MapStatus mapStatus(BlockManagerId location, long[] sizes, long mapId, long checksum) {
        return MapStatus$.MODULE$.apply(location, sizes, mapId, checksum);
    }

    /** A sorter of one partition, as Spark's own reader builds it. */
    static <K, V, C> ExternalSorter<K, V, C> sorter(
            TaskContext context, Option<Aggregator<K, V, C>> aggregator, Option<Ordering<K>> ordering, Serializer serializer) {
        return new ExternalSorter<>(context, aggregator, Option.empty(), ordering, serializer, NO_CHECKSUMS);
    }

    /** The checksums that the dependency wants of its rows, or null where it wants none. */
    static RowChecksums rowChecksums(ShuffleDependency<?, ?, ?> dependency) {
        RowBasedChecksum[] wanted = dependency.rowBasedChecksums();
        if (wanted == null || wanted.length == 0) {
            return null;
        }
        return new RowChecksums() {
            @Override
            public void add(int partition, Object key, Object value) {
                wanted[partition].update(key, value);
            }

            @Override
            public long value() {
                return RowBasedChecksum.getAggregatedChecksumValue(wanted);
            }
        };
    }
}
