package org.apache.spark.shuffle.holdfast;

import java.util.Collection;
import java.util.Objects;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.MapOutputTrackerWorker;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.holdfast.client.MapOutput;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import scala.Option;

/**
 * Which attempt of each map counts, as Spark's statuses or the outputs of attempts have it: what a commit has to say.
 *
 * <p>Rules: only a whole array of statuses is an answer, every map with a status and all of one generation; anything else is not the end of a stage.
 * Pure but for {@link #statuses} and {@link #known}, which ask this JVM's tracker alone. Called by the driver as a stage ends
 * or a shuffle is dropped, and by readers before that.
 */
final class Winners {
    /** Above so many bits the partitions of each map are left out: readers have them from Spark. */
    private static final long BITMAP_BITS_MAX = 4_000_000;

    private Winners() {}

    /** The statuses of all maps in this JVM now, or null. Maps without one are null. */
    static MapStatus[] statuses(int shuffle) {
        MapOutputTracker tracker = SparkEnv.get().mapOutputTracker();
        if (tracker instanceof MapOutputTrackerMaster master) {
            Option<ShuffleStatus> found = master.shuffleStatuses().get(shuffle);
            return found.isEmpty() ? null : found.get().withMapStatuses(MapStatus[]::clone);
        }
        Option<MapStatus[]> found = ((MapOutputTrackerWorker) tracker).mapStatuses().get(shuffle);
        return found.isEmpty() ? null : found.get();
    }

    /** Whether the driver has statuses of this shuffle, so that it may still be read. Cheap. */
    static boolean known(int shuffle) {
        return SparkEnv.get().mapOutputTracker() instanceof MapOutputTrackerMaster master && master.containsShuffle(shuffle);
    }

    /** The generation that every map has a status of; null while a map has none, or another one. */
    static SyntheticLocation.Named generation(MapStatus[] statuses, int shuffle) {
        SyntheticLocation.Named common = null;
        for (MapStatus each : statuses) {
            SyntheticLocation.Named named = each == null ? null : SyntheticLocation.named(each.location(), shuffle);
            if (named == null || (common != null && !common.equals(named))) {
                return null;
            }
            common = named;
        }
        return common;
    }

    /** The REDUCE_WINNERS array of a generation, or null if the statuses in this JVM do not make one. */
    static byte[] of(ShuffleKey key, int partitions) {
        MapStatus[] statuses = statuses(key.shuffle());
        SyntheticLocation.Named named = statuses == null ? null : generation(statuses, key.shuffle());
        boolean whole = named != null && named.generation() == key.generation() && named.state() == key.state();
        return whole ? array(statuses, partitions) : null;
    }

    /** The same of a whole array of statuses. */
    static byte[] array(MapStatus[] statuses, int partitions) {
        return array(statuses.length, partitions, map -> statuses[map].mapId(), (map, partition) -> statuses[map].getSizeForBlock(partition) > 0);
    }

    /** The same of one output of each map. IllegalArgumentException if it is not that. */
    static byte[] array(ShuffleShape shape, Collection<MapOutput> outputs) {
        MapOutput[] byMap = new MapOutput[shape.maps()];
        for (MapOutput each : outputs) {
            int map = Objects.checkIndex(each.map(), byMap.length);
            if (byMap[map] != null || each.partitionBytes().length != shape.partitions()) {
                throw new IllegalArgumentException("map " + map + ": one output of " + shape.partitions() + " partitions is wanted, not "
                        + (byMap[map] != null ? "two of them" : "one of " + each.partitionBytes().length));
            }
            byMap[map] = each;
        }
        if (outputs.size() < byMap.length) {
            throw new IllegalArgumentException(outputs.size() + " outputs of " + byMap.length + " maps: a commit names one of each map");
        }
        return array(byMap.length, shape.partitions(), map -> byMap[map].attempt(), (map, partition) -> byMap[map].partitionBytes()[partition] > 0);
    }

    /** Whether a map wrote something for a partition. */
    private interface Wrote {
        boolean any(int map, int partition);
    }

    private static byte[] array(int maps, int partitions, IntToLongFunction attempt, Wrote wrote) {
        boolean withBitmaps = (long) maps * partitions <= BITMAP_BITS_MAX;
        byte[][] bitmaps = new byte[withBitmaps ? maps : 0][ReduceWinners.bitmapBytes(partitions)];
        for (int map = 0; map < bitmaps.length; map++) {
            for (int partition = 0; partition < partitions; partition++) {
                if (wrote.any(map, partition)) {
                    bitmaps[map][partition >> 3] |= (byte) (1 << (partition & 7));
                }
            }
        }
        try {
            return new ReduceWinners(partitions, IntStream.range(0, maps).mapToLong(attempt).toArray(), bitmaps).encode();
        } catch (HoldfastException error) {
            throw new IllegalStateException("winners of " + maps + " maps: " + error.getMessage(), error);
        }
    }
}
