package org.apache.spark.shuffle.holdfast;

import java.util.Arrays;
import java.util.Objects;
import org.apache.spark.shuffle.holdfast.SyntheticLocation.Named;
import org.apache.spark.shuffle.holdfast.fetch.ExpectedMaps;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * What Spark's statuses say of the partitions and maps to be read: which attempt of which map wrote something for which partition, and in which
 * generation.
 *
 * <p>Rules: built once, then only read. Statuses of two generations are possible while a stage runs again; then there is nothing to read,
 * and {@link #mixed} says so. Made by {@link HoldfastShuffleReader}.
 */
final class MapBlocks {
    private static final int FIRST = 64;

    private final int shuffle;
    private int count;
    private int[] maps = new int[FIRST];
    private long[] attempts = new long[FIRST];
    private int[] partitions = new int[FIRST];
    private BlockManagerId oldest;
    private int generation = Integer.MAX_VALUE;
    private Named named;
    /** A block of the oldest generation, for errors. */
    private int oldestBlock;
    private boolean mixed;
    /** Another one with the number of the oldest, its place, and a block of it. */
    private Named rival;
    private BlockManagerId rivalPlace;
    private int rivalBlock;

    private MapBlocks(int shuffle) {
        this.shuffle = shuffle;
    }

    /** All blocks that {@code MapOutputTracker.getMapSizesByExecutorId} answered. */
    static MapBlocks of(int shuffle, Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> byLocation) {
        MapBlocks blocks = new MapBlocks(shuffle);
        while (byLocation.hasNext()) {
            Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> there = byLocation.next();
            Iterator<Tuple3<BlockId, Object, Object>> each = there._2().iterator();
            if (each.hasNext()) {
                blocks.location(there._1());
            }
            while (each.hasNext()) {
                Tuple3<BlockId, Object, Object> block = each.next();
                ShuffleBlockId id = (ShuffleBlockId) block._1();
                blocks.add((Integer) block._3(), id.mapId(), id.reduceId());
            }
        }
        return blocks;
    }

    private void location(BlockManagerId location) {
        Named found = SyntheticLocation.named(location, shuffle);
        int here = found == null ? -1 : found.generation();
        boolean same = oldest != null && Objects.equals(found, named);
        mixed |= oldest != null && !same;
        if (here < generation) {
            generation = here;
            named = found;
            oldest = location;
            oldestBlock = count;
            rival = null;
        } else if (here == generation && !same) {
            rival = found;
            rivalPlace = location;
            rivalBlock = count;
        }
    }

    /** The other one of that number is to go. */
    void blameRival() {
        named = rival;
        oldest = rivalPlace;
        oldestBlock = rivalBlock;
    }

    /** Another generation with the number of the oldest, which another state of the masters opened; null without one. */
    Named rival() {
        return rival;
    }

    /** What the statuses of the (oldest) generation name; null where a location is none of ours. */
    Named named() {
        return named;
    }

    private void add(int map, long attempt, int partition) {
        if (count == maps.length) {
            maps = Arrays.copyOf(maps, count * 2);
            attempts = Arrays.copyOf(attempts, count * 2);
            partitions = Arrays.copyOf(partitions, count * 2);
        }
        maps[count] = map;
        attempts[count] = attempt;
        partitions[count++] = partition;
    }

    int count() {
        return count;
    }

    /** The generation of all blocks; of the oldest where they are mixed; -1 where a location is none of ours. */
    int generation() {
        return generation;
    }

    /** Whether there is more than one generation. */
    boolean mixed() {
        return mixed;
    }

    /** The place that statuses of the (oldest) generation name. */
    BlockManagerId location() {
        return oldest;
    }

    /** A map of the (oldest) generation. */
    int someMap() {
        return maps[oldestBlock];
    }

    /** Its attempt. */
    long someAttempt() {
        return attempts[oldestBlock];
    }

    /** A partition that it wrote for. */
    int somePartition() {
        return partitions[oldestBlock];
    }

    /** What a reader has to insist on. */
    ExpectedMaps expected(ReduceWinners winners) {
        ExpectedMaps expected = ExpectedMaps.ofStatuses(winners);
        for (int block = 0; block < count; block++) {
            expected.wrote(maps[block], attempts[block], partitions[block]);
        }
        return expected;
    }
}
