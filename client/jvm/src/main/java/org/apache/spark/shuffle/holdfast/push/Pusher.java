package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.zip.CRC32C;
import org.apache.spark.shuffle.holdfast.control.FailedEpoch;
import org.apache.spark.shuffle.holdfast.control.Revived;
import org.apache.spark.shuffle.holdfast.data.Frame;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.data.Waiter;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Push;
import org.apache.spark.shuffle.holdfast.wire.PushAnswer;
import org.apache.spark.shuffle.holdfast.wire.PushCredit;
import org.apache.spark.shuffle.holdfast.wire.PushEntry;
import org.apache.spark.shuffle.holdfast.wire.PushSettle;
import org.apache.spark.shuffle.holdfast.wire.PushSettled;
import org.apache.spark.shuffle.holdfast.wire.ReplicaPlace;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Carries out what {@link PushSession} decides: turns effects into frames on connections, and answers into events.
 *
 * <p>Rules: one thread runs it, to which session, connections and clock belong; the task reaches it through the
 * {@link Mailbox}. The masters are asked by a second thread, and {@link Connecting} has some more, so that other workers go on meanwhile. While batches are not
 * kept something is under way that ends by itself (an answer, a pause, a question), or the attempt ends; what takes long
 * is in the log. At the end all frames are released; connections go back to the pool if their books are closed, however the
 * attempt ended, and are closed otherwise. Made by {@link PushWriter}.
 */
final class Pusher {
    private static final long NS = 1_000_000L;
    private static final int WAIT_MS_MAX = 1_000;
    private static final int META_BYTES_FIRST = 16 << 10;
    /** What is to be done at some time. */
    private record Timer(long atNs, int worker) {}

    private final PushContext context;
    private final ShuffleKey key;
    private final PartitionLocations locations;
    private final int map;
    private final long attempt;
    private final String where;

    private final Mailbox mail;
    /** Made when there is more than one thing to wait for. */
    private Waiter waiter;
    private final PushSession session;
    private final Map<Integer, Link> links = new HashMap<>();
    private final Connecting connecting;
    /** Questions about replicas that wait for a connection, by worker. */
    private final Map<Integer, List<PushEffect.Settle>> settles = new HashMap<>();
    private final PriorityQueue<Timer> timers = new PriorityQueue<>((a, b) -> Long.compare(a.atNs() - b.atNs(), 0));
    private final CRC32C crc = new CRC32C();
    private ByteBuffer meta;
    /** Questions to the masters that are not answered. */
    private int asking;
    /** Since the last batch was kept, and how many were. */
    private final LongWait slow = new LongWait();
    private long kept;

    Pusher(PushContext context, ShuffleKey key, PartitionLocations locations, int map, long attempt, PushMemory memory, Mailbox mail) {
        this.context = context;
        this.key = key;
        this.locations = locations;
        this.map = map;
        this.attempt = attempt;
        this.mail = mail;
        where = where(key, map, attempt);
        connecting = new Connecting(context, locations, where, mail::connected);
        FrameStore counted = new FrameStore() {
            @Override
            public PushFrame take(Destination destination, int bytes) {
                PushFrame frame = memory.take(destination, bytes);
                mail.took(frame);
                return frame;
            }

            @Override
            public void release(PushFrame frame) {
                int bytes = frame.accounted;
                memory.release(frame);
                mail.released(bytes);
            }
        };
        session = new PushSession(locations, where, counted, context.limits());
    }

    /** Begins to connect to the workers that the partitions are on now. */
    void connectAhead() {
        connecting.ahead();
    }

    /** Connections that nobody took go back. Needed where {@link #run} is never called, harmless otherwise. */
    void disconnect() {
        connecting.close();
    }

    /** Names an attempt in errors. */
    static String where(ShuffleKey key, int map, long attempt) {
        return "shuffle " + key + " map " + Integer.toUnsignedString(map) + " attempt " + Long.toUnsignedString(attempt);
    }

    /** Pushes until the attempt is over, and leaves nothing behind. */
    void run() {
        HoldfastException cause = null;
        try {
            cause = push();
        } catch (HoldfastException failed) {
            cause = failed;
        } catch (RuntimeException | Error mistake) {
            // A mistake of ours ends the attempt instead of leaving the task waiting.
            cause = new HoldfastException(Status.INTERNAL, where + ": " + mistake, mistake);
        } finally {
            leave(cause);
        }
    }

    /** Goes on until the attempt is over; returns why it failed, null if it did not. */
    private HoldfastException push() throws HoldfastException {
        for (;;) {
            if (!readMail()) {
                return new HoldfastException(Status.INTERNAL, where + " was aborted");
            }
            if (Thread.currentThread().isInterrupted()) {
                // Of the task itself, or the context is being closed.
                return new HoldfastException(Status.INTERNAL, where + ": the task was interrupted");
            }
            ring();
            PushEffect effect;
            while ((effect = session.poll()) != null) {
                if (effect instanceof PushEffect.Done) {
                    return null;
                }
                if (effect instanceof PushEffect.Failed failed) {
                    return failed.error();
                }
                carryOut(effect);
            }
            if (!receive()) {
                await();
            }
        }
    }

    /** Gives the session the messages of the mailbox; returns false if the attempt was aborted. */
    private boolean readMail() {
        Object news;
        // What is left there when the session is over is released at the end.
        while (!session.over() && (news = mail.next()) != null) {
            if (news == Mailbox.ABORTED) {
                return false;
            } else if (news == Mailbox.CONNECTED) {
                connecting.arrived().forEach(this::connect);
            } else if (news == Mailbox.FINISHED) {
                session.finished(mail.batches());
            } else if (news instanceof PushFrame frame) {
                session.added(frame);
            } else {
                asking--;
                if (news instanceof HoldfastException failed) {
                    session.reviveFailed(failed);
                } else {
                    session.revived(((Revived) news).limitsMet());
                }
            }
        }
        return true;
    }

    private void ring() {
        long now = System.nanoTime();
        while (!timers.isEmpty() && timers.peek().atNs() - now <= 0) {
            session.woken(timers.poll().worker());
        }
    }

    private void carryOut(PushEffect effect) {
        if (effect instanceof PushEffect.Send send) {
            send(send.frame());
        } else if (effect instanceof PushEffect.AskCredit ask) {
            Link link = links.get(ask.worker());
            if (link != null) {
                try {
                    link.ask(ask.size(), System.nanoTime());
                } catch (HoldfastException broken) {
                    lost(link, broken);
                } catch (NoDirectMemoryException full) {
                    starved(link, full);
                }
            }
        } else if (effect instanceof PushEffect.Connect connect) {
            connect(connect.worker());
        } else if (effect instanceof PushEffect.Wake wake) {
            timers.add(new Timer(System.nanoTime() + wake.afterNs(), wake.worker()));
        } else if (effect instanceof PushEffect.Revive revive) {
            revive(revive);
        } else if (effect instanceof PushEffect.Settle settle) {
            settle(settle);
        }
    }

    /** A primary that cannot be asked does not say anything. */
    private void settle(PushEffect.Settle settle) {
        int worker = settle.destination().primary();
        if (links.containsKey(worker)) {
            settle(links.get(worker), settle);
        } else {
            settles.computeIfAbsent(worker, any -> new ArrayList<>()).add(settle);
            connect(worker);
        }
    }

    private void settle(Link link, PushEffect.Settle settle) {
        Destination to = settle.destination();
        if (link == null) {
            session.unsettled(settle);
            return;
        }
        try {
            ByteBuffer asked = new PushSettle(key, to.incarnation(), map, attempt, settle.epochs()).encode();
            link.settle(settle, asked, System.nanoTime());
        } catch (HoldfastException broken) {
            lost(link, broken);
            session.unsettled(settle);
        } catch (NoDirectMemoryException full) {
            starved(link, full);
            session.unsettled(settle);
        }
    }

    private void send(PushFrame frame) {
        Link link = links.get(frame.destination.primary());
        if (link == null) {
            return; // the connection was lost since, and the session handles this frame
        }
        try {
            ByteBuffer head;
            try {
                head = meta(frame);
            } catch (HoldfastException unknown) {
                session.failed(frame, unknown);
                return;
            }
            context.metrics().sent(frame.sentAtNs != 0);
            frame.sentAtNs = System.nanoTime();
            link.push(frame, head, frame.sentAtNs);
        } catch (HoldfastException broken) {
            lost(link, broken);
        } catch (NoDirectMemoryException full) {
            starved(link, full);
        }
    }

    /** The meta section of a push. Throws UNAVAILABLE if a replica's address is not known. */
    private ByteBuffer meta(PushFrame frame) throws HoldfastException {
        Destination to = frame.destination;
        List<ReplicaPlace> replicas = new ArrayList<>(to.replicas().size());
        for (PartitionLocations.Replica each : to.replicas()) {
            String address = locations.address(each.worker());
            if (address == null) {
                throw new HoldfastException(
                        Status.UNAVAILABLE, where + ": the address of worker " + each.worker() + " is not known");
            }
            replicas.add(new ReplicaPlace(each.worker(), each.incarnation(), address));
        }
        int bytes = Push.headBytes(replicas) + frame.count() * PushEntry.BYTES;
        if (meta == null || meta.capacity() < bytes) {
            meta = ByteBuffer.allocate(Math.max(META_BYTES_FIRST, bytes + bytes / 4)).order(ByteOrder.LITTLE_ENDIAN);
        }
        meta.clear();
        crc.reset();
        crc.update(frame.bytes());
        Push.putHead(
                meta, key, to.incarnation(), context.ack(), map, attempt, (int) crc.getValue(), locations.raftIndex(), replicas,
                Math.min(context.ackCopies(), 1 + replicas.size()), frame.count());
        for (int each = 0; each < frame.count(); each++) {
            PushEntry.put(
                    meta, frame.partition(each), frame.epoch(each), frame.number(each), frame.length(each), frame.hint(each));
        }
        return meta.flip();
    }

    /** Links the worker at once where a connection is there, else when it has come. */
    private void connect(int worker) {
        Connecting.Opened opened = connecting.want(worker);
        if (opened != null) {
            link(worker, opened);
        }
    }

    private void link(int worker, Connecting.Opened opened) {
        if (opened.unreachable() != null) {
            session.disconnected(worker, asUnreachable(opened.unreachable()));
        } else if (opened.full() != null) {
            session.starved(worker, opened.full());
        } else {
            link(worker, opened.connection());
        }
        for (PushEffect.Settle each : settles.getOrDefault(worker, List.of())) {
            settle(links.get(worker), each);
        }
        settles.remove(worker);
    }

    private void link(int worker, WorkerConnection connection) {
        try {
            Link link = new Link(connection, System.nanoTime());
            links.put(worker, link); // from here on it is given back, whatever comes
            if (waiter != null) {
                waiter.add(link.connection);
            }
            session.connected(worker, link.credit);
        } catch (HoldfastException broken) {
            drop(links.remove(worker));
            session.disconnected(worker, asUnreachable(broken));
        }
    }

    private void drop(Link link) {
        if (link != null) {
            context.connections().discard(link.connection);
        }
    }

    /** Whatever a worker answers a HELLO with, it is one that cannot be used now; unless it refuses our token, as all others will. */
    private static HoldfastException asUnreachable(HoldfastException refused) {
        return refused.status() == Status.UNAVAILABLE || Status.barred(refused.status())
                ? refused
                : new HoldfastException(Status.UNAVAILABLE, refused.getMessage(), refused);
    }

    private void lost(Link link, HoldfastException broken) {
        drop(links.remove(link.worker));
        session.disconnected(link.worker, broken);
        link.settling().forEach(session::unsettled);
    }

    private void starved(Link link, NoDirectMemoryException full) {
        drop(links.remove(link.worker));
        session.starved(link.worker, full);
        link.settling().forEach(session::unsettled);
    }

    private void revive(PushEffect.Revive revive) {
        List<FailedEpoch> rows = new ArrayList<>(revive.failed().size());
        for (Revivals.Row each : revive.failed()) {
            rows.add(new FailedEpoch(each.partition(), each.epoch(), each.status()));
        }
        asking++;
        context.metrics().revived();
        Runnable ask = () -> {
            Object answer;
            try {
                Revived found = context.masters().revive(key, rows, revive.unusable(), revive.incomplete());
                learn(found);
                answer = found;
            } catch (HoldfastException failed) {
                answer = failed;
            } catch (RuntimeException | Error mistake) {
                answer = new HoldfastException(Status.INTERNAL, where + ": asking for new places: " + mistake, mistake);
            }
            mail.answered(answer);
        };
        try {
            context.run(ask);
        } catch (RejectedExecutionException closed) {
            asking--;
            session.reviveFailed(new HoldfastException(Status.CONFLICT, where + ": the plug-in is closed", closed));
        }
    }

    private void learn(Revived found) {
        locations.learnAddresses(found.workers());
        Map<Integer, Integer> starts = PartitionLocations.incarnations(found.workers());
        for (Revived.NewEpoch each : found.epochs()) {
            locations.learn(each.partition(), each.location(), starts);
        }
        locations.saw(found.raftIndex());
    }

    // Answers.

    /** Takes whatever is there; returns whether there was anything. */
    private boolean receive() {
        boolean any = false;
        for (Link link : new ArrayList<>(links.values())) {
            try {
                Frame frame;
                while ((frame = link.connection.receive(0)) != null) {
                    any = true;
                    heard(link, frame);
                }
            } catch (HoldfastException broken) {
                any = true;
                lost(link, broken);
            } catch (NoDirectMemoryException full) {
                any = true;
                starved(link, full);
            }
        }
        return any;
    }

    private void heard(Link link, Frame frame) throws HoldfastException {
        long now = System.nanoTime();
        link.heard(now);
        boolean ok = frame.status() == Status.OK;
        PushFrame pushed = link.take(frame.requestId());
        if (pushed != null) {
            context.metrics().answered(now - pushed.sentAtNs);
            if (ok) {
                PushAnswer answer = PushAnswer.decode(frame.meta());
                session.answered(
                        pushed, answer.creditBytes(), answer.failed(), answer.behind(), answer.indices(), answer.statuses());
            } else {
                String text = where + ": worker " + link.worker + " refused a push: " + Status.name(frame.status()) + " "
                        + frame.text();
                session.failed(pushed, new HoldfastException(frame.status(), text));
            }
        } else if (link.isCredit(frame.requestId())) {
            if (!ok) {
                throw new HoldfastException(frame.status(), link.connection + " gives no room: " + frame.text());
            }
            context.metrics().granted(now - link.askedAtNs);
            session.granted(link.worker, PushCredit.decode(frame.meta()).sizeBytes());
        } else if (!link.isPing(frame.requestId())) {
            PushEffect.Settle settle = link.settled(frame.requestId());
            if (settle != null && ok) {
                session.settled(settle, PushSettled.decode(frame.meta()).incomplete());
            } else if (settle != null) {
                session.unsettled(settle);
            }
        }
    }

    /** Waits until there is something to do. */
    private void await() throws HoldfastException {
        long now = System.nanoTime();
        long untilNs = now + WAIT_MS_MAX * NS;
        Link only = null;
        int busy = 0;
        for (Link link : new ArrayList<>(links.values())) {
            try {
                link.look(now);
            } catch (HoldfastException silent) {
                lost(link, silent);
                return;
            }
            if (link.isBusy()) {
                busy++;
                only = link;
                untilNs = Math.min(untilNs, link.deadlineNs());
            }
        }
        if (!timers.isEmpty()) {
            untilNs = Math.min(untilNs, timers.peek().atNs());
        }
        look(now, busy);
        int waitMs = (int) Math.max(1, (untilNs - now + NS - 1) / NS);
        if (waiter == null && busy == 1 && asking == 0 && !connecting.awaited() && mail.isFinished()) {
            awaitOne(only, waitMs);
            return;
        }
        openWaiter();
        if (!mail.hasNews()) {
            waiter.await(waitMs);
        }
    }

    /** Says what is waited for where that takes long; ends the attempt where it would take for ever. @param busy links with an answer due */
    private void look(long now, int busy) throws HoldfastException {
        if (!session.waits() || session.kept() != kept) {
            kept = session.kept();
            slow.over();
        }
        if (!session.waits()) {
            return; // for the task, which writes as it pleases
        }
        if (busy == 0 && asking == 0 && !connecting.awaited() && timers.isEmpty() && !mail.hasNews()) {
            throw new HoldfastException(Status.INTERNAL, where + " waits, no request is pending: " + session.waitsFor());
        }
        long lasts = slow.lasts(now);
        boolean tooLong = lasts >= 2 * Link.ROOM_NS + context.limits().noRoomNs();
        if (!tooLong && !slow.due(now)) {
            return;
        }
        long seconds = lasts / (1_000 * NS);
        if (tooLong) {
            throw new HoldfastException(
                    Status.UNAVAILABLE, where + ": no batch was acknowledged for " + seconds + " s: " + session.waitsFor());
        }
        LogEvent.PUSH_SLOW.log("task", where, "seconds", seconds, "reason", session.waitsFor());
    }

    /** The usual case of a short attempt: the last answer of one worker is all that is waited for. */
    private void awaitOne(Link link, int waitMs) {
        try {
            Frame frame = link.connection.receive(waitMs);
            if (frame != null) {
                heard(link, frame);
            }
        } catch (HoldfastException broken) {
            lost(link, broken);
        } catch (NoDirectMemoryException full) {
            starved(link, full);
        }
    }

    private void openWaiter() throws HoldfastException {
        if (waiter != null) {
            return;
        }
        waiter = new Waiter();
        mail.wakeIn(waiter);
        for (Link link : links.values()) {
            try {
                waiter.add(link.connection);
            } catch (HoldfastException broken) {
                continue; // it is found closed when it is read next
            }
        }
    }

    // The end.

    /** Releases everything and informs the task, in any case. */
    private void leave(HoldfastException cause) {
        List<PushFrame> unread = mail.close(cause);
        try {
            connecting.close();
            if (waiter != null) {
                waiter.close();
            }
            for (Iterator<Link> all = links.values().iterator(); all.hasNext(); all.remove()) {
                leave(all.next());
            }
            for (PushFrame each : unread) {
                context.buffers().release(each.body);
            }
            session.end();
        } catch (RuntimeException | Error mistake) {
            // How the attempt ended is known already, and the task waits for that.
            LogEvent.PUSH_INTERNAL_ERROR.log(mistake, "task", where);
        } finally {
            mail.end();
        }
    }

    /** Effects that were not carried out when the attempt ended may have taken credit: the next attempt would wait for its return. */
    private void leave(Link link) {
        if (link.isSettled()) {
            link.credit.rests(System.nanoTime());
            context.connections().giveBack(link.connection);
        } else {
            drop(link);
        }
    }
}
