package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.PushCredit;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * One borrowed connection of a writer, what is under way on it, and how long that may take. Called by {@link Pusher}.
 */
final class Link {
    /** A worker that acknowledges nothing for so long is as good as lost (stopped, or its disk hangs). */
    static final long ACK_NS = 30_000_000_000L;
    /** Who waits for room asks so often whether the worker lives: it may have nothing to give for long. */
    static final long PING_NS = 10_000_000_000L;
    /** A living worker that has no room for so long has a disk that hangs, or worse. */
    static final long ROOM_NS = 600_000_000_000L;

    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private record Pending(long request, PushFrame frame, long sentAtNs) {}

    /** A question about replicas that are behind. */
    private record Asked(PushEffect.Settle settle, long sentAtNs) {}

    final int worker;
    final WorkerConnection connection;
    final Credit credit;
    private final ArrayDeque<Pending> pending = new ArrayDeque<>();
    /** By request, in the order they were sent. */
    private final Map<Long, Asked> settling = new LinkedHashMap<>();
    /** Request ids, 0 without one. */
    private long creditRequest;
    private long pingRequest;
    /** When the worker was last asked for room. */
    long askedAtNs;
    private long heardAtNs;

    Link(WorkerConnection connection, long nowNs) {
        this.connection = connection;
        worker = connection.worker();
        Credit kept = (Credit) connection.attachment();
        credit = kept == null ? new Credit() : kept;
        credit.wakes(nowNs);
        connection.attach(credit);
    }

    /** Whether an answer is due. */
    boolean isBusy() {
        return !pending.isEmpty() || !settling.isEmpty() || creditRequest != 0 || pingRequest != 0;
    }

    /** Whether the connection may serve another attempt: no answer is due, and no credit is taken for what was never sent. */
    boolean isSettled() {
        return !isBusy() && credit.closed() && !connection.isClosed();
    }

    void push(PushFrame frame, ByteBuffer meta, long nowNs) throws HoldfastException {
        long request = connection.send(FrameType.PUSH, meta, frame.bytes());
        pending.addLast(new Pending(request, frame, nowNs));
    }

    void settle(PushEffect.Settle settle, ByteBuffer meta, long nowNs) throws HoldfastException {
        settling.put(connection.send(FrameType.PUSH_SETTLE, meta), new Asked(settle, nowNs));
    }

    /** Takes the question off the books that this request is; null if it is none. */
    PushEffect.Settle settled(long request) {
        Asked found = settling.remove(request);
        return found == null ? null : found.settle();
    }

    /** The questions that are not answered. */
    List<PushEffect.Settle> settling() {
        return settling.values().stream().map(Asked::settle).toList();
    }

    void ask(int size, long nowNs) throws HoldfastException {
        creditRequest = connection.send(FrameType.PUSH_CREDIT, new PushCredit(size).encode());
        askedAtNs = nowNs;
        heardAtNs = nowNs;
    }

    /** Notes that an answer came. */
    void heard(long nowNs) {
        heardAtNs = nowNs;
    }

    /** Takes the frame off the books whose push this request is; null if it is none. */
    PushFrame take(long request) {
        for (Iterator<Pending> all = pending.iterator(); all.hasNext(); ) {
            Pending each = all.next();
            if (each.request() == request) {
                all.remove();
                return each.frame();
            }
        }
        return null;
    }

    boolean isCredit(long request) {
        if (request != creditRequest) {
            return false;
        }
        creditRequest = 0;
        return true;
    }

    boolean isPing(long request) {
        if (request != pingRequest) {
            return false;
        }
        pingRequest = 0;
        return true;
    }

    /** When to look at the clock again. */
    long deadlineNs() {
        long push = pending.isEmpty() ? Long.MAX_VALUE : pending.peekFirst().sentAtNs() + ACK_NS;
        for (Asked each : settling.values()) {
            push = Math.min(push, each.sentAtNs() + ACK_NS);
        }
        return creditRequest == 0 ? push : Math.min(push, heardAtNs + PING_NS);
    }

    /** Throws OUTCOME_UNKNOWN if the worker has been silent for too long, and asks whether it lives. */
    void look(long nowNs) throws HoldfastException {
        if (!pending.isEmpty() && nowNs - pending.peekFirst().sentAtNs() >= ACK_NS) {
            throw silent("no acknowledgement within " + ACK_NS / 1_000_000_000L + " s");
        }
        if (settling.values().stream().anyMatch(each -> nowNs - each.sentAtNs() >= ACK_NS)) {
            throw silent("does not say within " + ACK_NS / 1_000_000_000L + " s what its replicas have");
        }
        if (creditRequest == 0 || nowNs - heardAtNs < PING_NS) {
            return;
        }
        if (pingRequest != 0) {
            throw silent("no answer for " + PING_NS / 1_000_000_000L + " s");
        }
        if (nowNs - askedAtNs >= ROOM_NS) {
            throw silent("no room for a push since " + ROOM_NS / 1_000_000_000L + " s");
        }
        pingRequest = connection.send(FrameType.PING, NOTHING.duplicate());
        heardAtNs = nowNs;
    }

    private HoldfastException silent(String what) {
        return new HoldfastException(Status.OUTCOME_UNKNOWN, connection + ": " + what);
    }
}
