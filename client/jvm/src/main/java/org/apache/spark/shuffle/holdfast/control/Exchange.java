package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * One try at one master: an HTTP/1.1 POST with a JSON body over a connection of its own for as long as it lasts. Never blocks;
 * {@link Round} calls {@link #go} when the connection is ready. Whatever goes wrong is an outcome: the master's own refusal by its
 * status number, what says nothing about the call (refused, reset) UNAVAILABLE, an answer that no master gives BAD_FRAME.
 */
final class Exchange {
    /** A refusal of a master that does not lead; {@code leader} is the HTTP address of the one that does, or "". */
    static final class NotLeader extends HoldfastException {
        private static final long serialVersionUID = 1L;
        final String leader;

        NotLeader(String message, String leader) {
            super(Status.NOT_LEADER, message);
            this.leader = leader;
        }
    }

    /** No host has the name in an address: neither an election nor a start of masters would change that. */
    static final class UnknownHost extends HoldfastException {
        private static final long serialVersionUID = 1L;

        UnknownHost(String address) {
            super(Status.UNAVAILABLE, address + ": unknown host");
        }
    }

    private static final int HEAD_BYTES_MAX = 16 * Limits.KIB;
    private static final int BODY_BYTES_MAX = Limits.CONTROL_MESSAGE_BYTES_MAX / 3 * 4 + 64 * Limits.KIB;
    /** The JDK keeps a direct buffer per thread as large as the largest heap buffer that went through a socket. */
    private static final int STEP_BYTES = 64 * Limits.KIB;
    private static final byte[] HEAD_END = {'\r', '\n', '\r', '\n'};

    final String address;
    private final SocketChannel channel;
    private final ByteBuffer out;
    private byte[] in = new byte[4 * Limits.KIB];
    private int filled;
    private int bodyStart = -1;
    private int bodyEnd;
    private int httpStatus;
    private Map<String, String> headers = Map.of();
    private boolean done;
    private HoldfastException failure;

    /** Begin on a connection that is kept, or null for a new one. */
    Exchange(String address, SocketChannel kept, String path, byte[] body, Selector selector) {
        this.address = address;
        byte[] head = ("POST " + path + " HTTP/1.1\r\nHost: " + address
                + "\r\nContent-Type: application/json\r\nContent-Length: " + body.length + "\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1);
        out = ByteBuffer.allocate(head.length + body.length).put(head).put(body).flip();
        SocketChannel opened = kept;
        try {
            if (opened == null) {
                opened = SocketChannel.open();
                opened.configureBlocking(false);
                opened.setOption(StandardSocketOptions.TCP_NODELAY, true);
                opened.connect(resolved(address));
            }
            opened.register(selector, opened.isConnected() ? SelectionKey.OP_WRITE : SelectionKey.OP_CONNECT, this);
            if (opened.isConnected()) {
                go(opened.keyFor(selector));
            }
        } catch (HoldfastException error) {
            fail(error);
        } catch (IOException error) {
            fail(unreachable(error));
        }
        channel = opened;
    }

    boolean done() {
        return done;
    }

    /** The reply; only once it is done. Throws what went wrong instead. */
    JsonObject reply() throws HoldfastException {
        if (failure != null) {
            throw failure;
        }
        if (httpStatus == 200) {
            try {
                return JsonObject.decode(in, bodyStart, bodyEnd - bodyStart);
            } catch (HoldfastException error) {
                throw error.at(address + ": answers, but is no master");
            }
        }
        throw refusal(message());
    }

    /** End it: the connection, if another call may go over it, and else null. */
    SocketChannel end() {
        boolean clean = done && failure == null && !out.hasRemaining() && filled == bodyEnd
                && !"close".equalsIgnoreCase(headers.get("connection"));
        if (clean) {
            return channel;
        }
        closeQuietly(channel);
        return null;
    }

    /** Go as far as the connection lets us. */
    void go(SelectionKey key) {
        SocketChannel socket = (SocketChannel) key.channel();
        try {
            if (key.isConnectable() && !socket.isConnected()) {
                socket.finishConnect();
            }
            while (out.hasRemaining()) {
                ByteBuffer step = out.slice(out.position(), Math.min(out.remaining(), STEP_BYTES));
                int wrote = socket.write(step);
                out.position(out.position() + wrote);
                if (wrote == 0) {
                    // An answer that comes before all is sent is a refusal: it has to be read.
                    key.interestOps(SelectionKey.OP_WRITE | SelectionKey.OP_READ);
                    break;
                }
            }
            if (!out.hasRemaining()) {
                key.interestOps(SelectionKey.OP_READ);
            }
            read(socket);
        } catch (IOException error) {
            fail(error instanceof HoldfastException ours ? ours : unreachable(error));
        }
        if (done) {
            key.cancel();
        }
    }

    private void read(SocketChannel socket) throws IOException {
        while (!done) {
            if (filled == in.length) {
                in = Arrays.copyOf(in, Math.min(in.length * 2, HEAD_BYTES_MAX + BODY_BYTES_MAX));
            }
            int got = socket.read(ByteBuffer.wrap(in, filled, Math.min(in.length - filled, STEP_BYTES)));
            if (got < 0) {
                throw new HoldfastException(Status.UNAVAILABLE,
                        address + ": hung up without an answer (is this the HTTP port of a master?)");
            }
            if (got == 0) {
                return;
            }
            filled += got;
            if (bodyStart >= 0 || readHead()) {
                done = filled >= bodyEnd;
            }
        }
    }

    private boolean readHead() throws HoldfastException {
        int end = endOfHead();
        if (end < 0) {
            if (filled > HEAD_BYTES_MAX) {
                throw noMaster("the head of its answer does not end");
            }
            return false;
        }
        String[] lines = new String(in, 0, end, StandardCharsets.ISO_8859_1).split("\r\n");
        String[] parts = lines[0].split(" ", 3);
        if (parts.length < 2 || !parts[0].startsWith("HTTP/1.") || !parts[1].matches("[0-9]{3}")) {
            throw noMaster("it does not speak HTTP/1.1; endpoints name the masters' HTTP ports");
        }
        httpStatus = Integer.parseInt(parts[1]);
        headers = new HashMap<>();
        for (int i = 1; i < lines.length; i++) {
            int colon = lines[i].indexOf(':');
            if (colon > 0) {
                headers.put(lines[i].substring(0, colon).trim().toLowerCase(Locale.ROOT), lines[i].substring(colon + 1).trim());
            }
        }
        String length = headers.getOrDefault("content-length", "");
        if (!length.matches("[0-9]{1,9}") || Integer.parseInt(length) > BODY_BYTES_MAX) {
            throw noMaster("no sane Content-Length");
        }
        bodyStart = end + HEAD_END.length;
        bodyEnd = bodyStart + Integer.parseInt(length);
        return true;
    }

    private int endOfHead() {
        for (int at = 0; at + HEAD_END.length <= filled; at++) {
            if (Arrays.equals(in, at, at + HEAD_END.length, HEAD_END, 0, HEAD_END.length)) {
                return at;
            }
        }
        return -1;
    }

    /** What an answer that is no success means: masters give a status, others' words are shown. */
    private HoldfastException refusal(String message) {
        String number = headers.getOrDefault("holdfast-status", "");
        if (!number.matches("[0-9]{1,4}")) {
            return noMaster(message);
        }
        int status = Integer.parseInt(number);
        if (status == Status.NOT_LEADER) {
            return new NotLeader(message, headers.getOrDefault("holdfast-leader", ""));
        }
        return new HoldfastException(status, message.isEmpty() ? Status.name(status) : message);
    }

    /** The message of a Connect error body; the body itself where it is none. */
    private String message() {
        int length = Math.min(bodyEnd - bodyStart, 2_000);
        try {
            String told = JsonObject.decode(in, bodyStart, bodyEnd - bodyStart).text("message");
            if (!told.isEmpty()) {
                return told;
            }
        } catch (HoldfastException notJson) {
            return new String(in, bodyStart, length, StandardCharsets.UTF_8);
        }
        return "HTTP status " + httpStatus;
    }

    private HoldfastException noMaster(String why) {
        return new HoldfastException(Status.BAD_FRAME,
                address + ": answers, but is no master: " + why.substring(0, Math.min(why.length(), 200)));
    }

    private void fail(HoldfastException error) {
        failure = error;
        done = true;
    }

    private HoldfastException unreachable(IOException error) {
        String why = error instanceof ConnectException ? "connection refused" : "cannot be reached: " + error.getMessage();
        return new HoldfastException(Status.UNAVAILABLE, address + ": " + why, error);
    }

    private static InetSocketAddress resolved(String address) throws HoldfastException {
        int colon = address.lastIndexOf(':');
        int port = colon > 0 && address.substring(colon + 1).matches("[0-9]{1,5}")
                ? Integer.parseInt(address.substring(colon + 1)) : 0;
        if (port < 1 || port > 65_535) {
            throw new UnknownHost(address);
        }
        InetSocketAddress found = new InetSocketAddress(address.substring(0, colon).replaceAll("^\\[|\\]$", ""), port);
        if (found.isUnresolved()) {
            throw new UnknownHost(address);
        }
        return found;
    }

    static void closeQuietly(SocketChannel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException ignored) {
            // It is gone either way; there is nobody to tell.
            return;
        }
    }
}
