package org.apache.spark.shuffle.holdfast.secure;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.security.cert.CertificateException;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLException;

/**
 * The client's side of TLS over a non-blocking socket.
 *
 * <p>Rules: one thread at a time; never blocks and never registers with a selector. {@link #read} returns 0 only when nothing that was decrypted
 * is left here and the socket has nothing more, so a caller that got 0 may wait for the socket to become readable. {@link #send} is called again with
 * the same buffers until the kernel has everything. What the other side says of the connection itself (session tickets, new keys) is dealt
 * with in both. Memory: four records for each direction and, where the reader's buffers are smaller than a record, one more. The end
 * of the connection is not distinguished from a cut: frames and HTTP bodies have lengths. Made by {@link CredentialsProvider}.
 */
public final class TlsChannel {
    /** The other side's first bytes are no TLS. */
    public static final class NotTlsException extends SSLException {
        private static final long serialVersionUID = 1L;

        NotTlsException() {
            super("it does not speak TLS");
        }
    }

    private static final int RECORDS = 4;
    private static final int HANDSHAKE = 22;
    private static final int ALERT = 21;
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private final SocketChannel socket;
    private final SSLEngine engine;
    /** What came, encrypted; between position and limit. Arrays, since that is what the JDK's ciphers are quickest with. */
    private final ByteBuffer in;
    /** What has to go, encrypted; likewise. */
    private final ByteBuffer out;
    /** What was decrypted and had no room in the reader's buffers; likewise, null until it is needed. */
    private ByteBuffer left;
    private int recordBytes;
    private boolean begun;
    private boolean heard;
    private boolean established;
    private boolean ended;
    private long sent;

    TlsChannel(SocketChannel socket, SSLEngine engine) {
        this.socket = socket;
        this.engine = engine;
        recordBytes = engine.getSession().getPacketBufferSize();
        in = ByteBuffer.allocate(RECORDS * recordBytes).flip();
        out = ByteBuffer.allocate(RECORDS * recordBytes).flip();
    }

    /**
     * Goes on with the handshake; returns what the socket has to be ready for before the next call (an operation of {@link SelectionKey}), or 0
     * once it is done. Throws SSLException if there is no trust between the two.
     */
    public int handshake() throws IOException {
        if (!begun) {
            begun = true;
            engine.beginHandshake();
        }
        while (!established) {
            HandshakeStatus status = engine.getHandshakeStatus();
            if (status == HandshakeStatus.NEED_TASK) {
                runTasks();
            } else if (status == HandshakeStatus.NEED_UNWRAP) {
                if (!flush()) {
                    return SelectionKey.OP_WRITE;
                }
                if (!hear()) {
                    return SelectionKey.OP_READ;
                }
            } else if (status == HandshakeStatus.NEED_WRAP) {
                if (!roomToWrap() && !flush()) {
                    return SelectionKey.OP_WRITE;
                }
                wrap(NOTHING);
            } else {
                if (!flush()) {
                    return SelectionKey.OP_WRITE;
                }
                established = true;
                recordBytes = engine.getSession().getPacketBufferSize();
            }
        }
        return 0;
    }

    /** Decrypts into the buffers, in order; returns how many bytes, 0 if none are here now, -1 at the end. */
    public int read(ByteBuffer... to) throws IOException {
        int got = takeLeft(to);
        if (got > 0 || remaining(to) == 0) {
            return got;
        }
        while (!ended) {
            SSLEngineResult result = engine.unwrap(in, to);
            if (result.getStatus() == SSLEngineResult.Status.BUFFER_OVERFLOW && got == 0) {
                result = unwrapAside(); // the engine says so of records, too, that are not all here yet
                got = takeLeft(to);
            } else {
                got += result.bytesProduced();
            }
            switch (result.getStatus()) {
                case BUFFER_OVERFLOW -> {
                    return got;
                }
                case BUFFER_UNDERFLOW -> {
                    int came = got > 0 ? 0 : fill();
                    if (came <= 0) {
                        return got > 0 ? got : came;
                    }
                }
                case CLOSED -> ended = true;
                default -> {
                    runTasks();
                    if (!answer() && result.bytesConsumed() == 0) {
                        return got; // it has to say something first, and the socket takes nothing
                    }
                }
            }
        }
        return got > 0 ? got : -1;
    }

    /** Encrypts and sends; returns whether the kernel has everything. If not, call it again with the same buffers once the socket can be written. */
    public boolean send(ByteBuffer... from) throws IOException {
        while (flush()) {
            out.clear();
            try {
                while (out.remaining() >= recordBytes && remaining(from) > 0) {
                    SSLEngineResult result = engine.wrap(from, out);
                    if (result.getStatus() != SSLEngineResult.Status.OK || result.bytesProduced() == 0) {
                        throw new EOFException("the connection is closed (" + result.getStatus() + ")");
                    }
                }
            } finally {
                out.flip();
            }
            if (!out.hasRemaining()) {
                return true;
            }
        }
        return false;
    }

    /** Encrypted bytes that the kernel took so far: whether there is progress. */
    public long sentBytes() {
        return sent;
    }

    /** Says goodbye if the socket takes it at once. The socket is not closed. */
    public void close() {
        try {
            engine.closeOutbound();
            if (flush()) {
                wrap(NOTHING);
                flush();
            }
        } catch (IOException gone) {
            // the peer has closed
            return;
        }
    }

    /** The words for people about why a connection through TLS came to nothing. */
    public static String reason(IOException error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof CertificateException refused) {
                return "its certificate was made by another CA, or for another name, or is not good now: " + refused.getMessage();
            }
        }
        return error instanceof SSLException && !(error instanceof NotTlsException) ? "TLS: " + error.getMessage() : error.getMessage();
    }

    /** Whether the peer is another one than expected, which a retry does not change. */
    public static boolean isStranger(Throwable error) {
        return error != null && (error instanceof CertificateException || error instanceof NotTlsException || isStranger(error.getCause()));
    }

    // Reading.

    /** One step of the handshake with what came; returns whether more has to come first. */
    private boolean hear() throws IOException {
        SSLEngineResult result = engine.unwrap(in, NOTHING);
        switch (result.getStatus()) {
            case BUFFER_UNDERFLOW -> {
                int came = fill();
                if (came < 0) {
                    throw new EOFException("it hung up before TLS began");
                }
                if (came > 0 && !heard) {
                    heard = true;
                    int first = in.get(in.position());
                    if (first != HANDSHAKE && first != ALERT) {
                        throw new NotTlsException();
                    }
                }
                return came > 0;
            }
            case CLOSED -> throw new EOFException("it closed the connection before TLS began");
            default -> {
                return true;
            }
        }
    }

    private SSLEngineResult unwrapAside() throws IOException {
        if (left == null) {
            left = ByteBuffer.allocate(engine.getSession().getApplicationBufferSize());
        }
        left.clear();
        try {
            return engine.unwrap(in, left);
        } finally {
            left.flip();
        }
    }

    private int takeLeft(ByteBuffer[] to) {
        int got = 0;
        for (int each = 0; left != null && left.hasRemaining() && each < to.length; each++) {
            int count = Math.min(left.remaining(), to[each].remaining());
            to[each].put(left.slice(left.position(), count));
            left.position(left.position() + count);
            got += count;
        }
        return got;
    }

    /** Reads from the socket: how many bytes, -1 at its end. */
    private int fill() throws IOException {
        in.compact();
        try {
            return HeapIo.read(socket, in);
        } finally {
            in.flip();
        }
    }

    // Writing.

    /** The engine may have an answer to received data; returns whether it was sent. */
    private boolean answer() throws IOException {
        while (engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP) {
            if (!roomToWrap() && !flush()) {
                return false;
            }
            wrap(NOTHING);
        }
        flush(); // what the socket does not take now is sent with the next bytes
        return true;
    }

    /** Adds a record to what has to go. */
    private void wrap(ByteBuffer from) throws IOException {
        out.compact();
        try {
            engine.wrap(from, out);
            runTasks();
        } finally {
            out.flip();
        }
    }

    private boolean roomToWrap() {
        return out.capacity() - out.remaining() >= recordBytes;
    }

    /** Sends what has to go; returns whether nothing is left of it. */
    private boolean flush() throws IOException {
        while (out.hasRemaining()) {
            int wrote = HeapIo.write(socket, out);
            if (wrote == 0) {
                return false;
            }
            sent += wrote;
        }
        return true;
    }

    /** Certificates are checked on this thread: that is a millisecond, without a call. */
    private void runTasks() {
        for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
            task.run();
        }
    }

    private static int remaining(ByteBuffer[] buffers) {
        int bytes = 0;
        for (ByteBuffer each : buffers) {
            bytes += each.remaining();
        }
        return bytes;
    }
}
