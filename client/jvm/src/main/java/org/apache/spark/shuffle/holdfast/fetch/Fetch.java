package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.shuffle.holdfast.wire.Status.FetchDisposition;

/**
 * Decides which files to request from which worker, and when to fail; the twin of {@code client/core/read/fetch.py}.
 *
 * <p>Rules: pure; events in, effects out; time is a number that comes with the events. Files that are complete are
 * never asked for again. Per copy of a file three <em>answers</em> that do not help are the end of it (a refusal, a
 * checksum mismatch, missing batches); refused and lost connections are no answers: they are tried again while the
 * masters call the worker alive or it has not been lost for the return grace, which starts again whenever more of a file came
 * of that worker than ever before. A copy whose worker is lost is left at once for another one, and waited for when no
 * other is of any use; one whose worker is merely silent is left for another one that may answer. An {@link Order} gets
 * the results of workers. A stream that is late may get a rival, which requests files of it from another worker;
 * whichever brings data first is read, the other one is closed, so data of two copies are never mixed. Events of a
 * stream that is over are ignored. Called by {@link ChunkFetch} and {@link FetchReader}.
 */
final class Fetch {
    /** Answers without progress, per copy of a file, before the copy is abandoned. */
    static final int TRIES_MAX = 3;
    /** Rivals open at the same time: one shows whether another worker is quicker. */
    static final int RIVALS_MAX = 2;
    private static final long PAUSE_NS_MIN = 50_000_000L;
    private static final long PAUSE_NS_MAX = 2_000_000_000L;

    /** Who judges a file of which no copy is left. */
    interface Judge {
        /** Returns files that are wanted (again) on account of that; throws what the read ends with. */
        Collection<EpochFile> gaveUp(EpochFile file, HoldfastException error) throws HoldfastException;

        /** Whether copies of it may be known by now that were not. */
        default boolean mayHaveMore(EpochFile file) {
            return false;
        }
    }

    private final String where;
    private final Judge judge;
    private final Order order;
    private final long graceNs;
    private final long reachNs;
    private final int streamsMax;
    private final int rivalsMax;
    private final TreeSet<EpochFile> files = new TreeSet<>();
    private final FetchStreams streams = new FetchStreams();
    /** When a worker first could not be reached, and how often since. */
    private final Map<Integer, Long> unreachable = new HashMap<>();
    private final Map<Integer, Integer> refusals = new HashMap<>();
    /** Those of them that answer, and cannot read what they have. */
    private final Set<Integer> failing = new HashSet<>();
    /** The time of the latest event that said it. */
    private long nowNs;
    /** When others did not answer first. */
    private final Map<Integer, Long> silent = new HashMap<>();
    /** Files per stream, where a worker refused a longer one without naming the file it meant. */
    private final Map<Integer, Integer> filesMax = new HashMap<>();
    /** Unreachable workers wait for the masters' word before they are tried again. */
    private final TreeSet<Integer> waiting = new TreeSet<>();
    private boolean over;

    /** @param where names the shuffle in errors */
    Fetch(
            Collection<EpochFile> files, String where, Judge judge, Order order, long graceNs, long reachNs, int streamsMax,
            int rivalsMax) {
        this.where = where;
        this.judge = judge;
        this.order = order;
        this.graceNs = graceNs;
        this.reachNs = Math.max(reachNs, graceNs);
        this.streamsMax = streamsMax;
        this.rivalsMax = rivalsMax;
        this.files.addAll(files);
    }

    boolean isOver() {
        return over;
    }

    // Events.

    /** Opens the first streams. */
    List<Effect> started() {
        return over ? List.of() : goOn();
    }

    /** A file was read to its end and checked. {@code more}: files wanted on account of that, maybe this one again. */
    List<Effect> fileComplete(int stream, EpochFile file, Collection<EpochFile> more) {
        FetchStreams.Stream state = streams.get(stream);
        if (state == null || over) {
            return List.of();
        }
        List<Effect> effects = settle(stream, state);
        if (file.owedBy == stream) {
            file.owedBy = -1;
        }
        if (!more.contains(file)) {
            file.wanted = false;
            files.remove(file);
        }
        boolean waited = reached(state.worker);
        files.addAll(more);
        return !more.isEmpty() || waited || files.isEmpty() ? both(effects, goOn()) : effects;
    }

    /**
     * More of a file than ever before came and was verified: what happened to its worker before counts no more. What comes again
     * is no progress, or a worker that dies at the same place each time would be asked for ever.
     */
    List<Effect> progressed(int stream) {
        if (unreachable.isEmpty() || over) {
            return List.of();
        }
        FetchStreams.Stream state = streams.get(stream);
        if (state == null) {
            return List.of();
        }
        for (EpochFile file : streams.owed(stream)) {
            for (int worker : file.lostCopies) { // nobody tries it while another copy is read
                if (!waiting.contains(worker)) {
                    reached(worker);
                }
            }
        }
        return reached(state.worker) ? goOn() : List.of();
    }

    /** The first data of a stream came, or its END; said where reads are speculative, of every stream. */
    List<Effect> dataCame(int stream) {
        FetchStreams.Stream state = streams.get(stream);
        return state == null || over ? List.of() : settle(stream, state);
    }

    /**
     * Nothing came of a stream for long: asks the worker that has most of what it owes for that, too. Only where all of it
     * has another copy in reach: otherwise the read ends no sooner.
     */
    List<Effect> late(int stream) {
        FetchStreams.Stream state = streams.get(stream);
        if (state == null || over || state.came || state.rivalOf() >= 0 || !maySwitch(stream)) {
            return List.of();
        }
        boolean free = streams.rivalOf(stream) < 0 && streams.rivals() < rivalsMax;
        List<EpochFile> most = free ? elsewhere(stream, state) : List.of();
        return most.isEmpty() ? List.of() : List.of(open(other(most.get(0), state.worker), most, stream));
    }

    /** A stream came to its END. */
    List<Effect> streamEnded(int stream) {
        FetchStreams.Stream state = streams.get(stream);
        if (state == null || over) {
            return List.of();
        }
        List<Effect> effects = settle(stream, state);
        List<EpochFile> owed = streams.owed(stream);
        streams.end(stream);
        try {
            for (EpochFile file : owed) {
                List<Effect> asked = countTry(file, state.worker, Status.CORRUPT, "the stream ended before the file did");
                effects = both(effects, asked);
            }
        } catch (HoldfastException error) {
            return both(effects, stop(error));
        }
        return both(effects, goOn());
    }

    /** What came of a file was wrong or not all of it; the rest of its stream is asked for again too. */
    List<Effect> fileBad(int stream, EpochFile file, String cause) {
        FetchStreams.Stream state = streams.end(stream);
        if (state == null || over) {
            return List.of();
        }
        List<Effect> effects = new ArrayList<>();
        effects.add(new Effect.CloseStream(stream));
        try {
            effects.addAll(countTry(file, state.worker, Status.CORRUPT, cause));
            effects.addAll(goOn());
        } catch (HoldfastException error) {
            effects.addAll(stop(error));
        }
        return effects;
    }

    /** A stream could not be opened, was refused, or broke off. */
    List<Effect> streamFailed(int stream, HoldfastException error, long nowNs) {
        this.nowNs = nowNs;
        List<EpochFile> owed = streams.owed(stream);
        FetchStreams.Stream state = streams.end(stream);
        if (state == null || over) {
            return List.of();
        }
        FetchDisposition answer = Status.fetch(error.status());
        if (answer == FetchDisposition.NO_ANSWER) {
            failing.remove(state.worker);
            silent.putIfAbsent(state.worker, nowNs);
            return noAnswer(state.worker, error.getMessage(), nowNs);
        }
        boolean cannotRead = answer == FetchDisposition.UNREADABLE;
        if (answer == FetchDisposition.STOP) {
            return stop(error);
        }
        if (owed.size() > 1) { // the worker does not say which file it means: halve until it is alone
            filesMax.put(state.worker, owed.size() / 2);
            return goOn();
        }
        if (cannotRead) { // what it cannot read now, such as a DFS that is not mounted, is not lost
            failing.add(state.worker);
            silent.remove(state.worker);
            return noAnswer(state.worker, error.getMessage(), nowNs);
        }
        List<Effect> effects = new ArrayList<>();
        try {
            for (EpochFile file : owed) {
                effects.addAll(countTry(file, state.worker, error.status(), error.getMessage()));
            }
        } catch (HoldfastException end) {
            return stop(end);
        }
        return both(effects, goOn());
    }

    /** The masters list live workers; a worker that is not listed is lost. */
    List<Effect> workersKnown(Set<Integer> alive, long nowNs) {
        this.nowNs = nowNs;
        if (over) {
            return List.of();
        }
        try {
            files.forEach(file -> file.returned(alive));
            for (int worker : waiting) {
                long waitedNs = nowNs - unreachable.getOrDefault(worker, nowNs);
                if (failing.contains(worker) && isOutOfReach(worker, nowNs, graceNs)) {
                    return stop(cannotRead(worker, waitedNs, nowNs));
                } else if (!alive.contains(worker)) {
                    dropWorker(worker, nowNs - silent.getOrDefault(worker, nowNs) > graceNs);
                } else if (isOutOfReach(worker, nowNs, reachNs)) {
                    return stop(outOfReach(worker, waitedNs, nowNs));
                }
            }
        } catch (HoldfastException error) {
            return stop(error);
        }
        return tryAgain();
    }

    /** The masters cannot be reached: keep trying the workers for the return grace. */
    List<Effect> mastersSilent(HoldfastException error, long nowNs) {
        this.nowNs = nowNs;
        if (over) {
            return List.of();
        }
        boolean hopeless = !waiting.isEmpty();
        for (int worker : waiting) {
            hopeless &= isOutOfReach(worker, nowNs, graceNs);
        }
        if (hopeless) {
            return stop(error);
        }
        return tryAgain();
    }

    /** The masters answered, or did not: all who waited for that are tried again. */
    private List<Effect> tryAgain() {
        waiting.clear();
        for (EpochFile file : files) {
            if (file.awaitsMasters && file.asked == 1) {
                file.askedSinceNs = nowNs;
            }
            file.awaitsMasters = false;
        }
        return goOn();
    }

    /** What was read cannot be helped by reading more: the read is over. */
    List<Effect> stop(HoldfastException error) {
        if (over) {
            return List.of();
        }
        over = true;
        List<Effect> effects = closeAll();
        effects.add(new Effect.Failed(error));
        return effects;
    }

    /** Whether all that is missing of a stream has another copy, on a worker that is known to answer. */
    boolean maySwitch(int stream) {
        FetchStreams.Stream state = streams.get(stream);
        if (state == null) {
            return false;
        }
        for (EpochFile file : state.files) {
            if (FetchStreams.isOwedBy(file, stream) && file.wanted && other(file, state.worker) < 0) {
                return false;
            }
        }
        return true;
    }

    /** How many workers have files that are wanted, as far as copies are preferred now. */
    int workersWanted() {
        Set<Integer> workers = new HashSet<>();
        for (EpochFile file : files) {
            workers.add(choose(file));
        }
        return workers.size();
    }

    /** What the read waits for while nothing comes, for the log. */
    String waitsFor() {
        Set<Integer> workers = new TreeSet<>(waiting);
        streams.addWorkers(workers);
        String cause = files.stream().map(file -> file.cause).filter(each -> !each.isEmpty()).findFirst().orElse("");
        return files.size() + " files of workers " + workers + (cause.isEmpty() ? "" : "; the last error: " + cause);
    }

    // Decisions.

    /** The reachable copy that is requested next after the one of this worker; -1 without one. */
    private int other(EpochFile file, int worker) {
        for (int copy : file.copies) {
            if (copy != worker && !unreachable.containsKey(copy)) {
                return copy;
            }
        }
        return -1;
    }

    /** Of what a stream owes, what the worker has that has most of it; of equals the first. */
    private List<EpochFile> elsewhere(int stream, FetchStreams.Stream state) {
        Map<Integer, List<EpochFile>> found = new LinkedHashMap<>();
        List<EpochFile> most = List.of();
        for (EpochFile file : state.files) {
            if (FetchStreams.isOwedBy(file, stream) && file.wanted) {
                found.computeIfAbsent(other(file, state.worker), any -> new ArrayList<>()).add(file);
            }
        }
        for (List<EpochFile> each : found.values()) {
            most = each.size() > most.size() ? each : most;
        }
        return most;
    }

    /** Something came of a stream: closes the other one that is asked for the same files. */
    private List<Effect> settle(int stream, FetchStreams.Stream state) {
        if (state.came) {
            return List.of();
        }
        state.came = true;
        int first = state.rivalOf();
        if (first < 0) {
            int rival = streams.rivalOf(stream);
            if (rival < 0) {
                return List.of();
            }
            streams.end(rival);
            return List.of(new Effect.CloseStream(rival));
        }
        FetchStreams.Stream lost = streams.end(first);
        order.slow(lost.worker);
        for (EpochFile file : files) {
            if (file.copies.length > 1 && file.hasCopyOn(lost.worker)) {
                file.moveBack(lost.worker);
            }
        }
        return both(List.of(new Effect.CloseStream(first)), goOn());
    }

    private static List<Effect> both(List<Effect> first, List<Effect> then) {
        if (first.isEmpty()) {
            return then;
        }
        List<Effect> effects = new ArrayList<>(first);
        effects.addAll(then);
        return effects;
    }

    private List<Effect> closeAll() {
        List<Effect> effects = new ArrayList<>();
        for (int stream : streams.numbers()) {
            effects.add(new Effect.CloseStream(stream));
        }
        return effects;
    }

    /** Opens what can be opened. */
    private List<Effect> goOn() {
        if (files.isEmpty()) {
            over = true;
            List<Effect> effects = closeAll();
            effects.add(new Effect.Complete());
            return effects;
        }
        Map<Integer, List<EpochFile>> wanted = new LinkedHashMap<>();
        for (EpochFile file : files) {
            if (file.owedBy < 0 && !file.awaitsMasters) {
                wanted.computeIfAbsent(choose(file), any -> new ArrayList<>()).add(file);
            }
        }
        Set<Integer> busy = new HashSet<>(waiting);
        int open = streams.addWorkers(busy);
        List<Effect> effects = new ArrayList<>();
        for (Map.Entry<Integer, List<EpochFile>> each : wanted.entrySet()) {
            if (open >= streamsMax) {
                break;
            }
            if (!busy.contains(each.getKey())) {
                effects.add(open(each.getKey(), each.getValue(), -1));
                open++;
            }
        }
        return effects;
    }

    /** The first copy that is known to be reachable; else the one whose worker was tried least often. */
    private int choose(EpochFile file) {
        int best = file.copies[0];
        if (unreachable.isEmpty()) {
            return best;
        }
        for (int copy : file.copies) {
            boolean late = unreachable.containsKey(copy);
            boolean bestLate = unreachable.containsKey(best);
            boolean rarer = refusals.getOrDefault(copy, 0) < refusals.getOrDefault(best, 0);
            if (late == bestLate ? rarer : bestLate) {
                best = copy;
            }
        }
        return best;
    }

    private Effect open(int worker, List<EpochFile> all, int rivalOf) {
        int count = Math.min(all.size(), filesMax.getOrDefault(worker, Limits.STREAM_FILES_MAX));
        List<EpochFile> chosen = List.copyOf(all.subList(0, count));
        int stream = streams.open(worker, chosen, rivalOf);
        return new Effect.OpenStream(stream, worker, chosen);
    }

    /** What happened to a worker before counts no more; returns whether it waited for the masters' word. */
    private boolean reached(int worker) {
        unreachable.remove(worker);
        refusals.remove(worker);
        failing.remove(worker);
        silent.remove(worker);
        return waiting.remove(worker);
    }

    private List<Effect> noAnswer(int worker, String cause, long nowNs) {
        order.failed(worker);
        unreachable.putIfAbsent(worker, nowNs);
        int times = refusals.merge(worker, 1, Integer::sum);
        waiting.add(worker);
        for (EpochFile file : files) {
            if (file.hasCopyOn(worker)) {
                file.cause = cause;
            }
        }
        List<Effect> effects = new ArrayList<>();
        effects.add(new Effect.AskMasters(pauseNs(times)));
        effects.addAll(goOn());
        return effects;
    }

    /** Nothing after the first refusal, then more and more. */
    private static long pauseNs(int refusals) {
        return refusals < 2 ? 0 : Math.min(PAUSE_NS_MAX, PAUSE_NS_MIN << Math.min(refusals - 2, 10));
    }

    /**
     * Counts an answer that did not help; throws how the read ends if no copy is left. Before the last try of the last copy
     * the masters are asked, if they may know of another one by now; again and again for the grace.
     */
    private List<Effect> countTry(EpochFile file, int worker, int status, String cause) throws HoldfastException {
        if (!file.wanted || !file.hasCopyOn(worker)) {
            return List.of(); // abandoned meanwhile
        }
        order.failed(worker);
        file.cause = cause;
        file.status = status;
        int tries = file.countTry(worker);
        boolean last = file.isAlone() && tries >= TRIES_MAX - 1;
        boolean inTime = file.asked == 0 || nowNs - file.askedSinceNs <= graceNs;
        if (last && inTime && judge.mayHaveMore(file)) {
            file.tries.put(worker, TRIES_MAX - 1);
            file.awaitsMasters = true;
            return List.of(new Effect.AskMasters(pauseNs(++file.asked)));
        }
        if (tries >= TRIES_MAX) {
            file.removeCopy(worker);
            file.abandoned = "; the copy on worker " + worker + " cannot be read: " + cause;
        } else if (file.copies.length > 1) { // the other copy next
            file.moveBack(worker);
        }
        if (file.copies.length > 0 || file.retryLost()) {
            return List.of();
        }
        List<String> tried = new ArrayList<>();
        file.tries.forEach((copy, count) -> tried.add("worker " + copy + " " + count + " times"));
        String text = where + ": " + file + " cannot be read whole (" + String.join(", ", tried) + "): " + cause;
        int verdict = file.status == Status.CORRUPT ? Status.CORRUPT : Status.DATA_LOST;
        noCopy(file, new HoldfastException(verdict, text));
        return List.of();
    }

    /** Abandons the copies of a lost worker, if the grace is over; leaves them where another copy is left. */
    private void dropWorker(int worker, boolean spent) throws HoldfastException {
        for (EpochFile file : new ArrayList<>(files)) {
            if (!file.hasCopyOn(worker) || (file.copies.length == 1 && !spent)) {
                continue;
            }
            file.removeCopy(worker);
            if (!spent) {
                file.lost(worker);
            }
            if (file.copies.length == 0 && !file.retryLost()) {
                String text = where + ": " + file + " is lost: worker " + worker + " has been lost for more than "
                        + graceNs / 1_000_000_000 + " s and held the last copy (" + file.cause
                        + ")" + file.abandoned
                        + ". Start worker " + worker
                        + " again on its directories, or run the map stage again.";
                noCopy(file, new HoldfastException(Status.DATA_LOST, text));
            }
        }
    }

    /** The last copy of a file is abandoned; throws the result of the read, if this ends it. */
    private void noCopy(EpochFile file, HoldfastException error) throws HoldfastException {
        file.wanted = false;
        Collection<EpochFile> more = judge.gaveUp(file, error);
        if (!file.wanted) {
            files.remove(file);
        }
        files.addAll(more);
    }

    /** Whether some file of this worker has no copy that was reached within {@code limitNs}. */
    private boolean isOutOfReach(int worker, long nowNs, long limitNs) {
        for (EpochFile file : files) {
            if (file.hasCopyOn(worker) && Arrays.stream(file.copies)
                    .allMatch(copy -> nowNs - unreachable.getOrDefault(copy, nowNs) > limitNs)) {
                return true;
            }
        }
        return false;
    }

    /** The workers that nothing was read from for so long. */
    private Set<Integer> outOfReachFor(long limitNs, long nowNs) {
        Set<Integer> found = new TreeSet<>(unreachable.keySet());
        found.removeIf(worker -> nowNs - unreachable.get(worker) <= limitNs);
        return found;
    }

    private HoldfastException cannotRead(int worker, long waitedNs, long nowNs) {
        for (EpochFile file : files) {
            if (file.hasCopyOn(worker)) {
                String text = where + ": " + file + " is not lost, but worker " + worker + " could not read it for "
                        + waitedNs / 1_000_000_000 + " s (DISK_FAILED): " + file.cause;
                return new UnusableWorkersException(Status.DISK_FAILED, text, outOfReachFor(graceNs, nowNs));
            }
        }
        throw new AssertionError("worker " + worker + " has a file that is out of reach");
    }

    private HoldfastException outOfReach(int worker, long waitedNs, long nowNs) {
        int count = 0;
        String cause = "";
        for (EpochFile file : files) {
            if (file.hasCopyOn(worker)) {
                count++;
                cause = cause.isEmpty() ? file.cause : cause;
            }
        }
        String text = where + ": worker " + worker + " holds " + count + " files that are wanted. The masters call it "
                + "alive, but it could not be read from here for " + waitedNs / 1_000_000_000 + " s: " + cause
                + ". Is its data address reachable from this host?";
        return new UnusableWorkersException(Status.UNAVAILABLE, text, outOfReachFor(reachNs, nowNs));
    }

    /** Throws if the books disagree; for tests. */
    void check() {
        streams.check(streamsMax, rivalsMax);
        if (!over && files.stream().anyMatch(file -> file.copies.length == 0 || !file.wanted)) {
            throw new IllegalStateException("the books of a read disagree");
        }
    }
}
