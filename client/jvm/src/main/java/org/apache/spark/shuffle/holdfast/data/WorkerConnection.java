package org.apache.spark.shuffle.holdfast.data;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.secure.TlsChannel;
import org.apache.spark.shuffle.holdfast.wire.FrameHeader;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HelloOk;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * One connection to a worker, read and written by the thread that uses it: no thread of its own, no callbacks.
 *
 * <p>Rules: one thread at a time. Answers come in any order; a caller with several pending requests matches them by
 * {@link Frame#requestId()}. Short frames are handed out as views of the input buffer, many of them for one system
 * call; a longer body comes in a buffer of {@link Buffers}. Any error of the network, and anything that is not our
 * protocol, closes the connection and is a HoldfastException that names the worker (UNAVAILABLE, or the status that
 * says what was wrong). An interrupt never closes a connection that is only waited for: {@link #receive} returns null
 * and leaves the interrupt set, so its caller has to look. Called by the push writer and the fetch reader, through
 * {@link ConnectionPool}.
 */
public final class WorkerConnection implements AutoCloseable {
    /** A peer that takes nothing for so long counts as lost. */
    static final int SEND_TIMEOUT_MS = 30_000;
    private static final int INPUT_BYTES = 64 << 10;
    private static final int OUTPUT_BYTES = 16 << 10;
    private static final ByteBuffer[] NOTHING = new ByteBuffer[0];
    private static final ByteBuffer EMPTY = ByteBuffer.allocateDirect(0).order(ByteOrder.LITTLE_ENDIAN);

    private final int worker;
    private final String address;
    private final SocketChannel channel;
    private final Buffers buffers;
    private final byte[] token;
    /** All data passes through it; null without security. */
    private TlsChannel tls;
    private final Frame frame = new Frame(this);
    /** HELLO was answered. */
    private boolean greeted;
    private int incarnation;
    private long lastRequest;
    private Waiter own;
    private boolean closed;
    private Books attachment;
    /** When the pool got it back. */
    long idleSinceNs;

    /** Bytes [inStart, inEnd) were received and not handed out yet. */
    private ByteBuffer in;
    private int inStart;
    private int inEnd;
    /** A long body, being filled or handed out; and the meta section of its frame. */
    private ByteBuffer body;
    private boolean filling;
    private ByteBuffer metaCopy = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
    private final ByteBuffer[] scatter = new ByteBuffer[2];
    /** A frame is in `frame` and was not handed out yet. */
    private boolean ahead;
    private ByteBuffer out;
    /** The deadline of the logged wait. */
    private long saidForNs;

    private WorkerConnection(int worker, String address, SocketChannel channel, byte[] token, Buffers buffers) {
        this.worker = worker;
        this.address = address;
        this.channel = channel;
        this.token = token;
        this.buffers = buffers;
        in = buffers.take(INPUT_BYTES);
        try {
            out = buffers.take(OUTPUT_BYTES);
        } catch (NoDirectMemoryException full) {
            buffers.release(in);
            throw full;
        }
    }

    /**
     * Connects and says HELLO. Throws UNAVAILABLE if no answer comes in time or another worker answers, and the error of the
     * worker said if it refused.
     */
    public static WorkerConnection open(int worker, String address, Hello hello, CredentialsProvider credentials, int timeoutMs, Buffers buffers)
            throws HoldfastException {
        long deadlineNs = System.nanoTime() + timeoutMs * 1_000_000L;
        SocketChannel channel = null;
        InetSocketAddress place;
        try {
            channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
            place = place(address);
            if (place.isUnresolved()) {
                throw new IOException("its host name is not known here");
            }
            channel.connect(place);
        } catch (IOException | RuntimeException error) {
            closeQuietly(channel);
            throw unreachable(worker, address, error);
        }
        WorkerConnection made;
        try {
            made = new WorkerConnection(worker, address, channel, hello.token(), buffers);
        } catch (NoDirectMemoryException full) {
            closeQuietly(channel);
            throw full;
        }
        try {
            made.finishConnect(deadlineNs);
            if (credentials.secure()) {
                made.secure(credentials.over(channel, place.getHostString(), place.getPort()), deadlineNs);
            }
            made.greet(hello, deadlineNs);
            return made;
        } catch (HoldfastException | RuntimeException | Error error) {
            made.close();
            throw error;
        }
    }

    /** The worker's id. */
    public int worker() {
        return worker;
    }

    /** "host:port". */
    public String address() {
        return address;
    }

    /** The token that HELLO carried. */
    byte[] token() {
        return token;
    }

    /** Which start of the worker answered HELLO. */
    public int incarnation() {
        return incarnation;
    }

    /** What the user of this connection keeps with it while it is idle (the credit of a pusher, say); null at first. */
    public Books attachment() {
        return attachment;
    }

    /** See {@link #attachment()}. */
    public void attach(Books value) {
        attachment = value;
    }

    /** Sends a request under a new id, which is returned. Meta and body are read from position to limit. */
    public long send(int type, ByteBuffer meta, ByteBuffer... bodies) throws HoldfastException {
        long requestId = ++lastRequest;
        send(type, requestId, meta, bodies);
        return requestId;
    }

    /**
     * Sends a frame that belongs to an earlier request (STREAM_CREDIT, STREAM_CLOSE). Returns when the kernel has all
     * of it; the buffers are then free, their position at their limit.
     */
    public void send(int type, long requestId, ByteBuffer meta, ByteBuffer... bodies) throws HoldfastException {
        if (closed) {
            throw broken("is closed", null);
        }
        long bodyBytes = 0;
        for (ByteBuffer each : bodies) {
            bodyBytes += each.remaining();
        }
        if (bodyBytes > Limits.FRAME_BODY_BYTES_MAX) {
            throw new HoldfastException(Status.TOO_LARGE, "a frame's body of " + bodyBytes + " bytes is too large");
        }
        int head = FrameHeader.SIZE + meta.remaining();
        if (out.capacity() < head) {
            ByteBuffer larger = buffers.take(head);
            buffers.release(out);
            out = larger;
        }
        out.clear();
        FrameHeader.encode(out, type, requestId, meta, (int) bodyBytes);
        out.put(meta).flip();
        ByteBuffer[] all = NOTHING;
        if (bodies.length > 0) {
            all = new ByteBuffer[bodies.length + 1];
            all[0] = out;
            System.arraycopy(bodies, 0, all, 1, bodies.length);
        }
        write(all, head + bodyBytes);
    }

    /**
     * Returns the next frame, or null if none came within {@code timeoutMs} (0: what is here already) or the thread was
     * interrupted. What was received of an unfinished frame is kept. Never returns CLOSING: that is an exception.
     */
    public Frame receive(int timeoutMs) throws HoldfastException {
        long deadlineNs = 0;
        while (!ready()) {
            if (timeoutMs <= 0) {
                return null;
            }
            long now = System.nanoTime();
            if (deadlineNs == 0) {
                deadlineNs = now + timeoutMs * 1_000_000L;
            }
            if (!await(SelectionKey.OP_READ, deadlineNs)) {
                return null;
            }
        }
        ahead = false;
        return frame;
    }

    /** Whether {@link #receive} has a frame at once. Like it, ends the life of the frame handed out before. */
    public boolean ready() throws HoldfastException {
        if (closed) { // received data was dropped with its buffers
            throw broken("is closed", null);
        }
        while (!ahead) {
            if (!filling) {
                releaseBody();
            }
            if (parse()) {
                ahead = true;
                if (frame.type == FrameType.CLOSING) {
                    int status = frame.status == Status.OK ? Status.UNAVAILABLE : unlessGreeted(frame.status);
                    throw broken(status, "closes the connection: " + frame.text(), null);
                }
            } else if (fill() == 0) {
                return false;
            }
        }
        return true;
    }

    /** Returns when something came (not always a whole frame), the time is up, or the thread was interrupted. */
    public void awaitReadable(int timeoutMs) throws HoldfastException {
        await(SelectionKey.OP_READ, System.nanoTime() + timeoutMs * 1_000_000L);
    }

    /** Whether the connection is still good and nothing unexpected came; asked before an idle one is used again. */
    boolean isQuiet() {
        try {
            return !closed && !ready() && inStart == inEnd;
        } catch (HoldfastException | NoDirectMemoryException gone) {
            return false; // what came unasked is not worth memory that is not there
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (tls != null) {
            tls.close();
        }
        closeQuietly(channel);
        if (own != null) {
            own.close();
        }
        filling = false;
        releaseBody();
        buffers.release(in);
        buffers.release(out);
        in = null;
        out = null;
    }

    /** Whether it was closed, by {@link #close()} or by an error. */
    public boolean isClosed() {
        return closed;
    }

    @Override
    public String toString() {
        return "worker " + worker + " at " + address;
    }

    SocketChannel channel() {
        return channel;
    }

    void releaseBody() {
        if (body != null && !filling) {
            buffers.release(body);
            body = null;
            frame.body = EMPTY;
        }
    }

    HoldfastException broken(String what, Throwable cause) {
        return broken(Status.UNAVAILABLE, what, cause);
    }

    /** Closes the connection and returns what to throw. */
    private HoldfastException broken(int status, String what, Throwable cause) {
        close();
        String reason = cause == null || cause.getMessage() == null ? "" : ": " + cause.getMessage();
        return new HoldfastException(status, this + " " + what + reason, cause);
    }

    // Receiving.

    /** Takes the next frame out of the input; returns false if it is not whole yet. */
    private boolean parse() throws HoldfastException {
        if (filling) {
            return bodyIsWhole();
        }
        int have = inEnd - inStart;
        if (have < FrameHeader.SIZE) {
            return false;
        }
        try {
            FrameHeader header = FrameHeader.decode(in, inStart);
            int head = FrameHeader.SIZE + header.metaBytes();
            long total = (long) head + header.bodyBytes();
            long wanted = total <= in.capacity() ? total : head;
            if (have < wanted) {
                makeRoom((int) wanted);
                return false;
            }
            ByteBuffer meta = view(inStart + FrameHeader.SIZE, header.metaBytes());
            header.checkMeta(in, inStart, meta);
            return handOut(header, meta);
        } catch (HoldfastException error) {
            throw broken(unlessGreeted(error.status()), "sent something else than frames", error);
        }
    }

    /** Where both sides spoke frames before, what is none was damaged on its way, and costs the connection alone. */
    private int unlessGreeted(int status) {
        boolean damaged = status == Status.BAD_FRAME || status == Status.BAD_VERSION || status == Status.TOO_LARGE;
        return greeted && damaged ? Status.UNAVAILABLE : status;
    }

    /** Fills `frame`; a body that does not fit the input is left to be filled, and false is returned. */
    private boolean handOut(FrameHeader header, ByteBuffer meta) {
        frame.type = header.type();
        frame.status = header.status();
        frame.requestId = header.requestId();
        frame.response = header.isResponse();
        frame.meta = meta;
        frame.body = EMPTY;
        int bodyBytes = header.bodyBytes();
        inStart += FrameHeader.SIZE + header.metaBytes();
        if (bodyBytes <= in.capacity() - FrameHeader.SIZE - header.metaBytes()) {
            if (bodyBytes > 0) {
                frame.body = view(inStart, bodyBytes);
                inStart += bodyBytes;
            }
            return true;
        }
        // what is read into the input while the body comes must not change the meta section
        if (metaCopy.capacity() < meta.remaining()) {
            metaCopy = ByteBuffer.allocate(meta.remaining()).order(ByteOrder.LITTLE_ENDIAN);
        }
        metaCopy.clear();
        frame.meta = metaCopy.put(meta).flip();
        try {
            body = buffers.take(bodyBytes);
        } catch (NoDirectMemoryException full) {
            close(); // its header is behind us: what comes next would be read as one
            throw full;
        }
        body.limit(bodyBytes);
        int here = Math.min(bodyBytes, inEnd - inStart);
        body.put(view(inStart, here));
        inStart += here;
        filling = true;
        return bodyIsWhole();
    }

    private boolean bodyIsWhole() {
        if (body.hasRemaining()) {
            return false;
        }
        filling = false;
        frame.body = body.flip();
        return true;
    }

    private ByteBuffer view(int at, int length) {
        return in.slice(at, length).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Sees to it that {@code bytes} from inStart on fit the input buffer. */
    private void makeRoom(int bytes) {
        if (in.capacity() < bytes) {
            ByteBuffer larger = buffers.take(bytes);
            larger.put(view(inStart, inEnd - inStart));
            buffers.release(in);
            in = larger;
            inEnd -= inStart;
            inStart = 0;
        } else if (in.capacity() - inStart < bytes) {
            in.limit(inEnd).position(inStart);
            in.compact();
            inEnd -= inStart;
            inStart = 0;
        }
    }

    /** Reads what the kernel has; returns how much. */
    private int fill() throws HoldfastException {
        if (inStart == inEnd) {
            inStart = 0;
            inEnd = 0;
        } else if (inEnd == in.capacity()) {
            makeRoom(in.capacity());
        }
        in.limit(in.capacity()).position(inEnd);
        long count;
        try {
            if (filling) {
                scatter[0] = body;
                scatter[1] = in;
                count = tls == null ? channel.read(scatter) : tls.read(scatter);
            } else {
                count = tls == null ? channel.read(in) : tls.read(in);
            }
        } catch (IOException error) {
            throw broken("broke off", error);
        }
        if (count < 0) {
            throw broken("closed the connection", null);
        }
        inEnd = in.position();
        return (int) count;
    }

    // Sending.

    private void write(ByteBuffer[] all, long bytes) throws HoldfastException {
        if (tls != null) {
            encrypt(all.length == 0 ? new ByteBuffer[] {out} : all);
            return;
        }
        long left = bytes;
        long deadlineNs = 0;
        while (left > 0) {
            long count;
            try {
                count = all.length == 0 ? channel.write(out) : channel.write(all);
            } catch (IOException error) {
                throw broken("broke off", error);
            }
            left -= count;
            if (left > 0) {
                if (count > 0 || deadlineNs == 0) {
                    deadlineNs = System.nanoTime() + SEND_TIMEOUT_MS * 1_000_000L;
                }
                awaitWritable(deadlineNs);
            }
        }
    }

    private void encrypt(ByteBuffer[] all) throws HoldfastException {
        long before = -1;
        long deadlineNs = 0;
        try {
            while (!tls.send(all)) {
                if (tls.sentBytes() != before) {
                    before = tls.sentBytes();
                    deadlineNs = System.nanoTime() + SEND_TIMEOUT_MS * 1_000_000L;
                }
                awaitWritable(deadlineNs);
            }
        } catch (HoldfastException error) {
            throw error;
        } catch (IOException error) {
            throw broken("broke off", error);
        }
    }

    /** Waits a while, at most until the deadline, which is SEND_TIMEOUT_MS after the last progress. */
    private void awaitWritable(long deadlineNs) throws HoldfastException {
        long sayAtNs = deadlineNs - SEND_TIMEOUT_MS * 1_000_000L + LongWait.FIRST_NS;
        boolean late = System.nanoTime() - sayAtNs >= 0;
        if (late && saidForNs != deadlineNs) {
            saidForNs = deadlineNs;
            LogEvent.CONNECTION_STALLED.log(
                    "peer", this, "seconds", LongWait.FIRST_NS / 1_000_000_000L, "seconds_max", SEND_TIMEOUT_MS / 1_000);
        }
        if (!await(SelectionKey.OP_WRITE, late ? deadlineNs : sayAtNs)) {
            String reason = Thread.currentThread().isInterrupted() ? "left by an interrupt" : "takes nothing";
            throw broken(reason + " in the middle of a frame", null);
        }
    }

    /** Waits; returns false if the time is up or the thread was interrupted. */
    private boolean await(int operations, long deadlineNs) throws HoldfastException {
        long leftNs = deadlineNs - System.nanoTime();
        if (leftNs <= 0 || Thread.currentThread().isInterrupted()) {
            return false;
        }
        if (own == null) {
            own = new Waiter();
        }
        own.register(this, operations);
        own.await(leftNs / 1_000_000 + 1);
        return !Thread.currentThread().isInterrupted();
    }

    // Opening.

    private void finishConnect(long deadlineNs) throws HoldfastException {
        try {
            while (!channel.finishConnect()) {
                if (!await(SelectionKey.OP_CONNECT, deadlineNs)) {
                    throw new IOException("it does not answer");
                }
            }
        } catch (HoldfastException error) {
            throw error;
        } catch (IOException error) {
            throw unreachable(worker, address, error);
        }
    }

    private void secure(TlsChannel channel, long deadlineNs) throws HoldfastException {
        try {
            for (int wait = channel.handshake(); wait != 0; wait = channel.handshake()) {
                if (!await(wait, deadlineNs)) {
                    throw new IOException("it does not answer in TLS");
                }
            }
        } catch (HoldfastException error) {
            throw error;
        } catch (IOException error) {
            channel.close();
            throw unreachable(worker, address, error);
        }
        tls = channel;
    }

    private void greet(Hello hello, long deadlineNs) throws HoldfastException {
        send(FrameType.HELLO, hello.encode());
        long leftMs = (deadlineNs - System.nanoTime()) / 1_000_000;
        Frame answer = receive((int) Math.max(1, leftMs));
        if (answer == null) {
            throw broken("did not answer HELLO", null);
        }
        if (answer.status != Status.OK) {
            throw broken(answer.status, "refused the connection: " + answer.text(), null);
        }
        HelloOk ok = HelloOk.decode(answer.meta);
        if (ok.worker() != worker) {
            throw broken("is not there any more: worker " + ok.worker() + " answers", null);
        }
        incarnation = ok.incarnation();
        greeted = true;
    }

    private static HoldfastException unreachable(int worker, String address, Exception error) {
        String text = "worker " + worker + " at " + address + " cannot be reached: "
                + (error instanceof IOException refused ? TlsChannel.reason(refused) : error.getMessage());
        return new HoldfastException(Status.UNAVAILABLE, text, error);
    }

    private static InetSocketAddress place(String address) {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, Math.max(colon, 0));
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        return new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1)));
    }

    private static void closeQuietly(SocketChannel channel) {
        if (channel == null) {
            return;
        }
        try {
            channel.close();
        } catch (IOException ignored) {
            // it is of no use any more either way
        }
    }
}
