package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Late streams and their rivals, and what an order is told: the stories of tests/unit/client/test_rivals.py. */
final class RivalStories {
    private static final HoldfastException LOST = new HoldfastException(Status.UNAVAILABLE, "connection refused");
    private static final long MIB = 1 << 20;

    private RivalStories() {}

    /** Says what it was told. */
    private static final class Reported implements Order {
        final List<String> words = new ArrayList<>();

        @Override
        public int[] ordered(int... copies) {
            return copies;
        }

        @Override
        public void failed(int worker) {
            words.add(worker + " failed");
        }

        @Override
        public void slow(int worker) {
            words.add(worker + " slow");
        }
    }

    private static Fetch fetch(Order order, int streams, EpochFile... files) {
        Fetch.Judge judge = (file, error) -> {
            throw error;
        };
        return new Fetch(List.of(files), "shuffle s", judge, order, 1_000, 120_000, streams, Fetch.RIVALS_MAX);
    }

    private static EpochFile file(int partition, int... workers) {
        EpochFile made = new EpochFile(partition, 1, workers);
        made.want(workers);
        return made;
    }

    private static Effect open(int stream, int worker, EpochFile... files) {
        return new Effect.OpenStream(stream, worker, List.of(files));
    }

    private static Effect close(int stream) {
        return new Effect.CloseStream(stream);
    }

    private static List<Effect> done(Fetch core, int stream, EpochFile file) {
        file.wanted = false;
        return core.fileComplete(stream, file, List.of());
    }

    static void run() {
        theQuickerIsRead();
        theLateOneMayBeQuicker();
        aSlowWorkerIsAskedLast();
        oneCopyHasNoRival();
        bounded();
        eitherMayFail();
        endsDecide();
        failuresAreTold();
        credit();
    }

    private static void theQuickerIsRead() {
        Reported reported = new Reported();
        EpochFile[] files = {file(0, 1, 2), file(1, 1, 2), file(2, 2, 1), file(3, 3, 1)};
        Fetch core = fetch(reported, 8, files);
        core.started();
        Check.equal(core.late(0), List.of(open(3, 2, files[0], files[1])));
        core.check();
        Check.equal(core.late(0), List.of());
        Check.equal(core.late(3), List.of());
        Check.equal(core.dataCame(3), List.of(close(0)));
        core.check();
        Check.equal(reported.words, List.of("1 slow"));
        Check.equal(core.fileComplete(0, files[0], List.of()), List.of());
        Check.equal(core.maySwitch(3), true);
        done(core, 3, files[0]);
        done(core, 3, files[1]);
        Check.equal(core.streamEnded(3), List.of());
        core.check();
    }

    private static void theLateOneMayBeQuicker() {
        Reported reported = new Reported();
        EpochFile only = file(0, 1, 2);
        Fetch core = fetch(reported, 8, only);
        core.started();
        core.late(0);
        Check.equal(core.dataCame(0), List.of(close(1)));
        Check.equal(core.dataCame(1), List.of());
        Check.equal(core.late(0), List.of());
        core.check();
        Check.equal(reported.words, List.of());
        Check.equal(done(core, 0, only), List.of(close(0), new Effect.Complete()));
    }

    private static void aSlowWorkerIsAskedLast() {
        EpochFile[] files = {file(0, 1, 2), file(1, 3, 4), file(2, 1, 3), file(3, 1, 4)};
        Fetch core = fetch(new Reported(), 2, files);
        Check.equal(core.started(), List.of(open(0, 1, files[0], files[2], files[3]), open(1, 3, files[1])));
        Check.equal(core.late(0), List.of(open(2, 2, files[0])));
        Check.equal(core.dataCame(2), List.of(close(0)));
        core.check();
        done(core, 1, files[1]);
        Check.equal(core.streamEnded(1), List.of(open(3, 3, files[2])));
        done(core, 3, files[2]);
        Check.equal(core.streamEnded(3), List.of(open(4, 4, files[3])));
        EpochFile[] most = {file(0, 1, 2), file(1, 1, 3), file(2, 1, 3)};
        core = fetch(new Reported(), 8, most);
        core.started();
        Check.equal(core.late(0), List.of(open(1, 3, most[1], most[2])));
        Check.equal(core.dataCame(1), List.of(close(0), open(2, 2, most[0])));
        core.check();
    }

    private static void oneCopyHasNoRival() {
        Fetch core = fetch(new Reported(), 8, file(0, 1), file(1, 1, 2));
        core.started();
        Check.equal(core.late(0), List.of());
        core = fetch(new Reported(), 8, file(0, 1, 2), file(1, 2, 1));
        core.started();
        core.streamFailed(1, LOST, 0);
        Check.equal(core.late(0), List.of());
        Check.equal(core.late(9), List.of());
    }

    private static void bounded() {
        EpochFile[] files = {file(0, 1, 2), file(1, 3, 4), file(2, 5, 6)};
        Fetch core = fetch(new Reported(), 8, files);
        core.started();
        Check.equal(core.late(0).size() + core.late(1).size() + core.late(2).size(), Fetch.RIVALS_MAX);
        core.check();
        Check.equal(core.dataCame(0), List.of(close(3)));
        Check.equal(core.late(2), List.of(open(5, 6, files[2])));
        core.check();
    }

    private static void eitherMayFail() {
        for (int status : new int[] {Status.UNAVAILABLE, Status.UNKNOWN_FILE, Status.DISK_FAILED}) {
            EpochFile only = file(0, 1, 2);
            Fetch core = fetch(new Reported(), 8, only);
            core.started();
            core.late(0);
            for (Effect each : core.streamFailed(1, new HoldfastException(status, "no"), 0)) {
                Check.that(each instanceof Effect.AskMasters, "the late one goes on: " + each);
            }
            core.check();
            Check.equal(core.dataCame(0), List.of());
            Check.equal(done(core, 0, only), List.of(close(0), new Effect.Complete()));
        }
        Reported reported = new Reported();
        EpochFile[] files = {file(0, 1, 2), file(1, 1, 2), file(2, 1, 3)};
        Fetch core = fetch(reported, 8, files);
        core.started();
        core.late(0);
        Check.equal(core.streamFailed(0, LOST, 0), List.of(new Effect.AskMasters(0), open(2, 3, files[2])));
        core.check();
        Check.equal(reported.words, List.of("1 failed"));
        Check.equal(core.dataCame(1), List.of());
        done(core, 1, files[0]);
        Check.equal(done(core, 1, files[1]), List.of());
        core.check();
        EpochFile bad = file(0, 1, 2);
        core = fetch(reported, 8, bad);
        core.started();
        core.late(0);
        Check.equal(core.fileBad(1, bad, "checksum"), List.of(close(1)));
        core.check();
        Check.equal(core.dataCame(0), List.of());
    }

    private static void endsDecide() {
        EpochFile only = file(0, 1, 2);
        Fetch core = fetch(new Reported(), 8, only);
        core.started();
        core.late(0);
        Check.equal(done(core, 1, only), List.of(close(0), close(1), new Effect.Complete()));
        only = file(0, 1, 2);
        core = fetch(new Reported(), 8, only);
        core.started();
        core.late(0);
        Check.equal(core.streamEnded(1), List.of(close(0), open(2, 1, only)));
        core.check();
        only = file(0, 1, 2);
        core = fetch(new Reported(), 8, only);
        core.started();
        core.late(0);
        core.streamFailed(0, LOST, 0);
        core.streamFailed(1, LOST, 0);
        Check.equal(core.workersKnown(Set.of(1, 2), 1), List.of(open(2, 1, only)));
        Check.equal(core.late(2), List.of());
    }

    private static void failuresAreTold() {
        for (int status : new int[] {Status.UNAVAILABLE, Status.BUSY, Status.DISK_FAILED, Status.CORRUPT}) {
            Reported reported = new Reported();
            Fetch core = fetch(reported, 8, file(0, 1, 2));
            core.started();
            core.streamFailed(0, new HoldfastException(status, "no"), 0);
            Check.equal(reported.words, List.of("1 failed"));
        }
        Reported reported = new Reported();
        EpochFile[] files = {file(0, 1, 2), file(1, 1, 2)};
        Fetch core = fetch(reported, 8, files);
        core.started();
        core.streamFailed(0, new HoldfastException(Status.TOO_LARGE, "fewer"), 0);
        Check.equal(reported.words, List.of());
        core.fileBad(1, files[0], "checksum");
        Check.equal(reported.words, List.of("1 failed"));
    }

    /** Rivals take nothing of what was not there before, however much or little that is. */
    private static void credit() {
        for (long bytes = MIB; bytes <= 64 * MIB; bytes += MIB / 2) {
            for (int workers = 1; workers <= 12; workers++) {
                FetchLimits limits = new FetchLimits(bytes, 8, 1, 1);
                for (boolean speculative : new boolean[] {false, true}) {
                    int rivals = limits.rivals(speculative);
                    int streams = Math.min(workers, limits.streamsAtOnce(rivals));
                    long most = (long) limits.creditBytes(workers, rivals) * (streams + rivals);
                    Check.that(most <= bytes, most + " of " + bytes + " bytes for " + workers + " workers");
                    Check.that(speculative ? rivals > 0 || bytes < 2 * MIB : rivals == 0, rivals + " rivals");
                }
            }
        }
    }
}
