package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import org.apache.spark.shuffle.holdfast.secure.HeapIo;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.secure.TlsChannel;
import org.apache.spark.shuffle.holdfast.wire.Limits;

/** A connection to the HTTP port of a master: the bare socket, or TLS over it. Never blocks; one thread at a time. Called by {@link Exchange}. */
final class Connection {
    /** The JDK keeps a direct buffer per thread as large as the largest heap buffer that was written to a socket. */
    private static final int STEP_BYTES = 64 * Limits.KIB;

    /** For selectors alone. */
    final SocketChannel socket;
    /** Null without security. */
    private final TlsChannel tls;

    private Connection(SocketChannel socket, TlsChannel tls) {
        this.socket = socket;
        this.tls = tls;
    }

    /** Begin to connect. */
    static Connection begin(InetSocketAddress address, CredentialsProvider credentials) throws IOException {
        SocketChannel socket = SocketChannel.open();
        try {
            socket.configureBlocking(false);
            socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
            socket.connect(address);
            return new Connection(socket, credentials.secure() ? credentials.over(socket, address.getHostString(), address.getPort()) : null);
        } catch (IOException | RuntimeException error) {
            socket.close();
            throw error;
        }
    }

    /** Go on until messages can be exchanged; what the socket has to be ready for before that, 0 if they can. */
    int open() throws IOException {
        if (!socket.isConnected() && !socket.finishConnect()) {
            return SelectionKey.OP_CONNECT;
        }
        return tls == null ? 0 : tls.handshake();
    }

    /** Send as much as possible; whether the kernel has all of it. */
    boolean write(ByteBuffer out) throws IOException {
        if (tls != null) {
            return tls.send(out);
        }
        while (out.hasRemaining()) {
            ByteBuffer step = out.slice(out.position(), Math.min(out.remaining(), STEP_BYTES));
            int wrote = HeapIo.write(socket, step);
            out.position(out.position() + wrote);
            if (wrote == 0) {
                return false;
            }
        }
        return true;
    }

    /** Read into {@code in[at, at + most)}: how many bytes, 0 if none are here, -1 at the end. */
    int read(byte[] in, int at, int most) throws IOException {
        ByteBuffer into = ByteBuffer.wrap(in, at, Math.min(most, STEP_BYTES));
        return tls == null ? HeapIo.read(socket, into) : tls.read(into);
    }

    /** A master closes a connection that was silent for long; nothing else may come unasked. */
    boolean isQuiet() {
        try {
            return read(new byte[1], 0, 1) == 0;
        } catch (IOException broken) {
            return false;
        }
    }

    void close() {
        if (tls != null) {
            tls.close();
        }
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is closed either way; no caller needs the error.
            return;
        }
    }
}
