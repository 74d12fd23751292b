package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import org.apache.spark.shuffle.holdfast.data.Waiter;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The messages between a task and its pusher; all that is locked between them.
 *
 * <p>Rules: the pusher runs on a thread of the context from the first frame on, or, where none came before the end, on
 * the task's own in {@link #finish}. The task waits while too much is held, and gets the outcome; an interrupt ends
 * its waiting and gives the attempt up. Its waits have no bound of their own: whatever the pusher waits for has one and is in
 * the log, and however that ends, {@link #end} follows. Called by {@link PushWriter} and {@link Pusher}.
 */
final class Mailbox {
    /** In {@link #next}: the attempt is aborted. */
    static final Object ABORTED = new Object();
    /** In {@link #next}: no more frames will come. Told once. */
    static final Object FINISHED = new Object();
    /** In {@link #next}: connections that the pusher waits for have come. */
    static final Object CONNECTED = new Object();

    private final PushContext context;
    private final String where;
    private Runnable pusher;

    private final ArrayDeque<PushFrame> fresh = new ArrayDeque<>();
    /** What the masters answered: a Revived, or a HoldfastException. */
    private final ArrayDeque<Object> answers = new ArrayDeque<>();
    private boolean connected;
    private boolean finishing;
    /** How many batches were made for the frames that were handed over; known at the end. */
    private long batches;
    private boolean reportedTheEnd;
    private boolean aborted;
    private boolean started;
    /** Nothing more is taken from here. */
    private boolean closing;
    private boolean over;
    private HoldfastException error;
    /** Memory of frames handed over, and of copies the pusher made of them, that is not released. */
    private long heldBytes;
    private long pushedBytes;
    /** What the pusher waits in; null while it does not. */
    private Waiter waiter;
    /** The thread of the context that pushes; null where it is the task's own, or none. */
    private Thread pooled;

    Mailbox(PushContext context, String where) {
        this.context = context;
        this.where = where;
    }

    /** Who reads this. */
    void serve(Runnable reader) {
        pusher = reader;
    }

    // The task's side.

    /** Hands a frame over; waits while too much is held. Throws what ended the attempt. */
    void add(PushFrame frame) throws HoldfastException {
        boolean start;
        synchronized (this) {
            put(frame);
            start = !started && !over;
            started = true;
            wake();
        }
        if (start) {
            start();
        }
        waitFor(context.limits().heldBytes());
    }

    /** Waits until everything handed over is acknowledged. */
    void drain() throws HoldfastException {
        waitFor(0);
    }

    /** Waits a moment, since what is wanted is in other hands than the pusher's. */
    synchronized void rest(long ms) throws HoldfastException {
        pause(ms);
    }

    /**
     * Hands over the last frames and waits until all are kept. Without a thread so far, this one does the work.
     *
     * @param made how many batches the task has made
     */
    void finish(List<PushFrame> last, long made) throws HoldfastException {
        boolean inline;
        synchronized (this) {
            batches = made;
            last.forEach(this::put);
            finishing = true;
            inline = !started && !over;
            started = true;
            wake();
        }
        if (inline) {
            pusher.run();
        }
        synchronized (this) {
            while (!over) {
                pause(0);
            }
            if (error != null || aborted) {
                throw ended();
            }
        }
    }

    /** Gives the attempt up: the pushing thread ends by itself, soon. */
    synchronized void abort() {
        aborted = true;
        if (!started) {
            closing = over = true;
        }
        if (pooled != null) {
            pooled.interrupt(); // it may be waiting for a stopped worker
        }
        wake();
    }

    /** Bytes of batches handed over so far, headers included. */
    synchronized long pushedBytes() {
        return pushedBytes;
    }

    /** Memory of what is handed over and not acknowledged. */
    synchronized long heldBytes() {
        return heldBytes;
    }

    /** Puts a frame in, or releases its memory if it is not read any more. The lock is held. */
    private void put(PushFrame frame) {
        if (closing) {
            context.buffers().release(frame.body);
            return;
        }
        count(frame);
        pushedBytes += frame.size();
        fresh.addLast(frame);
    }

    /** What counts is memory, not what is in it: frames may be half empty. The lock is held. */
    private void count(PushFrame frame) {
        frame.accounted = frame.body.capacity();
        heldBytes += frame.accounted;
    }

    private void start() {
        try {
            context.run(() -> {
                synchronized (this) {
                    pooled = Thread.currentThread();
                }
                pusher.run();
            });
        } catch (RejectedExecutionException closed) {
            unread(new HoldfastException(Status.INTERNAL, where + ": the plug-in is closed", closed));
        } catch (OutOfMemoryError full) {
            unread(new HoldfastException(Status.INTERNAL, where + ": no thread can be started: " + full.getMessage(), full));
        }
    }

    /** Nobody will read what is here. */
    private void unread(HoldfastException cause) {
        close(cause).forEach(each -> context.buffers().release(each.body));
        end();
    }

    private synchronized void waitFor(long heldMax) throws HoldfastException {
        while (heldBytes > heldMax && !over) {
            pause(0);
        }
        if (over) {
            throw ended();
        }
    }

    private HoldfastException ended() {
        if (error == null) {
            return new HoldfastException(Status.INTERNAL, where + " was closed or aborted; nothing more can be written");
        }
        return new HoldfastException(error.status(), error.getMessage(), error);
    }

    /** Waits for news of the pusher, so long at most (0: as long as it takes). The lock is held. */
    private void pause(long mostMs) throws HoldfastException {
        try {
            wait(mostMs);
        } catch (InterruptedException interrupt) {
            abort();
            Thread.currentThread().interrupt();
            throw new HoldfastException(Status.INTERNAL, where + ": the task was interrupted", interrupt);
        }
    }

    private void wake() {
        if (waiter != null) {
            waiter.wake();
        }
    }

    // The pusher's side.

    /** The next frame, answer of the masters, CONNECTED, FINISHED or ABORTED; null if there is nothing. */
    synchronized Object next() {
        if (aborted) {
            return ABORTED;
        }
        if (connected) {
            connected = false;
            return CONNECTED;
        }
        Object found = fresh.pollFirst();
        if (found == null) {
            found = answers.pollFirst();
        }
        if (found == null && finishing && !reportedTheEnd) {
            reportedTheEnd = true;
            found = FINISHED;
        }
        return found;
    }

    /** How many batches there must be in all; to be called after FINISHED. */
    synchronized long batches() {
        return batches;
    }

    /** Whether `next` has something. */
    synchronized boolean hasNews() {
        return aborted || connected || !fresh.isEmpty() || !answers.isEmpty() || (finishing && !reportedTheEnd);
    }

    /** Whether the task has finished, so that only the masters can bring news, or an abort. */
    synchronized boolean isFinished() {
        return reportedTheEnd;
    }

    /** Where news wake the pusher from now on. */
    synchronized void wakeIn(Waiter news) {
        waiter = news;
    }

    /** The masters have answered. On the thread that asked them. */
    synchronized void answered(Object answer) {
        answers.addLast(answer);
        wake();
    }

    /** Connections have come. On the thread that opened one. */
    synchronized void connected() {
        connected = true;
        wake();
    }

    /** The pusher has taken memory for a copy: the task waits for that as for its own. */
    synchronized void took(PushFrame frame) {
        count(frame);
    }

    /** A frame that was counted as so many bytes is not needed any more, and its memory is free. */
    synchronized void released(int bytes) {
        heldBytes -= bytes;
        notifyAll();
    }

    /** Nothing is taken any more; returns the frames that were not taken. @param cause null if all went well */
    synchronized List<PushFrame> close(HoldfastException cause) {
        closing = true;
        error = cause;
        waiter = null;
        if (pooled != null) {
            pooled = null;
            Thread.interrupted(); // what an abort was meant for ends here
        }
        List<PushFrame> unread = new ArrayList<>(fresh);
        fresh.clear();
        return unread;
    }

    /** Everything was given back. */
    synchronized void end() {
        over = true;
        heldBytes = 0;
        notifyAll();
    }
}
