package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Selector;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** The connections to masters that are kept between calls, and the selectors of the calls under way. Thread-safe; no threads of its own. */
final class Connections {
    private static final int IDLE_MAX = 8;
    private static final int SELECTORS_MAX = 8;

    private final CredentialsProvider credentials;
    /** Which cluster the masters have to be of; empty until one has answered. */
    private volatile String cluster = "";
    private final Map<String, Deque<Connection>> idle = new HashMap<>();
    private final Lookups lookups = new Lookups();
    private final Deque<Selector> spare = new ArrayDeque<>();
    private final Set<Selector> used = new HashSet<>();
    private boolean closed;

    Connections(CredentialsProvider credentials) {
        this.credentials = credentials;
    }

    /** What is shown on each of them. */
    CredentialsProvider credentials() {
        return credentials;
    }

    /** Id of the cluster that answered first, "" before: the answers of all others are none. */
    String cluster() {
        return cluster;
    }

    /** Takes note of whose answer it was; returns whether it is the cluster that answered first. */
    synchronized boolean isOf(String answering) {
        if (cluster.isEmpty()) {
            cluster = answering;
        }
        return cluster.equals(answering);
    }

    /** A selector for one round of exchanges; UNAVAILABLE once this is closed. */
    synchronized Selector selector() throws HoldfastException {
        checkOpen();
        try {
            Selector selector = spare.isEmpty() ? Selector.open() : spare.pop();
            used.add(selector);
            return selector;
        } catch (IOException error) {
            throw new HoldfastException(Status.INTERNAL, "no selector can be opened: " + error.getMessage(), error);
        }
    }

    /** How names become addresses. */
    Lookups lookups() {
        return lookups;
    }

    /** A connection to this master that is still open, or null. */
    synchronized Connection take(String address) {
        Deque<Connection> kept = idle.get(address);
        while (kept != null && !kept.isEmpty()) {
            Connection connection = kept.pop();
            if (connection.isQuiet()) {
                return connection;
            }
            connection.close();
        }
        return null;
    }

    /** A round is over. Its connections are not registered any more once its selector has looked again. */
    synchronized void giveBack(Selector selector, Map<Connection, String> clean) {
        used.remove(selector);
        try {
            selector.selectNow();
            if (closed || spare.size() >= SELECTORS_MAX) {
                selector.close();
            } else {
                spare.push(selector);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        clean.forEach((connection, address) -> {
            Deque<Connection> kept = idle.computeIfAbsent(address, any -> new ArrayDeque<>());
            if (closed || kept.size() >= IDLE_MAX) {
                connection.close();
            } else {
                kept.push(connection);
            }
        });
    }

    synchronized void checkOpen() throws HoldfastException {
        if (closed) {
            throw new HoldfastException(Status.INTERNAL, "the calls of the masters were closed");
        }
    }

    /** Close idle connections and wake the waiters; running rounds close theirs at their end. */
    synchronized void close() {
        closed = true;
        idle.values().forEach(kept -> kept.forEach(Connection::close));
        idle.clear();
        used.forEach(Selector::wakeup);
        for (Selector each : spare) {
            try {
                each.close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        spare.clear();
    }
}
