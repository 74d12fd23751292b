package org.apache.spark.shuffle.holdfast;

import org.apache.spark.MapOutputTracker;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.MapOutputTrackerWorker;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import scala.Option;

/**
 * Which attempt of each map counts, as Spark's statuses have it: what a commit has to say.
 *
 * <p>Rules: only a whole array is an answer, every map with a status and all of one generation; anything else is not the end of a stage.
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
        long[] attempts = new long[statuses.length];
        boolean withBitmaps = (long) statuses.length * partitions <= BITMAP_BITS_MAX;
        byte[][] bitmaps = new byte[withBitmaps ? statuses.length : 0][ReduceWinners.bitmapBytes(partitions)];
        for (int map = 0; map < statuses.length; map++) {
            attempts[map] = statuses[map].mapId();
            for (int partition = 0; withBitmaps && partition < partitions; partition++) {
                if (statuses[map].getSizeForBlock(partition) > 0) {
                    bitmaps[map][partition >> 3] |= (byte) (1 << (partition & 7));
                }
            }
        }
        try {
            return new ReduceWinners(partitions, attempts, bitmaps).encode();
        } catch (HoldfastException error) {
            throw new IllegalStateException("winners of " + statuses.length + " maps: " + error.getMessage(), error);
        }
    }
}
