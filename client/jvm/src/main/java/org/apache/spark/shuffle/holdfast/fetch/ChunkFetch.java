package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.CopyResult;
import org.apache.spark.shuffle.holdfast.wire.EpochResult;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Decides which epochs to ask of whom, from which chunk, and what is whole; the twin of
 * {@code client/core/read/chunk_fetch.py}.
 *
 * <p>Rules: pure. Every epoch that has a sealed copy is a file of {@link Fetch}, which decides about workers, tries and
 * copies. Chunks of one copy are requested once: a stream that is opened again continues with the first chunk that was not
 * complete. Another copy has other chunk boundaries and begins with its first one; what comes twice is dropped by number.
 * An epoch without a copy is no reason to stop: when all others of its partition were read, the partition's books say
 * whether anything is missing. If so, the copies that were not read are read too, since a sealed copy may be shorter
 * than the other (recovery cut a damaged end); of two that an {@link Order} takes for equal the longer is read first, so
 * that this is rarely needed. A copy that is read in full has the bytes that the manifest names, whatever its worker
 * reports: where it is unknown which maps wrote, nothing else shows that a map is missing. Copies that were sealed after
 * the manifest was read are learned from a newer one. Books exist only of partitions that are being read. Called by
 * {@link FetchReader}.
 */
final class ChunkFetch implements Fetch.Judge {
    /** Epochs that an error names. */
    private static final int EPOCHS_NAMED = 8;
    /** In place of the bytes of a chunk that is not complete. */
    static final long NOT_COMPLETE = -1;

    private static final class Partition {
        final int number;
        final List<EpochFile> files = new ArrayList<>(1);
        /** Epochs that were not read to their end. */
        int left;
        /** Null before the first batch that counts, and when it is whole. */
        PartitionCheck check;
        boolean whole;
        /** Why epochs cannot be read, and why other copies of epochs that were read cannot. */
        List<HoldfastException> lost = List.of();
        List<HoldfastException> otherErrors = List.of();

        Partition(int number) {
            this.number = number;
        }
    }

    private ReduceManifest manifest;
    private final String where;
    private final ExpectedMaps expected;
    private final int firstPartition;
    private final int firstMap;
    private final int endMap;
    /** Only a part of every chunk is asked for: those that have nothing do not come, but for the last. */
    private final boolean partly;
    private final Order order;
    private final Partition[] partitions;
    private final ArrayDeque<PartitionCheck> spare = new ArrayDeque<>();
    private long duplicates;
    final Fetch fetch;

    /** @param where names the shuffle in errors; partly: maps are not all maps; order: which copies are asked first */
    ChunkFetch(
            ReduceManifest manifest,
            ExpectedMaps expected,
            int startPartition,
            int endPartition,
            int startMap,
            int endMap,
            boolean partly,
            String where,
            Order order,
            FetchLimits limits,
            boolean speculative) {
        this.manifest = manifest;
        this.where = where;
        this.expected = expected;
        this.firstPartition = startPartition;
        this.firstMap = startMap;
        this.endMap = endMap;
        this.partly = partly;
        this.order = order;
        partitions = new Partition[endPartition - startPartition];
        List<EpochFile> files = new ArrayList<>();
        for (int number = startPartition; number < endPartition; number++) {
            Partition partition = partitions[number - startPartition] = new Partition(number);
            for (int row = manifest.first(number); row < manifest.first(number + 1); row++) {
                add(partition, manifest.get(row));
            }
            files.addAll(partition.files);
        }
        int rivals = limits.rivals(speculative);
        fetch = new Fetch(
                files, where, this, order, limits.returnGraceMs() * 1_000_000,
                limits.reachMs() * 1_000_000, limits.streamsAtOnce(rivals), rivals);
    }

    private void add(Partition partition, EpochResult result) {
        CopyResult[] longestFirst = result.copies().stream().filter(CopyResult::readable)
                .sorted(Comparator.comparingLong(CopyResult::sizeBytes).reversed()).toArray(CopyResult[]::new);
        if (longestFirst.length > 0) {
            EpochFile file = new EpochFile(
                    result.partition(), result.epoch(), Arrays.stream(longestFirst).mapToInt(CopyResult::worker).toArray());
            Arrays.setAll(file.sealed, holder -> longestFirst[holder].sizeBytes());
            file.want(order.ordered(file.holders));
            partition.files.add(file);
            partition.left++;
        } else if (result.lost()) {
            String text = where + ": partition " + result.partition() + " epoch "
                    + Integer.toUnsignedString(result.epoch()) + " was recorded as lost at the commit ("
                    + result.copies().stream().map(ChunkFetch::said).collect(Collectors.joining(", ")) + "); run the maps again in a new generation or shuffle";
            partition.lost = with(partition.lost, new HoldfastException(Status.DATA_LOST, text));
        }
    }

    /**
     * Whether there may be copies that the manifest does not name as sealed, while these workers are alive: one is back that had
     * something to seal, or one is lost, and what it had may have been copied again.
     */
    boolean mayHaveCopies(Set<Integer> alive) {
        for (Partition partition : partitions) {
            for (int row = manifest.first(partition.number); row < manifest.first(partition.number + 1); row++) {
                EpochResult result = manifest.get(row);
                if (!partition.whole && result.copies().stream().anyMatch(copy -> mayHaveMore(copy, alive))) {
                    return true;
                }
            }
        }
        return false;
    }

    @Override
    public boolean mayHaveMore(EpochFile file) {
        for (int row = manifest.first(file.partition); row < manifest.first(file.partition + 1); row++) {
            EpochResult result = manifest.get(row);
            if (result.epoch() == file.epoch && result.copies().stream().anyMatch(CopyResult::unsealed)) {
                return true;
            }
        }
        return false;
    }

    private static boolean mayHaveMore(CopyResult copy, Set<Integer> alive) {
        return alive.contains(copy.worker()) ? copy.unsealed() : copy.readable();
    }

    /** A newer manifest names copies that were sealed since. An epoch that was LOST before is left as it was. */
    void learn(ReduceManifest newer) {
        for (Partition partition : partitions) {
            for (EpochFile file : partition.files) {
                for (int row = newer.first(partition.number); row < newer.first(partition.number + 1); row++) {
                    EpochResult result = newer.get(row);
                    if (result.epoch() == file.epoch) {
                        result.copies().forEach(copy -> learn(file, copy));
                    }
                }
            }
        }
        manifest = newer;
    }

    private static void learn(EpochFile file, CopyResult copy) {
        if (copy.readable() && !file.isHolder(copy.worker())) {
            file.found(copy.worker(), copy.sizeBytes());
        }
    }

    // Chunks.

    /** From which chunk to ask this copy for. */
    int firstChunk(EpochFile file, int worker) {
        return file.next[file.holder(worker)];
    }

    /** Bytes of a chunk came from this copy: {@code bytes} in all with its last ones, {@link #NOT_COMPLETE} before. */
    void chunkCame(EpochFile file, int worker, int chunk, long bytes) throws IncompleteException {
        int holder = file.holder(worker);
        int due = file.next[holder];
        if (chunk < due || (chunk > due && !partly)) {
            throw new IncompleteException(file.partition, "chunk " + chunk + " came where " + due + " was due");
        }
        file.next[holder] = bytes == NOT_COMPLETE ? chunk : chunk + 1;
        file.came[holder] += bytes == NOT_COMPLETE ? 0 : bytes;
    }

    /** The worker says that all {@code chunks} of this copy were sent. */
    void fileSent(EpochFile file, int worker, int chunks) throws IncompleteException {
        int due = firstChunk(file, worker);
        if (due < chunks) {
            throw new IncompleteException(file.partition, "chunk " + due + " of " + chunks + " did not come");
        }
        int holder = file.holder(worker);
        long came = file.came[holder];
        if (came != file.sealed[holder] && !partly) {
            file.next[holder] = 0; // whatever it is: all of it again
            file.came[holder] = 0;
            throw new IncompleteException(
                    file.partition, came + " bytes of " + file + " came, but " + file.sealed[holder] + " were sealed");
        }
    }

    /** Takes note of a verified batch; returns whether its payload counts. */
    boolean admit(int partition, BatchHeader batch) throws IncompleteException {
        Partition state = partitions[partition - firstPartition];
        if (state.whole) {
            return false;
        }
        if (state.check == null) {
            PartitionCheck again = spare.pollLast();
            state.check = (again == null ? new PartitionCheck(expected, firstMap, endMap) : again).begin(partition);
        }
        return switch (state.check.admit(batch)) {
            case COUNTS -> true;
            case LOSER -> false;
            case DUPLICATE -> {
                duplicates++;
                yield false;
            }
        };
    }

    /** Whether a batch of this winner came already. */
    boolean isSeen(int partition, int map, int number) {
        PartitionCheck check = partitions[partition - firstPartition].check;
        return check != null && check.isSeen(map, number);
    }

    /** Batches of winners that came again and were dropped. */
    long duplicates() {
        return duplicates;
    }

    // Completeness.

    /** Nothing was read yet: judges the partitions without any epoch, and opens the first streams. */
    List<Effect> started() {
        try {
            for (Partition each : partitions) {
                if (each.left == 0) {
                    judge(each);
                }
            }
        } catch (HoldfastException error) {
            return fetch.stop(error);
        }
        return fetch.started();
    }

    /** This worker's copy of an epoch was read to its end. */
    List<Effect> epochComplete(int stream, EpochFile file, int worker) {
        int holder = file.holder(worker);
        file.read[holder] = true;
        file.unread[holder] = false;
        file.wanted = false;
        try {
            return fetch.fileComplete(stream, file, epochOver(file));
        } catch (HoldfastException error) {
            return fetch.stop(error);
        }
    }

    /** No copy of an epoch that was asked for can be read. */
    @Override
    public Collection<EpochFile> gaveUp(EpochFile file, HoldfastException error) throws HoldfastException {
        Arrays.fill(file.unread, false);
        Partition partition = partitions[file.partition - firstPartition];
        if (wasRead(file)) {
            partition.otherErrors = with(partition.otherErrors, error);
        } else {
            partition.lost = with(partition.lost, error);
        }
        return epochOver(file);
    }

    private Collection<EpochFile> epochOver(EpochFile file) throws HoldfastException {
        Partition partition = partitions[file.partition - firstPartition];
        partition.left--;
        return partition.left > 0 ? List.of() : judge(partition);
    }

    /** Returns what else to read before the partition is whole; throws if nothing would help. */
    private Collection<EpochFile> judge(Partition partition) throws HoldfastException {
        boolean allRead = partition.lost.isEmpty() && partition.files.stream().allMatch(EpochFile::isReadInFull);
        String missing = partition.check == null
                ? PartitionCheck.missingOfNothing(expected, partition.number, firstMap, endMap, allRead)
                : partition.check.missing(allRead);
        if (missing == null) {
            partition.whole = true;
            if (partition.check != null) {
                spare.addLast(partition.check);
                partition.check = null;
            }
            return List.of();
        }
        Collection<EpochFile> more = otherCopies(partition);
        if (more.isEmpty()) {
            throw notWhole(partition, missing);
        }
        return more;
    }

    /** What is sealed on several workers can be cut short on one: the copies that were not read may have the rest. */
    private Collection<EpochFile> otherCopies(Partition partition) {
        List<EpochFile> more = new ArrayList<>();
        for (EpochFile file : partition.files) {
            int[] left = new int[file.holders.length];
            int count = 0;
            for (int holder = 0; holder < file.holders.length; holder++) {
                if (file.unread[holder]) {
                    left[count++] = file.holders[holder];
                }
            }
            if (count > 0) {
                file.want(order.ordered(Arrays.copyOf(left, count)));
                partition.left++;
                more.add(file);
            }
        }
        return more;
    }

    private HoldfastException notWhole(Partition partition, String missing) {
        List<String> read = new ArrayList<>();
        for (EpochFile file : partition.files) {
            if (wasRead(file)) {
                List<String> workers = new ArrayList<>();
                for (int holder = 0; holder < file.holders.length; holder++) {
                    if (file.read[holder]) {
                        workers.add(Integer.toString(file.holders[holder]));
                    }
                }
                read.add("epoch " + Integer.toUnsignedString(file.epoch) + " of worker "
                        + String.join(" and ", workers));
            }
        }
        if (read.size() > EPOCHS_NAMED) {
            int more = read.size() - EPOCHS_NAMED;
            read = new ArrayList<>(read.subList(0, EPOCHS_NAMED));
            read.add(more + " more epochs");
        }
        String what = missing + " (read to the end: " + (read.isEmpty() ? "nothing" : String.join(", ", read)) + ")";
        List<HoldfastException> causes = new ArrayList<>(partition.lost);
        causes.addAll(partition.otherErrors);
        if (causes.isEmpty()) {
            return new HoldfastException(Status.CORRUPT, where + ": partition " + partition.number
                    + " was read to its end and is not whole: " + what);
        }
        HoldfastException first = causes.get(0);
        String text = first.getMessage().replaceAll("\\.+$", "");
        return new HoldfastException(
                first.status(), text + ". Without it the partition is not whole: " + what, first);
    }

    private static boolean wasRead(EpochFile file) {
        for (boolean each : file.read) {
            if (each) {
                return true;
            }
        }
        return false;
    }

    private static List<HoldfastException> with(List<HoldfastException> errors, HoldfastException error) {
        List<HoldfastException> all = new ArrayList<>(errors);
        all.add(error);
        return all;
    }

    private static String said(CopyResult copy) {
        return "worker " + copy.worker() + " " + Status.name(copy.status());
    }
}
