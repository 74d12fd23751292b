package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.CopyResult;
import org.apache.spark.shuffle.holdfast.wire.EpochResult;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** The reader's cores as stories: those of tests/unit/client/test_fetch.py and test_chunk_fetch.py. Run by pytest. */
public final class FetchCoreMain {
    private static final HoldfastException LOST = new HoldfastException(Status.UNAVAILABLE, "connection refused");
    private static final long GRACE = 1_000;
    private static final long REACH = 4_000;

    private FetchCoreMain() {}

    private interface Story {
        void run() throws Exception;
    }

    private static void tell(String name, Story story) throws Exception {
        try {
            story.run();
        } catch (AssertionError wrong) {
            throw new AssertionError(name + ": " + wrong.getMessage(), wrong);
        }
        System.out.println("ok " + name);
    }

    public static void main(String[] arguments) throws Exception {
        tell("one stream per worker", FetchCoreMain::oneStreamPerWorker);
        tell("streams are bounded", FetchCoreMain::streamsAreBounded);
        tell("refusals do not count while the worker lives", FetchCoreMain::refusalsDoNotCount);
        tell("a worker gone too long loses its only copy", FetchCoreMain::goneTooLong);
        tell("the grace begins anew with what came", FetchCoreMain::graceBeginsAnew);
        tell("a worker that is heard on one stream is not waited for", FetchCoreMain::heardOnOneStream);
        tell("a second copy is used at once", FetchCoreMain::aSecondCopy);
        tell("a lost worker is waited for when the other copy is of no use", FetchCoreMain::lostAndOfNoUse);
        tell("copies take turns while no worker answers", FetchCoreMain::copiesTakeTurns);
        tell("a silent worker is left where another copy may answer", FetchCoreMain::maySwitch);
        tell("a copy long out of reach does not end a read that has another", FetchCoreMain::longOutOfReach);
        tell("three bad answers end a copy", FetchCoreMain::threeBadAnswers);
        tell("a refused stream of many files is halved", FetchCoreMain::halved);
        tell("an unknown answer, silent masters, a living worker out of reach", FetchCoreMain::endings);
        tell("silent masters end no read that goes on", FetchCoreMain::silentMasters);
        tell("what a worker cannot read now is not lost", FetchCoreMain::cannotReadNow);
        tell("a worker that could not read is waited for as long as any other", FetchCoreMain::couldNotReadThenLost);
        tell("any order and any number of times", FetchCoreMain::anyOrder);
        tell("every missing batch is noticed", FetchCoreMain::everyMissingBatch);
        tell("losers are dropped and statuses believed", FetchCoreMain::losersAndStatuses);
        tell("chunks come in turn", FetchCoreMain::chunksInTurn);
        tell("a copy without all that was sealed is noticed", FetchCoreMain::lessThanSealed);
        tell("a short copy is not all where nobody said who wrote", FetchCoreMain::shortCopyOfUnknown);
        tell("lost epochs", FetchCoreMain::lostEpochs);
        tell("what a short copy lacks is read from the other", FetchCoreMain::shortCopies);
        tell("both copies read and not whole", FetchCoreMain::bothCopiesNotWhole);
        tell("long records in any order", FetchCoreMain::longRecords);
        tell("rivals", RivalStories::run);
        for (int copies = 1; copies <= 2; copies++) {
            worlds(copies, false);
            worlds(copies, true);
        }
        System.out.println("ok worlds");
    }

    private static void worlds(int copies, boolean speculative) throws HoldfastException {
        int ended = 0;
        int rivals = 0;
        for (int seed = 0; seed < 300; seed++) {
            try {
                FetchWorld world = new FetchWorld(seed, copies, speculative);
                ended += world.run().isEmpty() ? 0 : 1;
                rivals += world.rivals;
            } catch (AssertionError | RuntimeException wrong) {
                throw new AssertionError("seed " + seed + " copies " + copies + " speculative " + speculative + ": " + wrong, wrong);
            }
        }
        Check.that(copies == 1 ? ended > 0 && ended < 150 : ended < 20, ended + " reads of 300 ended by damage");
        Check.that(speculative && copies > 1 ? rivals > 150 : rivals == 0, rivals + " rivals in 300 reads");
    }

    // Fetch.

    private static EpochFile file(int partition, int... workers) {
        EpochFile made = new EpochFile(partition, 1, workers);
        made.want(workers);
        return made;
    }

    private static Fetch fetch(int streams, EpochFile... files) {
        Fetch.Judge judge = (file, error) -> {
            throw error;
        };
        return new Fetch(List.of(files), "shuffle s", judge, Order.GIVEN, GRACE, REACH, streams, Fetch.RIVALS_MAX);
    }

    private static Effect open(int stream, int worker, EpochFile... files) {
        return new Effect.OpenStream(stream, worker, List.of(files));
    }

    private static HoldfastException failure(List<Effect> effects) {
        Check.that(effects.get(effects.size() - 1) instanceof Effect.Failed, "no end: " + effects);
        return ((Effect.Failed) effects.get(effects.size() - 1)).error();
    }

    private static void oneStreamPerWorker() {
        EpochFile[] files = {file(0, 1), file(1, 2), file(2, 1)};
        Fetch core = fetch(8, files);
        Check.equal(core.started(), List.of(open(0, 1, files[0], files[2]), open(1, 2, files[1])));
        Check.equal(done(core, 0, files[0]), List.of());
        Check.equal(done(core, 1, files[1]), List.of());
        Check.equal(core.streamEnded(1), List.of());
        Check.equal(done(core, 0, files[2]), List.of(new Effect.CloseStream(0), new Effect.Complete()));
        Check.equal(fetch(8).started(), List.of(new Effect.Complete()));
    }

    private static List<Effect> done(Fetch core, int stream, EpochFile file) {
        file.wanted = false;
        return core.fileComplete(stream, file, List.of());
    }

    private static void streamsAreBounded() {
        EpochFile[] files = {file(0, 1), file(1, 2), file(2, 3)};
        Fetch core = fetch(2, files);
        Check.equal(core.started().size(), 2);
        core.check();
        Check.equal(done(core, 0, files[0]), List.of());
        Check.equal(core.streamEnded(0), List.of(open(2, 3, files[2])));
    }

    private static void refusalsDoNotCount() {
        EpochFile only = file(0, 1);
        Fetch core = fetch(8, only);
        core.started();
        for (int turn = 0; turn < Fetch.TRIES_MAX * 3; turn++) {
            core.streamFailed(turn, LOST, turn);
            Set<Integer> alive = turn % 2 == 1 ? Set.of(1) : Set.of();
            Check.equal(core.workersKnown(alive, turn), List.of(open(turn + 1, 1, only)));
            core.check();
        }
    }

    private static void goneTooLong() {
        Fetch core = fetch(8, file(3, 1));
        core.started();
        core.streamFailed(0, LOST, 0);
        HoldfastException error = failure(core.workersKnown(Set.of(), GRACE + 1));
        Check.equal(error.status(), Status.DATA_LOST);
        Check.contains(error.getMessage(), "shuffle s", "partition 3", "epoch 1", "worker 1", "Start worker 1 again");
    }

    private static void graceBeginsAnew() {
        EpochFile only = file(3, 1);
        Fetch core = fetch(8, only);
        core.started();
        long now = 0;
        for (int death = 0; death < 5; death++) {
            core.streamFailed(2 * death, LOST, now);
            Check.equal(core.workersKnown(Set.of(1), now), List.of(open(2 * death + 1, 1, only)));
            Check.equal(core.progressed(2 * death + 1), List.of());
            core.check();
            now += 2 * GRACE;
            core.streamFailed(2 * death + 1, LOST, now);
            Check.equal(core.workersKnown(Set.of(), now + GRACE), List.of(open(2 * death + 2, 1, only)));
            Check.equal(core.progressed(2 * death + 2), List.of());
            now += 2 * GRACE;
        }
        core.streamFailed(10, LOST, now);
        core.workersKnown(Set.of(), now + GRACE);
        core.streamFailed(11, LOST, now + GRACE);
        Check.equal(failure(core.workersKnown(Set.of(), now + GRACE + 1)).status(), Status.DATA_LOST);
    }

    private static void heardOnOneStream() {
        EpochFile[] files = {file(0, 1, 2), file(1, 2)};
        Fetch core = fetch(8, files);
        core.started();
        Check.equal(core.late(0), List.of(open(2, 2, files[0])));
        core.streamFailed(2, LOST, 0); // the rival of one is on the worker of the other
        Check.equal(core.progressed(1), List.of());
        core.check();
        Check.equal(core.late(0), List.of(open(3, 2, files[0])));
    }

    private static void aSecondCopy() {
        EpochFile[] files = {file(0, 1, 2), file(1, 2, 1)};
        Fetch core = fetch(8, files);
        Check.equal(core.started(), List.of(open(0, 1, files[0]), open(1, 2, files[1])));
        done(core, 1, files[1]);
        core.streamEnded(1);
        List<Effect> effects = core.streamFailed(0, LOST, 1);
        Check.equal(effects, List.of(new Effect.AskMasters(0), open(2, 2, files[0])));
        Check.equal(core.workersKnown(Set.of(2), 2), List.of());
        Check.that(!files[0].hasCopyOn(1), "the copy of the lost worker is not given up");
    }

    private static void lostAndOfNoUse() {
        for (boolean returns : new boolean[] {true, false}) {
            EpochFile only = file(0, 1, 2);
            Fetch core = fetch(8, only);
            core.started();
            core.streamFailed(0, LOST, 1);
            core.workersKnown(Set.of(2), 2);
            for (int turn = 1; turn <= Fetch.TRIES_MAX; turn++) {
                int next = turn < Fetch.TRIES_MAX ? 2 : 1;
                Check.that(core.fileBad(turn, only, "gone").contains(open(turn + 1, next, only)), "turn " + turn);
            }
            core.check();
            int again = Fetch.TRIES_MAX + 1;
            core.streamFailed(again, LOST, GRACE);
            Check.equal(core.workersKnown(Set.of(2), GRACE), List.of(open(again + 1, 1, only)));
            if (returns) {
                Check.that(done(core, again + 1, only).contains(new Effect.Complete()), "it is not read");
            } else {
                core.streamFailed(again + 1, LOST, GRACE + 2);
                HoldfastException error = failure(core.workersKnown(Set.of(2), GRACE + 2));
                Check.contains(error.getMessage(), "worker 1 has been lost for more than");
            }
        }
    }

    private static void copiesTakeTurns() {
        Fetch core = fetch(8, file(0, 1, 2));
        int[] tried = new int[3];
        List<Effect> effects = core.started();
        for (int turn = 0; turn < 16; turn++) {
            List<Effect> next = new ArrayList<>();
            for (Effect effect : effects) {
                if (effect instanceof Effect.OpenStream opened) {
                    tried[opened.worker()]++;
                    next.addAll(core.streamFailed(opened.stream(), LOST, turn));
                }
            }
            effects = next.stream().anyMatch(each -> each instanceof Effect.OpenStream)
                    ? next
                    : core.workersKnown(Set.of(1, 2), turn);
        }
        Check.that(tried[1] + tried[2] >= 8 && Math.abs(tried[1] - tried[2]) <= 1, Arrays.toString(tried));
    }

    private static void maySwitch() {
        Fetch core = fetch(8, file(0, 1, 2), file(1, 3, 1), file(2, 4));
        core.started();
        Check.that(core.maySwitch(0) && core.maySwitch(1) && !core.maySwitch(2) && !core.maySwitch(99), "at first");
        core.streamFailed(0, LOST, 1);
        Check.that(!core.maySwitch(1), "its other copy is worker 1");
    }

    /** A DFS is away for nearly the grace, then the worker is killed: that time is no part of its grace. */
    private static void couldNotReadThenLost() {
        EpochFile only = file(0, 1);
        Fetch core = fetch(8, only);
        core.started();
        core.streamFailed(0, new HoldfastException(Status.DISK_FAILED, "the DFS is away"), 0);
        core.workersKnown(Set.of(1), 1);
        core.streamFailed(1, LOST, GRACE);
        Check.equal(core.workersKnown(Set.of(), 2 * GRACE), List.of(open(2, 1, only)));
        core.streamFailed(2, LOST, 2 * GRACE + 1);
        Check.equal(failure(core.workersKnown(Set.of(), 2 * GRACE + 1)).status(), Status.DATA_LOST);
    }

    private static void longOutOfReach() {
        EpochFile only = file(0, 1, 2);
        Fetch core = fetch(8, only);
        core.started();
        core.streamFailed(0, LOST, 0);
        long late = 5 * REACH;
        core.streamFailed(1, LOST, late);
        List<Effect> opened = core.workersKnown(Set.of(1, 2), late + 1);
        int stream = ((Effect.OpenStream) opened.get(0)).stream();
        Check.that(core.streamFailed(stream, LOST, late + 2).contains(open(3, 2, only)), "worker 2 is not tried");
        Check.equal(core.mastersSilent(LOST, late + 3), List.of());
    }

    private static void threeBadAnswers() {
        EpochFile only = file(0, 1);
        Fetch core = fetch(8, only);
        core.started();
        Check.equal(core.fileBad(0, only, "crc"), List.of(new Effect.CloseStream(0), open(1, 1, only)));
        Check.equal(core.streamEnded(1), List.of(open(2, 1, only)));
        HoldfastException error = failure(core.fileBad(2, only, "crc mismatch"));
        Check.equal(error.status(), Status.CORRUPT);
        Check.contains(error.getMessage(), "crc mismatch", "worker 1 3 times");
        EpochFile two = file(0, 1, 2);
        Fetch other = fetch(8, two);
        other.started();
        Check.equal(other.fileBad(0, two, "crc"), List.of(new Effect.CloseStream(0), open(1, 2, two)));
        Check.equal(other.fileBad(0, two, "late"), List.of());
        Check.equal(other.streamFailed(0, LOST, 0), List.of());
    }

    private static void halved() {
        EpochFile[] files = {file(0, 1), file(1, 1), file(2, 1), file(3, 1)};
        HoldfastException unknown = new HoldfastException(Status.UNKNOWN_FILE, "no such file");
        Fetch core = fetch(8, files);
        core.started();
        Check.equal(core.streamFailed(0, unknown, 0), List.of(open(1, 1, files[0], files[1])));
        Check.equal(core.streamFailed(1, unknown, 0), List.of(open(2, 1, files[0])));
        done(core, 2, files[0]);
        Check.equal(core.streamEnded(2), List.of(open(3, 1, files[1])));
        Check.equal(core.streamFailed(3, unknown, 0), List.of(open(4, 1, files[1])));
        Check.equal(core.streamFailed(4, unknown, 0), List.of(open(5, 1, files[1])));
        HoldfastException error = failure(core.streamFailed(5, unknown, 0));
        Check.equal(error.status(), Status.DATA_LOST);
        Check.contains(error.getMessage(), "partition 1");
    }

    private static void endings() {
        Fetch core = fetch(8, file(0, 1, 2));
        core.started();
        HoldfastException wrong = new HoldfastException(Status.WRONG_CLUSTER, "another cluster");
        Check.equal(failure(core.streamFailed(0, wrong, 0)), wrong);
        core = fetch(8, file(0, 1, 2));
        core.started();
        HoldfastException barred = new HoldfastException(Status.FORBIDDEN, "of another application");
        Check.equal(failure(core.streamFailed(0, barred, 0)), barred);
        EpochFile later = file(0, 1);
        core = fetch(8, later);
        core.started();
        core.streamFailed(0, new HoldfastException(Status.TOKEN_EXPIRED, "the token has ended"), 0);
        Check.equal(core.workersKnown(Set.of(1), 1), List.of(open(1, 1, later)));
        core = fetch(8, file(0, 1));
        core.started();
        core.streamFailed(0, LOST, 0);
        HoldfastException error = failure(core.workersKnown(Set.of(1), REACH + 1));
        Check.equal(error.status(), Status.UNAVAILABLE);
        Check.contains(error.getMessage(), "reachable");
        Check.equal(((UnusableWorkersException) error).workers(), Set.of(1));
        EpochFile only = file(0, 1);
        core = fetch(8, only);
        core.started();
        core.streamFailed(0, LOST, 0);
        Check.equal(core.mastersSilent(LOST, 5), List.of(open(1, 1, only)));
        core.streamFailed(1, LOST, 6);
        Check.equal(failure(core.mastersSilent(LOST, GRACE + 1)), LOST);
    }

    /** Two workers were lost, so the masters are asked twice; the second answer does not come, and nobody waits for it. */
    private static void silentMasters() {
        EpochFile[] files = {file(0, 1), file(1, 2)};
        Fetch core = fetch(8, files);
        core.started();
        core.streamFailed(0, LOST, 0);
        core.streamFailed(1, LOST, 0);
        Check.equal(core.workersKnown(Set.of(1, 2), 1), List.of(open(2, 1, files[0]), open(3, 2, files[1])));
        Check.equal(core.mastersSilent(LOST, 2), List.of());
    }

    /** Asked again for as long as a worker may be gone, then the read ends, but not as data lost; a second copy is read at once. */
    private static void cannotReadNow() {
        HoldfastException away = new HoldfastException(Status.DISK_FAILED, "DFS not mounted");
        for (boolean back : new boolean[] {true, false}) {
            EpochFile only = file(0, 1);
            Fetch core = fetch(8, only);
            core.started();
            long now = 0;
            int stream = 0;
            for (; stream < 2 * Fetch.TRIES_MAX; stream++) {
                core.streamFailed(stream, away, now);
                now += GRACE / (2 * Fetch.TRIES_MAX);
                Check.equal(core.workersKnown(Set.of(1), now), List.of(open(stream + 1, 1, only)));
            }
            if (back) {
                Check.that(core.fileComplete(stream, only, List.of()).stream().anyMatch(Effect.Complete.class::isInstance), "read on");
                continue;
            }
            core.streamFailed(stream, away, now);
            HoldfastException error = failure(core.workersKnown(Set.of(1), now + GRACE));
            Check.equal(error.status(), Status.DISK_FAILED);
            Check.contains(error.getMessage(), "is not lost");
            Check.contains(error.getMessage(), "(DISK_FAILED)");
            Check.contains(error.getMessage(), "DFS not mounted");
            Check.equal(((UnusableWorkersException) error).workers(), Set.of(1));
        }
        EpochFile both = file(0, 1, 2);
        Fetch core = fetch(8, both);
        core.started();
        Check.that(core.streamFailed(0, away, 0).contains(open(1, 2, both)), "the other copy at once");
    }

    // Books.

    private static ReduceWinners winners(String bits, long... attempts) {
        byte[][] bitmaps = new byte[bits.length()][];
        for (int map = 0; map < bitmaps.length; map++) {
            bitmaps[map] = new byte[] {(byte) (bits.charAt(map) - '0')};
        }
        return new ReduceWinners(2, attempts, bitmaps);
    }

    private static PartitionCheck books(ReduceWinners winners, int endMap) {
        return new PartitionCheck(ExpectedMaps.of(winners), 0, endMap).begin(0);
    }

    private static void anyOrder() throws IncompleteException {
        BatchHeader header = new BatchHeader();
        for (int seed = 0; seed < 30; seed++) {
            Random random = new Random(seed);
            List<Batches.Made> wanted = new ArrayList<>();
            for (int map = 0; map < 4; map++) {
                wanted.addAll(Batches.of(map, 1 + random.nextInt(59), 9));
            }
            List<Batches.Made> came = new ArrayList<>(wanted);
            for (int again = 0; again < 50; again++) {
                came.add(wanted.get(random.nextInt(wanted.size())));
            }
            Collections.shuffle(came, random);
            PartitionCheck check = books(winners("1111", 9, 9, 9, 9), 4);
            int admitted = 0;
            int duplicates = 0;
            for (Batches.Made each : came) {
                PartitionCheck.Verdict verdict = check.admit(each.into(header));
                admitted += verdict == PartitionCheck.Verdict.COUNTS ? 1 : 0;
                duplicates += verdict == PartitionCheck.Verdict.DUPLICATE ? 1 : 0;
                Check.that(check.isSeen(each.map(), each.number()), "it came");
            }
            Check.equal(admitted, wanted.size());
            Check.equal(duplicates, 50);
            Check.equal(check.missing(true), null);
        }
    }

    private static void everyMissingBatch() throws IncompleteException {
        BatchHeader header = new BatchHeader();
        for (int gone = 0; gone < 5; gone++) {
            PartitionCheck check = books(winners("1", 9), 1);
            for (Batches.Made each : Batches.of(0, 5, 9)) {
                if (each.number() != gone) {
                    check.admit(each.into(header));
                }
            }
            Check.contains(check.missing(true), "map 0 attempt 9");
        }
        PartitionCheck mixed = books(winners("1", 9), 1);
        mixed.admit(Batches.of(0, 9, new byte[][] {{7}, {}}, new boolean[2]).get(0).into(header));
        mixed.admit(Batches.of(0, 9, new byte[][] {{8}, {}}, new boolean[2]).get(1).into(header));
        Check.contains(mixed.missing(true), "do not match those of its LAST");
    }

    private static void losersAndStatuses() throws IncompleteException {
        BatchHeader header = new BatchHeader();
        PartitionCheck check = books(winners("", 9, Limits.NO_ATTEMPT, 9), 2);
        List<Batches.Made> losers = new ArrayList<>(Batches.of(0, 2, 8));
        losers.addAll(Batches.of(1, 2, Limits.NO_ATTEMPT));
        losers.addAll(Batches.of(2, 2, 9));
        losers.addAll(Batches.of(7, 2, 9));
        losers.addAll(Batches.of(-7, 2, 9));
        for (Batches.Made each : losers) {
            Check.equal(check.admit(each.into(header)), PartitionCheck.Verdict.LOSER);
        }
        Check.equal(check.missing(true), null);
        Check.contains(check.missing(false), "may have");
        Check.contains(books(winners("1", 9), 1).missing(true), "nothing of that");
        ExpectedMaps expected = ExpectedMaps.ofStatuses(winners("", 9, 9, 9)).wrote(0, 9, 0).wrote(2, 5, 0);
        Check.contains(PartitionCheck.missingOfNothing(expected, 0, 0, 3, true), "map 0 attempt 9 wrote for it");
        Check.equal(PartitionCheck.missingOfNothing(expected, 1, 0, 2, false), null);
        Check.contains(PartitionCheck.missingOfNothing(expected, 1, 2, 3, false), "map 2 attempt 9 may have");
        try {
            new PartitionCheck(expected, 0, 3).begin(0).admit(Batches.of(1, 1, 9).get(0).into(header));
            throw new AssertionError("a map that wrote none had batches");
        } catch (IncompleteException right) {
            Check.contains(right.getMessage(), "map 1", "status has none");
        }
    }

    // Chunks.

    private static CopyResult sealed(int worker, long size) {
        return new CopyResult(worker, Status.OK, size);
    }

    private static EpochResult epoch(int number, CopyResult... copies) {
        return new EpochResult(0, number, List.of(copies));
    }

    private static ChunkFetch read(ReduceWinners winners, boolean partly, EpochResult... epochs)
            throws HoldfastException {
        return new ChunkFetch(ReduceManifest.of(2, epochs), ExpectedMaps.of(winners), 0, 1, 0,
                winners.attempts().length, partly, "shuffle s", Order.GIVEN, FetchLimits.defaults(), false);
    }

    private static Effect.OpenStream opened(Collection<Effect> effects, int index) {
        return (Effect.OpenStream) effects.stream().filter(each -> each instanceof Effect.OpenStream).toList().get(index);
    }

    private static void chunksInTurn() throws HoldfastException, IncompleteException {
        ChunkFetch core = read(winners("", 9), false, epoch(0, sealed(1, 90), sealed(2, 100)));
        Effect.OpenStream first = opened(core.started(), 0);
        Check.equal(first.worker(), 2);
        EpochFile file = first.files().get(0);
        for (int chunk = 0; chunk < 3; chunk++) {
            core.chunkCame(file, 2, chunk, chunk == 2 ? 80 : 10);
        }
        core.chunkCame(file, 2, 3, ChunkFetch.NOT_COMPLETE);
        Check.equal(core.firstChunk(file, 2), 3);
        Check.equal(core.firstChunk(file, 1), 0);
        for (int wrong : new int[] {2, 4}) {
            try {
                core.chunkCame(file, 2, wrong, 10);
                throw new AssertionError("chunk " + wrong + " was taken");
            } catch (IncompleteException right) {
                Check.contains(right.getMessage(), "3 was due");
            }
        }
        try {
            core.fileSent(file, 2, 4);
            throw new AssertionError("chunk 3 was not missed");
        } catch (IncompleteException right) {
            Check.contains(right.getMessage(), "chunk 3 of 4");
        }
        core.fileSent(file, 2, 3);
        ChunkFetch some = read(winners("", 9), true, epoch(0, sealed(1, 9)));
        EpochFile other = opened(some.started(), 0).files().get(0);
        some.chunkCame(other, 1, 4, 1);
        try {
            some.fileSent(other, 1, 9);
            throw new AssertionError("the end of a range was not missed");
        } catch (IncompleteException right) {
            Check.contains(right.getMessage(), "chunk 5 of 9");
        }
        some.chunkCame(other, 1, 8, 1);
        some.fileSent(other, 1, 9);
    }

    /** A worker says that it sent all of its copy, and nobody knows which maps wrote: it is asked again, for all of it, and given up in the end. */
    private static void lessThanSealed() throws HoldfastException, IncompleteException {
        ChunkFetch core = read(winners("", 9, 9), false, epoch(0, sealed(1, 100)));
        List<Effect> effects = core.started();
        EpochFile file = opened(effects, 0).files().get(0);
        for (int stream = 0; stream < Fetch.TRIES_MAX; stream++) {
            Check.equal(core.firstChunk(file, 1), 0);
            core.chunkCame(file, 1, 0, 60);
            try {
                core.fileSent(file, 1, 1);
                throw new AssertionError("40 bytes were not missed");
            } catch (IncompleteException right) {
                Check.contains(right.getMessage(), "60 bytes of partition 0 epoch 0 came, but 100 were sealed");
            }
            effects = core.fetch.fileBad(stream, file, "60 bytes came");
        }
        Check.contains(failure(effects).getMessage(), "may have written something that is not there");
    }

    /** Of the longer copy alone a reader knows that a map of which nothing came wrote nothing. */
    private static void shortCopyOfUnknown() throws HoldfastException, IncompleteException {
        BatchHeader header = new BatchHeader();
        for (boolean there : new boolean[] {true, false}) {
            ChunkFetch core = read(winners("", 9, 9), false, epoch(0, sealed(1, 60), sealed(2, 100)));
            EpochFile file = opened(core.started(), 0).files().get(0);
            file.moveBack(2); // as an order may have it
            core.fetch.streamFailed(0, LOST, 0);
            core.chunkCame(file, 1, 0, 60);
            for (Batches.Made each : Batches.of(0, 3, 9)) {
                core.admit(0, each.into(header));
            }
            core.fileSent(file, 1, 1);
            List<Effect> effects = core.epochComplete(1, file, 1);
            Check.that(!effects.contains(new Effect.Complete()), "a short copy was taken for all");
            Check.equal(core.fetch.workersKnown(Set.of(1, 2), 1), List.of(open(2, 2, file)));
            if (there) {
                core.chunkCame(file, 2, 0, 100);
                core.fileSent(file, 2, 1);
                Check.that(core.epochComplete(2, file, 2).contains(new Effect.Complete()), "not complete");
                continue;
            }
            for (int stream = 2; stream < 2 + Fetch.TRIES_MAX; stream++) {
                effects = core.fetch.streamFailed(stream, new HoldfastException(Status.UNKNOWN_FILE, "it is not here"), 1);
            }
            Check.contains(failure(effects).getMessage(), "it is not here", "map 1 attempt 9 may have written");
        }
    }

    private static void lostEpochs() throws HoldfastException, IncompleteException {
        CopyResult lost = new CopyResult(2, Status.DATA_LOST, 0);
        BatchHeader header = new BatchHeader();
        for (int came = 0; came < 2; came++) {
            ChunkFetch core = read(winners("1", 9), false, epoch(0, sealed(1, 9)), epoch(1, lost),
                    epoch(2, new CopyResult(3, Status.UNKNOWN_FILE, 0)));
            EpochFile file = opened(core.started(), 0).files().get(0);
            for (Batches.Made each : Batches.of(0, 3, 9).subList(0, came == 0 ? 3 : 1)) {
                core.admit(0, each.into(header));
            }
            List<Effect> effects = core.epochComplete(0, file, 1);
            if (came == 0) {
                Check.that(effects.contains(new Effect.Complete()), "not complete: " + effects);
            } else {
                HoldfastException error = failure(effects);
                Check.equal(error.status(), Status.DATA_LOST);
                Check.contains(error.getMessage(), "shuffle s: partition 0 epoch 1 was recorded as lost",
                        "(worker 2 DATA_LOST)", "map 0 attempt 9");
            }
        }
        CopyResult failed = new CopyResult(2, Status.FAILED_COPY, 0);
        HoldfastException only = failure(read(winners("1", 9), false, epoch(0, failed)).started());
        Check.equal(only.status(), Status.DATA_LOST);
        Check.contains(only.getMessage(), "worker 2 FAILED_COPY");
        askedBeforeTheLastTry(true);
        askedBeforeTheLastTry(false);
        ChunkFetch core = read(winners("1", 9), false, epoch(0, sealed(1, 9)));
        List<Effect> effects = core.started();
        for (int stream = 0; stream < Fetch.TRIES_MAX; stream++) {
            effects = core.fetch.fileBad(stream, opened(effects, 0).files().get(0), "chunk 0: checksum");
        }
        Check.equal(failure(effects).status(), Status.CORRUPT);
        Check.contains(failure(effects).getMessage(), "partition 0 epoch 0 ", "chunk 0: checksum", "map 0 attempt 9");
    }

    /** A worker lives and has not what it had sealed; another one was away at the commit, and may have sealed it since. */
    private static void askedBeforeTheLastTry(boolean late) throws HoldfastException {
        CopyResult away = new CopyResult(2, Status.UNAVAILABLE, 0);
        HoldfastException notHere = new HoldfastException(Status.UNKNOWN_FILE, "it is not here");
        ChunkFetch core = read(winners("1", 9), false, epoch(0, sealed(1, 9), away));
        EpochFile file = opened(core.started(), 0).files().get(0);
        Check.equal(core.fetch.streamFailed(0, notHere, 1), List.of(open(1, 1, file)));
        Check.equal(core.fetch.streamFailed(1, notHere, 1), List.of(new Effect.AskMasters(0)));
        core.fetch.check();
        core.learn(ReduceManifest.of(2, epoch(0, sealed(1, 9), late ? sealed(2, 9) : away)));
        Check.equal(core.fetch.workersKnown(Set.of(1, 2), 2), List.of(open(2, 1, file)));
        List<Effect> effects = core.fetch.streamFailed(2, notHere, 3);
        if (late) {
            Check.equal(effects, List.of(open(3, 2, file)));
        } else {
            int stream = 3;
            for (long now = 4; effects.get(0) instanceof Effect.AskMasters; stream++, now *= 8) { // for the grace
                Check.equal(core.fetch.workersKnown(Set.of(1, 2), now), List.of(open(stream, 1, file)));
                effects = core.fetch.streamFailed(stream, notHere, now);
            }
            Check.that(stream > 3 && stream < 100, "asked " + stream + " times");
            Check.contains(failure(effects).getMessage(), "it is not here");
        }
    }

    private static void shortCopies() throws HoldfastException {
        BatchHeader header = new BatchHeader();
        List<Batches.Made> data = new ArrayList<>(Batches.of(0, 3, 9));
        data.addAll(Batches.of(1, 3, 9));
        for (Set<Integer> gone : List.of(Set.of(3, 4, 5), Set.of(5), Set.of(1))) {
            ChunkFetch core = read(winners("11", 9, 9), false, epoch(0, sealed(1, 9), sealed(2, 9)));
            EpochFile file = opened(core.started(), 0).files().get(0);
            int count = 0;
            try {
                core.chunkCame(file, 1, 0, 9);
                for (int index = 0; index < data.size(); index++) {
                    count += !gone.contains(index) && core.admit(0, data.get(index).into(header)) ? 1 : 0;
                }
                Check.equal(core.epochComplete(0, file, 1), List.of(open(1, 2, file)));
                core.fetch.check();
                Check.equal(core.firstChunk(file, 2), 0);
                for (Batches.Made each : data) {
                    count += core.admit(0, each.into(header)) ? 1 : 0;
                }
            } catch (IncompleteException wrong) {
                throw new AssertionError(wrong.getMessage(), wrong);
            }
            Check.that(core.epochComplete(1, file, 2).contains(new Effect.Complete()), "not complete");
            Check.equal(count, data.size());
            Check.equal(core.duplicates(), (long) data.size() - gone.size());
        }
    }

    private static void bothCopiesNotWhole() throws HoldfastException {
        ChunkFetch core = read(
                winners("1", 9), false, epoch(0, sealed(1, 9), sealed(2, 9)), epoch(3, sealed(3, 9)));
        List<Effect> effects = core.started();
        core.epochComplete(0, opened(effects, 0).files().get(0), 1);
        core.epochComplete(1, opened(effects, 1).files().get(0), 3);
        HoldfastException error = failure(core.epochComplete(2, opened(effects, 0).files().get(0), 2));
        Check.equal(error.status(), Status.CORRUPT);
        Check.equal(error.getMessage(), "shuffle s: partition 0 was read to its end and is not whole: map 0 attempt 9 "
                + "wrote for it, and nothing of that is there (read to the end: epoch 0 of worker 1 and 2, epoch 3 of "
                + "worker 3)");
    }

    // Records of several batches.

    private static void longRecords() throws Exception {
        int piece = LongRecords.PIECE_BYTES_MIN;
        byte[][] payloads = {new byte[5], filled(piece, 1), filled(piece + 1, 2), filled(piece, 3), new byte[7],
            filled(piece, 4), filled(piece, 5), filled(piece, 6), {}};
        boolean[] more = {false, true, true, false, false, false, true, false, false};
        List<Integer> wanted = List.of(5, 7, piece, 2 * piece, 3 * piece + 1);
        List<Batches.Made> made = Batches.of(0, 9, payloads, more);
        for (int seed = 0; seed < 40; seed++) {
            List<Batches.Made> mixed = new ArrayList<>(made);
            if (seed > 0) {
                Collections.shuffle(mixed, new Random(seed));
            }
            ChunkFetch core = read(winners("1", 9), false, epoch(0, sealed(1, 9)));
            core.started();
            LongRecords records = new LongRecords(core);
            List<Integer> sizes = new ArrayList<>();
            BatchHeader header = new BatchHeader();
            for (Batches.Made each : mixed) {
                Check.that(core.admit(0, each.into(header)), "it counts");
                if (header.payloadBytes() > 0 && records.isAlone(0, header, each.bytes())) {
                    sizes.add(header.payloadBytes());
                }
                for (LongRecords.Whole whole = records.poll(); whole != null; whole = records.poll()) {
                    sizes.add(whole.bytes().length);
                    int first = whole.bytes()[0];
                    int last = whole.bytes()[whole.bytes().length - 1];
                    Check.that(last == (first == 1 ? 3 : first == 5 ? 6 : first), "pieces in disorder");
                }
            }
            records.end();
            Collections.sort(sizes);
            Check.equal(sizes, wanted);
        }
        byte[][] wrong = {filled(piece, 1), new byte[3]};
        List<Batches.Made> two = Batches.of(0, 9, wrong, new boolean[] {true, false});
        ChunkFetch core = read(winners("1", 9), false, epoch(0, sealed(1, 9)));
        LongRecords records = new LongRecords(core);
        BatchHeader header = new BatchHeader();
        core.admit(0, two.get(1).into(header));
        Check.that(records.isAlone(0, header, two.get(1).bytes()), "too short for a piece");
        core.admit(0, two.get(0).into(header));
        try {
            records.isAlone(0, header, two.get(0).bytes());
            throw new AssertionError("a record that was delivered in part is not noticed");
        } catch (HoldfastException right) {
            Check.contains(right.getMessage(), "too short for a piece");
        }
    }

    private static byte[] filled(int size, int value) {
        byte[] made = new byte[size];
        Arrays.fill(made, (byte) value);
        return made;
    }
}
