package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** One epoch of one partition, and the state of its read. Files are requested in their natural order. */
final class EpochFile implements Comparable<EpochFile> {
    final int partition;
    final int epoch;

    // Of ChunkFetch: every copy that was sealed, the longest first.
    int[] holders;
    /** By holder: the chunk that comes next. */
    int[] next;
    /** By holder: bytes that were sealed, and bytes of the complete chunks that came. */
    long[] sealed;
    long[] came;
    /** By holder: not read to its end, and may be tried. */
    boolean[] unread;
    /** By holder: read to its end. */
    boolean[] read;

    // Of Fetch.
    /** Neither complete nor abandoned. */
    boolean wanted;
    /** The stream that owes it, or -1. */
    int owedBy = -1;
    /** The rival of that stream that is asked for it too, or -1. */
    int rivalBy = -1;
    /** Copies not abandoned, in the order of preference. */
    int[] copies = {};
    /** Those of workers that were lost while another copy was left. */
    int[] lostCopies = {};
    Map<Integer, Integer> tries = Map.of();
    /** How often the masters were asked for another copy, and when they first answered; it waits for their answer. */
    int asked;
    long askedSinceNs;
    boolean awaitsMasters;
    /** The last thing that went wrong, for the error. */
    String cause = "";
    /** The copy that was abandoned last though its worker answers, and why, for the error. */
    String abandoned = "";
    int status = Status.OK;

    EpochFile(int partition, int epoch, int... holders) {
        this.partition = partition;
        this.epoch = epoch;
        this.holders = holders;
        next = new int[holders.length];
        sealed = new long[holders.length];
        came = new long[holders.length];
        unread = new boolean[holders.length];
        read = new boolean[holders.length];
        Arrays.fill(unread, true);
    }

    /** Begins to want it from these workers, with nothing counted against them. */
    void want(int... workers) {
        wanted = true;
        copies = workers.clone();
        lostCopies = new int[0];
        tries = Map.of();
        asked = 0;
        awaitsMasters = false;
        cause = "";
        status = Status.OK;
    }

    /** A copy that was not known, of so many bytes: it may be tried, too. */
    void found(int worker, long bytes) {
        int count = holders.length + 1;
        holders = Arrays.copyOf(holders, count);
        next = Arrays.copyOf(next, count);
        sealed = Arrays.copyOf(sealed, count);
        came = Arrays.copyOf(came, count);
        unread = Arrays.copyOf(unread, count);
        read = Arrays.copyOf(read, count);
        holders[count - 1] = worker;
        sealed[count - 1] = bytes;
        unread[count - 1] = true;
        if (wanted) {
            copies = Arrays.copyOf(copies, copies.length + 1);
            copies[copies.length - 1] = worker;
        }
    }

    /** Whether no copy is longer than those that were read to their end: a short one may lack all of a map. */
    boolean isReadInFull() {
        long longest = 0;
        long longestRead = 0;
        for (int holder = 0; holder < holders.length; holder++) {
            longest = Math.max(longest, sealed[holder]);
            longestRead = read[holder] ? Math.max(longestRead, sealed[holder]) : longestRead;
        }
        return longestRead == longest;
    }

    boolean hasCopyOn(int worker) {
        for (int copy : copies) {
            if (copy == worker) {
                return true;
            }
        }
        return false;
    }

    /** Counts an answer that did not help; returns how many there were. */
    int countTry(int worker) {
        if (tries.isEmpty()) {
            tries = new LinkedHashMap<>();
        }
        return tries.merge(worker, 1, Integer::sum);
    }

    void removeCopy(int worker) {
        int[] left = new int[copies.length - 1];
        int count = 0;
        for (int copy : copies) {
            if (copy != worker) {
                left[count++] = copy;
            }
        }
        copies = left;
    }

    /** Whether one copy is left, and none waits for its turn to come again. */
    boolean isAlone() {
        return copies.length == 1 && lostCopies.length == 0;
    }

    /** A copy was removed because its worker is lost. */
    void lost(int worker) {
        lostCopies = Arrays.copyOf(lostCopies, lostCopies.length + 1);
        lostCopies[lostCopies.length - 1] = worker;
    }

    /** Takes back those of these workers, which are there again. */
    void returned(Set<Integer> alive) {
        int[] back = Arrays.stream(lostCopies).filter(alive::contains).toArray();
        if (back.length > 0) {
            lostCopies = Arrays.stream(lostCopies).filter(copy -> !alive.contains(copy)).toArray();
            int count = copies.length;
            copies = Arrays.copyOf(copies, count + back.length);
            System.arraycopy(back, 0, copies, count, back.length);
        }
    }

    /** No other copy is of any use: those whose workers were lost are tried again, and waited for. */
    boolean retryLost() {
        copies = lostCopies;
        lostCopies = new int[0];
        return copies.length > 0;
    }

    /** Prefers all others to it. */
    void moveBack(int worker) {
        int count = 0;
        int[] turned = new int[copies.length];
        for (int copy : copies) {
            if (copy != worker) {
                turned[count++] = copy;
            }
        }
        turned[count] = worker;
        copies = turned;
    }

    boolean isHolder(int worker) {
        return Arrays.stream(holders).anyMatch(holder -> holder == worker);
    }

    /** Which of the holders a worker is. */
    int holder(int worker) {
        for (int index = 0; index < holders.length; index++) {
            if (holders[index] == worker) {
                return index;
            }
        }
        throw new IllegalArgumentException("worker " + worker + " has no copy of " + this);
    }

    @Override
    public int compareTo(EpochFile other) {
        return partition != other.partition
                ? Integer.compare(partition, other.partition)
                : Integer.compareUnsigned(epoch, other.epoch);
    }

    @Override
    public boolean equals(Object other) {
        return this == other;
    }

    @Override
    public int hashCode() {
        return partition * 31 + epoch;
    }

    @Override
    public String toString() {
        return "partition " + partition + " epoch " + Integer.toUnsignedString(epoch);
    }
}
