package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * The state of one primary for one attempt: waiting and sent batches, and how often it failed in a row.
 *
 * <p>Rules: records only, no decision about destinations. A frame is in {@link #queue} or in {@link #sent}, never in
 * both; the window counts what is in {@code sent}. Owned and called by {@link PushSession}.
 */
final class WorkerPushes {
    /** Times in a row that a worker may be lost before its batches go elsewhere: a connection may break otherwise. */
    static final int LOSSES_MAX = 2;
    /** Refusals for the moment, in a row: with the pauses that is about a minute, then the batches go elsewhere. */
    static final int BUSY_MAX = 32;
    /** Frames in a row that may arrive damaged before the batches of the worker are sent elsewhere. */
    static final int DAMAGES_MAX = 3;

    final int worker;
    final Window window = new Window();
    final ArrayDeque<PushFrame> queue = new ArrayDeque<>();
    /** In the order they were sent. */
    final ArrayDeque<PushFrame> sent = new ArrayDeque<>();
    /** Of the connection; null without one. */
    Credit credit;
    boolean connecting;
    /** Nothing is pushed until the Wake. */
    boolean paused;
    /** In a row: losses, refusals for the moment, damages. */
    int losses;
    int busy;
    int damages;
    /** Turns in a row without direct memory for a connection or its data. */
    int hungers;

    WorkerPushes(int worker) {
        this.worker = worker;
    }

    /** Whether there is a connection and nothing is owed on it. */
    boolean idle() {
        return credit != null && sent.isEmpty() && !credit.asked();
    }

    /** The first frame that waits is on its way. */
    void sendFirst() {
        PushFrame frame = queue.removeFirst();
        sent.addLast(frame);
        window.sent(frame.size());
    }

    /** It is not on its way any more; the window grows only with what was kept. */
    void off(PushFrame frame, boolean kept) {
        sent.remove(frame);
        window.answered(frame.size(), kept);
    }

    /** There is no connection any more: what was on its way waits first again, in its order; returns it. */
    List<PushFrame> takeBack() {
        connecting = false;
        credit = null;
        List<PushFrame> lost = new ArrayList<>(sent);
        for (int each = lost.size() - 1; each >= 0; each--) {
            off(lost.get(each), false);
            queue.addFirst(lost.get(each));
        }
        return lost;
    }

    /** The worker has decided on a push: whatever failed in a row is over. */
    void heard() {
        losses = 0;
        busy = 0;
        damages = 0;
    }

    @Override
    public String toString() {
        String reason = connecting ? " for a connection" : paused ? " for the end of a pause" : credit != null && credit.asked() ? " for room" : "";
        return "worker " + worker + " has not answered " + sent.size() + " pushes, " + queue.size() + " wait" + reason;
    }

    /** Lets go of all frames. */
    void end(Consumer<PushFrame> release) {
        queue.forEach(release);
        queue.clear();
        sent.forEach(release);
        sent.clear();
    }

    /** Throws AssertionError if the books disagree; returns the bytes on their way. */
    long check() {
        window.check();
        long mine = sent.stream().mapToLong(PushFrame::size).sum();
        Checks.that(window.unanswered() == mine, "the window of worker " + worker);
        Checks.that(credit == null || credit.given() == mine, "the credit of worker " + worker);
        for (PushFrame each : queue) {
            Checks.that(each.left() == each.count(), "queued frames are whole");
        }
        return mine;
    }
}
