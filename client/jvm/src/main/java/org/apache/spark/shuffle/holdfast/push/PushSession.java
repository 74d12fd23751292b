package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.CurrentEpoch;
import org.apache.spark.shuffle.holdfast.push.PushEffect.AskCredit;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Connect;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Send;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.shuffle.holdfast.wire.Status.PushDisposition;

/**
 * Pushes the frames of one map attempt: decides where and when each is sent, and what a refusal means.
 *
 * <p>Rules: no clock, socket or thread; events in, effects out ({@link #poll}). A batch keeps its number whatever happens
 * to it. Frames wait per worker; a batch whose partition has moved meanwhile is copied into a frame for its new place
 * when its turn comes. What is refused waits in the frame it came in for one Revive over all partitions refused at that
 * time. Where it is not known whether a worker kept a frame, it is sent to the same place again, and only when it
 * cannot be reached elsewhere: readers drop what is there twice. A batch may be acknowledged before all of its copies have it; the attempt
 * ends when all have everything, or the masters know which do not. The same decisions as client/core/write/push.py, except that
 * frames are composed by the writer. Called by {@link Pusher}.
 *
 * <pre>
 *   queued --window, credit--> on its way --kept--> released
 *      ^---again-------------------/     \--refused--> parked --revived--> queued
 * </pre>
 */
final class PushSession {
    /** On its way to all workers together. */
    static final long UNANSWERED_BYTES_MAX = 64L << 20;

    private final PartitionLocations locations;
    private final String where;
    private final FrameStore store;
    private final long unansweredMax;
    private final Revivals revivals;
    private final Laggards laggards = new Laggards();
    private final Map<Integer, WorkerPushes> pushesByWorker = new LinkedHashMap<>();
    private final Deque<PushEffect> effects = new ArrayDeque<>();
    private final Parking parking;
    /** Frames that are not released. */
    private int live;
    private long unanswered;
    /** Batches that workers have said they keep, each once. */
    private long kept;
    /** How many there are in all; known at the end. */
    private long made;
    private boolean finishing;
    private boolean over;

    /** @param where names shuffle, map and attempt in errors */
    PushSession(PartitionLocations locations, String where, FrameStore store, PushLimits limits) {
        this(locations, where, store, limits.frameBytes(), UNANSWERED_BYTES_MAX, Revivals.REVIVES_MAX, limits.noRoomNs());
    }

    PushSession(
            PartitionLocations locations, String where, FrameStore store, int frameBytes, long unansweredMax, int revivesMax,
            long noRoomNs) {
        this.locations = locations;
        this.where = where;
        this.store = store;
        this.unansweredMax = unansweredMax;
        revivals = new Revivals(locations, revivesMax, noRoomNs);
        parking = new Parking(locations, revivals, store, frameBytes);
    }

    /** The next thing to do, null for nothing. */
    PushEffect poll() {
        return effects.poll();
    }

    /** Nothing matters any more. */
    boolean over() {
        return over;
    }

    /** Whether there is anything that is not kept yet. */
    boolean waits() {
        return (live > 0 || laggards.waiting() || revivals.lacks()) && !over;
    }

    /** Batches kept so far: a waiter that sees no more of them has to get some result, or waits for ever. */
    long kept() {
        return kept;
    }

    /** What is waited for, for people. */
    String waitsFor() {
        List<String> found = new ArrayList<>();
        for (WorkerPushes each : pushesByWorker.values()) {
            if (!each.queue.isEmpty() || !each.sent.isEmpty()) {
                found.add(each.toString());
            }
        }
        if (revivals.waiting()) {
            found.add(revivals.toString());
        }
        if (laggards.waiting()) {
            found.add(laggards.toString());
        }
        if (parking.lacking() != null) {
            found.add(parking.lacking().getMessage());
        }
        return String.join("; ", found);
    }

    // Events.

    /** The caller has a frame; it is released through the store when it is not needed any more. */
    void added(PushFrame frame) {
        Checks.that(!finishing, "frames are added before the end");
        live++;
        enqueue(frame);
        advance();
    }

    /** No more frames: done when all are kept. @param batches how many were made for the frames that came */
    void finished(long batches) {
        finishing = true;
        made = batches;
        advance();
        endIfAllIsKept();
    }

    /** There is a connection, which has this credit. */
    void connected(int worker, Credit credit) {
        WorkerPushes pushes = pushesByWorker.get(worker);
        pushes.connecting = false;
        pushes.credit = credit;
        pushes.hungers = 0;
        if (!over) {
            advance();
        }
    }

    /** A connection was lost, or cannot be made: it is unknown whether the frames on it arrived. Idle ones may be closed. */
    void disconnected(int worker, HoldfastException error) {
        WorkerPushes pushes = pushesByWorker.get(worker);
        boolean idle = pushes.idle();
        List<PushFrame> lost = takeBack(pushes);
        if (over) {
            return;
        }
        PushDisposition disposition = Status.push(error.status());
        // The token is refused with the greeting, so nothing is on its way then.
        if (disposition == PushDisposition.STOP && (!lost.isEmpty() || (!idle && Status.barred(error.status())))) {
            stop(error);
            return;
        }
        if (disposition == PushDisposition.MOVE) {
            revivals.cause = error.getMessage();
            for (PushFrame each : lost) {
                pushes.queue.remove(each);
                refuseAll(each, error.status());
            }
        } else if (!idle) {
            lost(pushes, error);
        }
        advance();
    }

    /**
     * There is no direct memory for a connection, or for its data, and it is closed: no fault of the worker's. Tries again after a
     * pause, while this attempt and others give theirs back.
     */
    void starved(int worker, NoDirectMemoryException full) {
        WorkerPushes pushes = pushesByWorker.get(worker);
        takeBack(pushes);
        if (over) {
            return;
        }
        if (++pushes.hungers > Parking.TURNS_MAX) {
            stop(new HoldfastException(Status.INTERNAL, where + ": " + full.getMessage(), full));
            return;
        }
        if (!pushes.paused) {
            pushes.paused = true;
            effects.add(new Wake(Parking.PAUSE_NS, worker));
        }
        advance();
    }

    /** There is no connection any more: what was on its way to it waits again, and is returned. */
    private List<PushFrame> takeBack(WorkerPushes pushes) {
        // What was decided for this connection and not carried out yet is void.
        effects.removeIf(each -> each instanceof Send send && send.frame().destination.primary() == pushes.worker
                || each instanceof AskCredit ask && ask.worker() == pushes.worker);
        List<PushFrame> lost = pushes.takeBack();
        for (PushFrame each : lost) {
            unanswered -= each.size();
        }
        return lost;
    }

    /** The worker grants what it was asked for. */
    void granted(int worker, int window) {
        WorkerPushes pushes = pushesByWorker.get(worker);
        pushes.credit.granted(window);
        if (!over) {
            advance();
        }
    }

    /**
     * The worker has decided: all batches are kept, except those that are named, by index; {@code failed} are the replicas that did not keep some,
     * {@code behind} those that may lack some that are kept.
     */
    void answered(PushFrame frame, int window, int failed, int behind, int[] indices, int[] statuses) {
        WorkerPushes pushes = pushesByWorker.get(frame.destination.primary());
        pushes.credit.answered(frame.size(), window);
        off(pushes, frame, true);
        if (over) {
            release(frame);
            return;
        }
        pushes.heard();
        if (indices.length > 0 && !refusals(pushes, frame, failed, behind, indices, statuses)) {
            return;
        }
        if (indices.length == 0) {
            kept += frame.count();
            for (int each = 0; each < frame.count(); each++) {
                accepted(frame, each, behind);
            }
            release(frame);
        }
        endIfAllIsKept();
        if (!over) {
            advance();
        }
    }

    /** A push was refused as a whole. */
    void failed(PushFrame frame, HoldfastException error) {
        WorkerPushes pushes = pushesByWorker.get(frame.destination.primary());
        PushDisposition disposition = Status.push(error.status());
        if (disposition == PushDisposition.AGAIN) {
            pushes.credit.answered(frame.size(), 0);
        } else {
            pushes.credit.returned(frame.size());
        }
        off(pushes, frame, false);
        if (over) {
            release(frame);
            return;
        }
        if (disposition == PushDisposition.MOVE) {
            revivals.cause = error.getMessage();
            refuseAll(frame, error.status());
            advance();
            return;
        }
        pushes.queue.addFirst(frame);
        switch (disposition) {
            case AGAIN -> {
                pushes.busy++;
                pushes.window.congested();
                pause(pushes);
                if (pushes.busy >= WorkerPushes.BUSY_MAX) {
                    leave(pushes, error.getMessage());
                }
            }
            case DAMAGED -> {
                if (++pushes.damages >= WorkerPushes.DAMAGES_MAX) {
                    pushes.damages = 0;
                    leave(pushes, "worker " + pushes.worker + ": " + error.getMessage());
                }
            }
            case UNKNOWN -> lost(pushes, error);
            default -> stop(error);
        }
        if (!over) {
            advance();
        }
    }

    /** The masters have answered, and the locations are updated; {@code limitsMet} as in {@link Revivals#answered}. */
    void revived(String limitsMet) {
        revivals.recorded();
        revivals.answered(limitsMet);
        if (!over) {
            advance();
            endIfAllIsKept();
        }
    }

    /** A primary says which copies are incomplete. */
    void settled(PushEffect.Settle settle, List<IncompleteCopy> incomplete) {
        laggards.settled(settle);
        revivals.lacking(incomplete);
        endIfAllIsKept();
    }

    /** A primary does not say which copies are incomplete. */
    void unsettled(PushEffect.Settle settle) {
        revivals.lacking(laggards.unsettled(settle));
        endIfAllIsKept();
    }

    /** The masters refuse, or do not answer. */
    void reviveFailed(HoldfastException error) {
        revivals.answered();
        if (over || !revivals.waiting()) {
            return; // only soft splits were asked about: the old places are good still
        }
        if (Status.push(error.status()) == PushDisposition.STOP) {
            stop(error);
            return;
        }
        if (error.status() == Status.REPLICA_FAILED) {
            stop(new HoldfastException(Status.UNAVAILABLE, where + ": " + error.getMessage() + "; run the map again", error));
            return;
        }
        revivals.cause = "the masters answered: " + error.getMessage();
        advance();
    }

    /** The time of a Wake has come. */
    void woken(int worker) {
        if (over) {
            return;
        }
        if (worker == Wake.FOR_REVIVE) {
            revivals.woken();
            askRevive();
        } else if (worker == Wake.FOR_MEMORY) {
            parking.fed();
            sortAnew(parking.leave());
        } else {
            pushesByWorker.get(worker).paused = false;
        }
        advance();
    }

    /** The caller gives the attempt up, or it is over: releases all frames. What was pushed is a loser's. */
    void end() {
        over = true;
        for (WorkerPushes each : pushesByWorker.values()) {
            each.end(this::release);
        }
        parking.leave().forEach(this::release);
    }

    // Decisions.

    private WorkerPushes pushes(int id) {
        return pushesByWorker.computeIfAbsent(id, WorkerPushes::new);
    }

    private void enqueue(PushFrame frame) {
        pushes(frame.destination.primary()).queue.addLast(frame);
    }

    /** Does what is due: asks for new places, sends what may go. */
    private void advance() {
        planRevive();
        boolean again = !over;
        while (again) {
            again = false;
            for (WorkerPushes each : new ArrayList<>(pushesByWorker.values())) {
                again |= push(each);
            }
        }
    }

    /** Sends what may go to one worker; returns whether batches were sorted anew, maybe for a worker seen before. */
    private boolean push(WorkerPushes pushes) {
        while (!pushes.queue.isEmpty() && !pushes.paused) {
            PushFrame frame = pushes.queue.peekFirst();
            if (!route(frame)) {
                pushes.queue.removeFirst();
                sortAnew(List.of(frame));
                return true;
            }
            int size = frame.size();
            long free = Math.min(pushes.window.free(), unansweredMax - unanswered);
            if (pushes.window.unanswered() > 0 && free < size) {
                return false; // an answer comes first
            }
            if (pushes.credit == null) {
                if (!pushes.connecting) {
                    pushes.connecting = true;
                    effects.add(new Connect(pushes.worker));
                }
                return false;
            }
            if (!pushes.credit.take(size)) {
                int ask = pushes.credit.ask(size);
                if (ask > 0) {
                    effects.add(new AskCredit(pushes.worker, ask));
                }
                return false;
            }
            pushes.sendFirst();
            unanswered += size;
            effects.add(new Send(frame));
        }
        return false;
    }

    /** Records the destination of each batch; returns false if any of them has another place by now, or none. */
    private boolean route(PushFrame frame) {
        boolean parked = revivals.waiting();
        for (int each = 0; each < frame.count(); each++) {
            int partition = frame.partition(each);
            CurrentEpoch place = locations.at(partition);
            if (place.destination().slot() != frame.destination.slot() || (parked && revivals.isParked(partition))) {
                return false;
            }
            frame.route(each, place);
        }
        return true;
    }

    /** Sends the batches of these frames on to where they go now; those without a place wait. */
    private void sortAnew(List<PushFrame> frames) {
        boolean hungry = parking.lacking() != null;
        for (PushFrame each : parking.sort(frames)) {
            live++;
            enqueue(each);
        }
        for (PushFrame each : frames) {
            if (each.left() == 0) {
                release(each);
            }
        }
        NoDirectMemoryException lacking = parking.lacking();
        if (lacking != null && parking.spent() && !over) {
            stop(new HoldfastException(Status.INTERNAL, where + ": " + lacking.getMessage(), lacking));
        } else if (lacking != null && !hungry) { // otherwise a Wake is coming
            effects.add(new Wake(Parking.PAUSE_NS, Wake.FOR_MEMORY));
        }
    }

    /** Takes a frame off the books of what is on its way. */
    private void off(WorkerPushes pushes, PushFrame frame, boolean kept) {
        pushes.off(frame, kept);
        unanswered -= frame.size();
    }

    /** Does what the statuses of single batches ask for; returns false if that ended the attempt. */
    private boolean refusals(WorkerPushes pushes, PushFrame frame, int failed, int behind, int[] indices, int[] statuses) {
        boolean congested = false;
        int next = 0;
        for (int each = 0; each < frame.count(); each++) {
            int status = Status.OK;
            if (next < indices.length && indices[next] == each) {
                status = statuses[next++];
            }
            PushDisposition disposition = Status.push(status);
            congested |= status == Status.SLOW_DOWN || disposition == PushDisposition.AGAIN;
            switch (disposition) {
                case KEPT -> {
                    kept++;
                    accepted(frame, each, behind);
                    frame.drop(each);
                    if (status == Status.SOFT_SPLIT) {
                        revivals.split(frame.partition(each), frame.epoch(each));
                    }
                }
                case MOVE -> {
                    revivals.cause = "worker " + pushes.worker + " answered " + Status.name(status);
                    revivals.refuse(frame.partition(each), frame.epoch(each), frame.destination, status, failed);
                }
                case STOP -> {
                    return stopAt(frame, each, status);
                }
                default -> { } // the same again, in a frame of its own
            }
        }
        if (next < indices.length) {
            release(frame);
            stop(new HoldfastException(Status.BAD_FRAME, where + ": a status for a batch that was not sent, or out of order"));
            return false;
        }
        boolean refused = frame.left() > 0;
        if (congested) {
            pushes.window.congested();
            pushes.busy += refused ? 1 : 0;
        }
        if (pushes.busy > 0) {
            pause(pushes);
        }
        if (refused) {
            sortAnew(List.of(frame));
        } else {
            release(frame);
        }
        return true;
    }

    /** A batch is acknowledged, and these replicas are behind. */
    private void accepted(PushFrame frame, int index, int behind) {
        revivals.accepted(frame.partition(index));
        laggards.acknowledged(frame.destination, frame.partition(index), frame.epoch(index), behind);
    }

    private boolean stopAt(PushFrame frame, int index, int status) {
        int partition = frame.partition(index);
        String epoch = Integer.toUnsignedString(frame.epoch(index));
        int worker = frame.destination.primary();
        release(frame);
        stop(new HoldfastException(status,
                where + ": partition " + partition + " epoch " + epoch + " on worker " + worker + ": " + Status.name(status)));
        return false;
    }

    private void pause(WorkerPushes pushes) {
        if (!pushes.paused) {
            pushes.paused = true;
            effects.add(new Wake(Revivals.pauseNs(pushes.busy + pushes.losses, 1), pushes.worker));
        }
    }

    /** The worker cannot be reached: try again at once, then go elsewhere. */
    private void lost(WorkerPushes pushes, HoldfastException error) {
        boolean silent = error.status() == Status.OUTCOME_UNKNOWN;
        if (pushes.paused && !silent) {
            return; // the same loss again
        }
        pushes.losses++;
        if (pushes.losses < WorkerPushes.LOSSES_MAX && !silent) {
            pause(pushes);
        } else {
            leave(pushes, error.getMessage());
        }
    }

    /** Whatever waits for this worker asks for another place. */
    private void leave(WorkerPushes pushes, String cause) {
        revivals.cause = cause;
        List<PushFrame> waiting = new ArrayList<>(pushes.queue);
        pushes.queue.clear(); // a restarted worker may get frames of its own
        for (PushFrame frame : waiting) {
            for (int each = 0; each < frame.count(); each++) {
                CurrentEpoch place = locations.at(frame.partition(each));
                if (frame.has(each) && place.destination().slot() == frame.destination.slot()) {
                    revivals.refuse(frame.partition(each), place.epoch(), place.destination(), Status.UNAVAILABLE, 0);
                }
            }
        }
        sortAnew(waiting);
    }

    // Revives.

    /** No batch of it was taken there: each waits for another place, or is sent there if it is known. */
    private void refuseAll(PushFrame frame, int status) {
        for (int each = 0; each < frame.count(); each++) {
            revivals.refuse(frame.partition(each), frame.epoch(each), frame.destination, status, 0);
        }
        sortAnew(List.of(frame));
    }

    /** Sends on what has a new place by now, then asks for the others, all at once, or after a pause. */
    private void planRevive() {
        if (revivals.placed()) {
            sortAnew(parking.leave());
        }
        HoldfastException spent = revivals.spent(where);
        if (spent != null) {
            stop(spent);
            return;
        }
        long pause = revivals.pauseNs();
        if (pause > 0) {
            effects.add(new Wake(pause, Wake.FOR_REVIVE));
        } else {
            askRevive();
        }
    }

    private void askRevive() {
        List<Integer> unreachable = new ArrayList<>();
        for (WorkerPushes each : pushesByWorker.values()) {
            if (each.losses > 0) {
                unreachable.add(each.worker);
            }
        }
        Revive revive = revivals.ask(unreachable);
        if (revive != null) {
            effects.add(revive);
        }
    }

    // Ends.

    private void endIfAllIsKept() {
        if (finishing && live == 0 && !over && kept != made) {
            stop(new HoldfastException(Status.INTERNAL, where + ": " + made + " batches were made, and workers keep " + kept));
        } else if (finishing && live == 0 && !over) {
            settle();
        }
    }

    /** Every batch is kept: it is over when it is known what all copies have, and the masters know it, too. */
    private void settle() {
        effects.addAll(laggards.settle());
        if (laggards.waiting()) {
            return;
        }
        if (revivals.lacks()) {
            planRevive();
            return;
        }
        over = true;
        effects.add(new Done());
    }

    private void stop(HoldfastException error) {
        over = true;
        effects.add(new Failed(error));
    }

    private void release(PushFrame frame) {
        live--;
        store.release(frame);
    }

    /** Throws AssertionError if the books disagree. */
    void check() {
        int frames = parking.check();
        long flying = 0;
        for (WorkerPushes pushes : pushesByWorker.values()) {
            flying += pushes.check();
            frames += pushes.queue.size() + pushes.sent.size();
        }
        Checks.that(live == frames || over, "every frame is in one place");
        Checks.that(unanswered == flying, "unanswered bytes");
    }
}
