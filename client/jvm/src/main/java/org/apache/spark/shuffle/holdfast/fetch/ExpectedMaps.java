package org.apache.spark.shuffle.holdfast.fetch;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;

/**
 * Which attempt of every map counts, and which partitions it wrote for: a reader checks both.
 *
 * <p>Rules: the attempts are those of the commit, which is final within its generation. Who wrote where is what the
 * engine's statuses say, where they name the attempt that won; what the committer said otherwise; or it is not known.
 * Built once per read, then only asked, by one thread. Called by the shuffle reader (to build) and
 * {@link PartitionCheck}.
 */
public final class ExpectedMaps {
    /** Answers of {@link #wrote}. */
    static final int NO = 0;
    static final int YES = 1;
    static final int NOT_SAID = -1;

    private final ReduceWinners winners;
    /** Maps that wrote, by partition, as statuses say; null where only the winners are to be asked. */
    private final Map<Integer, BitSet> written;
    /** The partition that was asked about last: whole partitions are judged at a time. */
    private int latest = -1;
    private BitSet latestMaps;
    /** Maps whose status names another attempt than the one that won. */
    private final BitSet doubtful = new BitSet();

    private ExpectedMaps(ReduceWinners winners, Map<Integer, BitSet> written) {
        this.winners = winners;
        this.written = written;
    }

    /** What the committer said, and nothing else. */
    public static ExpectedMaps of(ReduceWinners winners) {
        return new ExpectedMaps(winners, null);
    }

    /**
     * To be filled by {@link #wrote(int, long, int)} with every block that the engine's statuses name in the partitions
     * and maps to be read: a map that is not named for a partition wrote nothing for it.
     */
    public static ExpectedMaps ofStatuses(ReduceWinners winners) {
        return new ExpectedMaps(winners, new HashMap<>());
    }

    /** A status says that this attempt of this map wrote something for the partition. */
    public ExpectedMaps wrote(int map, long attempt, int partition) {
        latest = -1;
        if (map >= winners.attempts().length || winners.attempts()[map] != attempt) {
            doubtful.set(map);
        } else {
            written.computeIfAbsent(partition, any -> new BitSet()).set(map);
        }
        return this;
    }

    /** How many maps there are. */
    int maps() {
        return winners.attempts().length;
    }

    /** Whether that attempt won. */
    boolean won(int map, long attempt) {
        return map >= 0 && map < maps() && winners.attempts()[map] == attempt && attempt != Limits.NO_ATTEMPT;
    }

    /** The attempt that won, or NO_ATTEMPT. */
    long attempt(int map) {
        return winners.attempts()[map];
    }

    /** YES, NO or NOT_SAID. */
    int wrote(int map, int partition) {
        if (written != null && !doubtful.get(map)) {
            if (partition != latest) {
                latest = partition;
                latestMaps = written.get(partition);
            }
            return latestMaps != null && latestMaps.get(map) ? YES : NO;
        }
        if (winners.bitmaps().length == 0) {
            return NOT_SAID;
        }
        return winners.has(map, partition) ? YES : NO;
    }
}
