package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Exchanges with several masters at once by one thread: begin some, wait for progress, look at them, close. Interrupts end a wait at once. */
final class Round implements AutoCloseable {
    private final Connections connections;
    private final Selector selector;
    private final List<Exchange> open = new ArrayList<>();
    private final Map<Connection, String> clean = new HashMap<>();

    Round(Connections connections) throws HoldfastException {
        this.connections = connections;
        this.selector = connections.selector();
    }

    Exchange begin(String address, String method, byte[] body) {
        Exchange begun = new Exchange(address, connections.take(address), "/holdfast.v1." + method, body, selector, connections);
        open.add(begun);
        return begun;
    }

    /** Wait until some exchange has moved, or the time ({@link System#nanoTime}) has come. Interrupted or closed: INTERNAL. */
    void await(long until) throws HoldfastException {
        long millis = (until - System.nanoTime()) / 1_000_000 + 1;
        try {
            // Looks once even where it is late already; 0 would wait for ever.
            selector.select(key -> ((Exchange) key.attachment()).go(key), Math.max(millis, 1));
        } catch (IOException error) {
            throw new HoldfastException(Status.INTERNAL, "cannot wait for masters: " + error.getMessage(), error);
        }
        open.forEach(Exchange::goOn);
        checkInterrupt();
        connections.checkOpen();
    }

    /** End an exchange before the others. */
    void drop(Exchange exchange) {
        open.remove(exchange);
        Connection connection = exchange.end();
        if (connection != null) {
            SelectionKey key = connection.socket.keyFor(selector);
            if (key != null) {
                key.cancel();
            }
            clean.put(connection, exchange.address);
        }
    }

    @Override
    public void close() {
        for (Exchange each : List.copyOf(open)) {
            drop(each);
        }
        connections.giveBack(selector, clean);
    }

    /** Throw if the thread is interrupted; its flag stays set. */
    static void checkInterrupt() throws HoldfastException {
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
    }

    static HoldfastException interrupted() {
        return new HoldfastException(Status.INTERNAL, "interrupted while waiting for the masters");
    }
}
