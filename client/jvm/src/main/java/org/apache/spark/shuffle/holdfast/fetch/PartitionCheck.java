package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.Limits;

/**
 * Decides whether what was read of a partition is all of it, and exactly once; the twin of {@code client/core/read/exact.py}.
 *
 * <p>Rules: batches come verified, in any order and any number of times, and are judged by their headers. Of every
 * winning map the numbers seen are kept as "all below n" and, rarely, what lies above; a number seen before is dropped.
 * A map is whole when its LAST was seen and count and sum of checksums match LAST. Batches of other attempts
 * are losers. Counters only, in columns by map: nothing is allocated per batch. The books of one partition at a time; a
 * reader uses an object again with {@link #begin}. Called by {@link ChunkFetch}.
 */
final class PartitionCheck {
    private static final String MIXED =
            "damage, or two writers had this attempt number, which has to be unique in the application";

    private final ExpectedMaps expected;
    private final int firstMap;
    private final int endMap;
    private int partition;
    /** By map: every number below was seen; 0 says that nothing came yet, or only what is in `above`. */
    private final int[] below;
    /** By map: of the batches before LAST. */
    private final long[] crcSums;
    /** By map: as LAST says; 0 before it came. */
    private final int[] lastBatches;
    private final long[] lastSums;
    /** Numbers seen that are not below; maps in order have none. */
    private final Map<Integer, Set<Integer>> above = new HashMap<>();

    /** For maps [firstMap, endMap). */
    PartitionCheck(ExpectedMaps expected, int firstMap, int endMap) {
        this.expected = expected;
        this.firstMap = firstMap;
        this.endMap = Math.min(endMap, expected.maps());
        int maps = Math.max(0, this.endMap - firstMap);
        below = new int[maps];
        crcSums = new long[maps];
        lastBatches = new int[maps];
        lastSums = new long[maps];
    }

    /** Empties the books, for another partition. */
    PartitionCheck begin(int other) {
        partition = other;
        Arrays.fill(below, 0);
        Arrays.fill(crcSums, 0);
        Arrays.fill(lastBatches, 0);
        Arrays.fill(lastSums, 0);
        above.clear();
        return this;
    }

    /** What a batch is. */
    enum Verdict {
        COUNTS,
        LOSER,
        DUPLICATE
    }

    /** Takes note of a verified batch and says whether its payload counts. */
    Verdict admit(BatchHeader batch) throws IncompleteException {
        int map = batch.map();
        if (map < firstMap || map >= endMap || !expected.won(map, batch.attempt())) {
            return Verdict.LOSER;
        }
        int row = map - firstMap;
        if (below[row] == 0 && isNew(map) && expected.wrote(map, partition) == ExpectedMaps.NO) {
            throw new IncompleteException(
                    partition, "map " + map + " has batches, though its status has none");
        }
        if (!note(row, map, batch.number())) {
            return Verdict.DUPLICATE;
        }
        if (batch.last()) {
            lastBatches[row] = batch.batches();
            lastSums[row] = batch.crcSum();
        } else {
            crcSums[row] += batch.crc() & 0xFFFF_FFFFL;
        }
        return Verdict.COUNTS;
    }

    /** Whether a batch of this number came already. */
    boolean isSeen(int map, int number) {
        if (Integer.compareUnsigned(number, below[map - firstMap]) < 0) {
            return true;
        }
        Set<Integer> higher = above.get(map);
        return higher != null && higher.contains(number);
    }

    /**
     * Says what is not there, for people, or null if everything is. {@code allRead}: every epoch was read, in its
     * longest copy; only then a map of which nothing came, and of which it is unknown whether it wrote, wrote nothing.
     */
    String missing(boolean allRead) {
        for (int map = firstMap; map < endMap; map++) {
            if (expected.attempt(map) == Limits.NO_ATTEMPT) {
                continue;
            }
            String what = missingOf(map, allRead);
            if (what != null) {
                return "map " + map + " attempt " + Long.toUnsignedString(expected.attempt(map)) + " " + what;
            }
        }
        return null;
    }

    /** The same, of a partition of which not one batch came: needs no books. */
    static String missingOfNothing(ExpectedMaps expected, int partition, int firstMap, int endMap, boolean allRead) {
        int end = Math.min(endMap, expected.maps());
        for (int map = firstMap; map < end; map++) {
            if (expected.attempt(map) != Limits.NO_ATTEMPT) {
                String what = unseen(expected.wrote(map, partition), allRead);
                if (what != null) {
                    return "map " + map + " attempt " + Long.toUnsignedString(expected.attempt(map)) + " " + what;
                }
            }
        }
        return null;
    }

    private String missingOf(int map, boolean allRead) {
        int row = map - firstMap;
        Set<Integer> higher = above.get(map);
        if (below[row] == 0 && higher == null) {
            return unseen(expected.wrote(map, partition), allRead);
        }
        long came = (below[row] & 0xFFFF_FFFFL) + (higher == null ? 0 : higher.size());
        if (lastBatches[row] == 0) { // a LAST that counts no batch, not even itself, is none
            return "has " + came + " batches and no LAST";
        }
        long count = lastBatches[row] & 0xFFFF_FFFFL;
        if (came > count) {
            return "has " + came + " batches, and its LAST counts " + count + "; " + MIXED;
        }
        if (higher != null || came != count) {
            return "has " + came + " batches of " + count + "; number " + Integer.toUnsignedString(below[row])
                    + " is missing";
        }
        if (crcSums[row] != lastSums[row]) {
            return "has batches whose checksums do not match those of its LAST; " + MIXED;
        }
        return null;
    }

    private static String unseen(int wrote, boolean allRead) {
        return switch (wrote) {
            case ExpectedMaps.YES -> "wrote for it, and nothing of that is there";
            case ExpectedMaps.NO -> null;
            default -> allRead ? null : "may have written something that is not there";
        };
    }

    private boolean isNew(int map) {
        return above.isEmpty() || !above.containsKey(map);
    }

    /** Returns whether the number is new. */
    private boolean note(int row, int map, int number) {
        int order = Integer.compareUnsigned(number, below[row]);
        if (order < 0) {
            return false;
        }
        if (order > 0) {
            return above.computeIfAbsent(map, any -> new HashSet<>()).add(number);
        }
        below[row]++;
        if (!above.isEmpty()) {
            Set<Integer> higher = above.get(map);
            if (higher != null) {
                while (higher.remove(below[row])) {
                    below[row]++;
                }
                if (higher.isEmpty()) {
                    above.remove(map);
                }
            }
        }
        return true;
    }
}
