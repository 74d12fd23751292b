package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.secure.TlsChannel;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * One try at one master: an HTTP/1.1 POST with a JSON body over a connection of its own for as long as it lasts. Never blocks;
 * {@link Round} calls {@link #go} when the connection is ready. Every failure is an outcome: the master's own refusal by its
 * status number, and UNAVAILABLE for what says nothing about the call: refused, reset, or answered as no master of this
 * cluster does (docs/internals/control_plane.md), whatever its HTTP status is.
 */
final class Exchange {
    /** A refusal of a master that does not lead; {@code leader} is the HTTP address of the one that does, or "". */
    static final class NotLeader extends HoldfastException {
        private static final long serialVersionUID = 1L;
        final String leader;

        NotLeader(String message, String leader) {
            super(Status.NOT_LEADER, message, null, true);
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

    /** Something answered, and not as a master of this cluster does: the leader is to be looked for elsewhere, and here later. */
    static final class NotMaster extends HoldfastException {
        private static final long serialVersionUID = 1L;

        NotMaster(String message) {
            super(Status.UNAVAILABLE, message);
        }
    }

    private static final int HTTP_OK = 200;
    private static final int HEAD_BYTES_MAX = 16 * Limits.KIB;
    private static final int BODY_BYTES_MAX = Limits.CONTROL_MESSAGE_BYTES_MAX / 3 * 4 + 64 * Limits.KIB;
    /** The first byte of what a server says that wants TLS and is not spoken to in it. */
    private static final int TLS_ALERT = 21;
    private static final byte[] HEAD_END = {'\r', '\n', '\r', '\n'};

    final String address;
    private final Connections connections;
    private final Selector selector;
    /** Null until the address is known, and without one. */
    private Connection connection;
    /** The resolved address; null for a connection that is kept. */
    private CompletableFuture<InetSocketAddress> lookup;
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
    Exchange(String address, Connection kept, String path, byte[] body, Selector selector, Connections connections) {
        this.address = address;
        this.connections = connections;
        this.selector = selector;
        CredentialsProvider credentials = connections.credentials();
        byte[] head = ("POST " + path + " HTTP/1.1\r\nHost: " + address
                + (credentials.secure() ? "\r\nAuthorization: Bearer " + credentials.token() : "")
                + "\r\nContent-Type: application/json\r\nContent-Length: " + body.length + "\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1);
        out = ByteBuffer.allocate(head.length + body.length).put(head).put(body).flip();
        if (kept != null) {
            connection = kept;
            begin();
            return;
        }
        try {
            lookup = lookUp();
        } catch (HoldfastException error) {
            fail(error);
            return;
        }
        goOn();
        if (!lookup.isDone()) {
            lookup.whenComplete((found, error) -> selector.wakeup());
        }
    }

    /** Connect as soon as it is known to where; called whenever the selector was left. */
    void goOn() {
        if (done || connection != null || !lookup.isDone()) {
            return;
        }
        try {
            InetSocketAddress found = lookup.join();
            if (found.isUnresolved()) {
                throw new UnknownHost(address);
            }
            connection = Connection.begin(found, connections.credentials());
        } catch (HoldfastException error) {
            fail(error);
        } catch (IOException error) {
            fail(unreachable(error));
        } catch (CompletionException mistake) {
            fail(new HoldfastException(Status.UNAVAILABLE, address + ": its name cannot be looked up: " + mistake.getCause(), mistake));
        }
        if (connection != null) {
            begin();
        }
    }

    /** What there is to say where it is not done in time. */
    String late() {
        return address + (connection == null ? ": its name was not looked up in time" : ": did not answer in time");
    }

    private void begin() {
        boolean connected = connection.socket.isConnected();
        try {
            SelectionKey key = connection.socket.register(
                    selector, connected ? SelectionKey.OP_WRITE : SelectionKey.OP_CONNECT, this);
            if (connected) {
                go(key);
            }
        } catch (IOException error) {
            fail(unreachable(error));
        }
    }

    boolean done() {
        return done;
    }

    /** The reply; only once it is done. Throws its error instead. */
    JsonObject reply() throws HoldfastException {
        if (failure != null) {
            throw failure;
        }
        String named = cluster();
        if (named == null) {
            throw noMaster(httpStatus == HTTP_OK ? "it names no cluster" : message());
        }
        if (!connections.cluster().isEmpty() && !connections.cluster().equals(named)) {
            throw new NotMaster(address + ": is a master of another cluster, " + named);
        }
        if (httpStatus == HTTP_OK) {
            try {
                return JsonObject.decode(in, bodyStart, bodyEnd - bodyStart);
            } catch (HoldfastException error) {
                throw noMaster(error.getMessage());
            }
        }
        throw refusal(message());
    }

    /** The cluster that the answer names, null if none: then no master gave it. */
    private String cluster() {
        try {
            String named = URLDecoder.decode(headers.getOrDefault("holdfast-cluster", ""), StandardCharsets.UTF_8);
            return named.isEmpty() ? null : named;
        } catch (IllegalArgumentException garbage) {
            return null;
        }
    }

    /** End it: the connection, if another call may go over it, and else null. */
    Connection end() {
        boolean clean = done && failure == null && !out.hasRemaining() && filled == bodyEnd
                && !"close".equalsIgnoreCase(headers.get("connection"));
        if (clean) {
            return connection;
        }
        if (connection != null) {
            connection.close();
        }
        return null;
    }

    /** Go as far as the connection lets us. */
    void go(SelectionKey key) {
        try {
            int wait = connection.open();
            if (wait != 0) {
                key.interestOps(wait);
                return;
            }
            // An answer that comes before all is sent is a refusal: it has to be read.
            key.interestOps(connection.write(out) ? SelectionKey.OP_READ : SelectionKey.OP_WRITE | SelectionKey.OP_READ);
            read();
        } catch (IOException error) {
            fail(error instanceof HoldfastException ours ? ours : unreachable(error));
        }
        if (done) {
            key.cancel();
        }
    }

    private void read() throws IOException {
        while (!done) {
            if (filled == in.length) {
                in = Arrays.copyOf(in, Math.min(in.length * 2, HEAD_BYTES_MAX + BODY_BYTES_MAX));
            }
            int got = connection.read(in, filled, in.length - filled);
            if (got < 0) {
                throw filled > 0 && in[0] == TLS_ALERT
                        ? noMaster("it requires TLS: set spark.holdfast.security.ca and spark.holdfast.security.tokenFile")
                        : new HoldfastException(Status.UNAVAILABLE,
                                address + ": closed the connection without an answer (is this the HTTP port of a master? If it uses TLS, set"
                                        + " spark.holdfast.security.ca and spark.holdfast.security.tokenFile)");
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
            throw noMaster("it does not speak HTTP/1.1; set the endpoints to the masters' HTTP ports");
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
        return HoldfastException.fromServer(status, message.isEmpty() ? Status.name(status) : message);
    }

    /** The message of a Connect error body; the body itself where it is none. */
    private String message() {
        int length = Math.min(bodyEnd - bodyStart, 2_000);
        try {
            String text = JsonObject.decode(in, bodyStart, bodyEnd - bodyStart).text("message");
            if (!text.isEmpty()) {
                return text;
            }
        } catch (HoldfastException notJson) {
            return new String(in, bodyStart, length, StandardCharsets.UTF_8);
        }
        return "HTTP status " + httpStatus;
    }

    private HoldfastException noMaster(String reason) {
        String text = reason.strip();
        return new NotMaster(address + ": answers, but is no master: " + text.substring(0, Math.min(text.length(), 200)));
    }

    private void fail(HoldfastException error) {
        failure = error;
        done = true;
    }

    private HoldfastException unreachable(IOException error) {
        if (TlsChannel.isStranger(error)) {
            return noMaster(TlsChannel.reason(error));
        }
        String reason = error instanceof ConnectException ? "connection refused" : "cannot be reached: " + TlsChannel.reason(error);
        return new HoldfastException(Status.UNAVAILABLE, address + ": " + reason, error);
    }

    private CompletableFuture<InetSocketAddress> lookUp() throws HoldfastException {
        int colon = address.lastIndexOf(':');
        int port = colon > 0 && address.substring(colon + 1).matches("[0-9]{1,5}")
                ? Integer.parseInt(address.substring(colon + 1)) : 0;
        if (port < 1 || port > 65_535) {
            throw new UnknownHost(address);
        }
        return connections.lookups().find(address.substring(0, colon).replaceAll("^\\[|\\]$", ""), port);
    }
}
