package org.apache.spark.shuffle.holdfast.control;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** The connections to masters that are kept between calls, and the selectors of the calls under way. Thread-safe; no threads of its own. */
final class Connections {
    private static final int IDLE_MAX = 8;
    private static final int SELECTORS_MAX = 8;

    private final Map<String, Deque<SocketChannel>> idle = new HashMap<>();
    private final Deque<Selector> spare = new ArrayDeque<>();
    private final Set<Selector> used = new HashSet<>();
    private boolean closed;

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

    /** A connection to this master that is still open, or null. */
    synchronized SocketChannel take(String address) {
        Deque<SocketChannel> kept = idle.get(address);
        while (kept != null && !kept.isEmpty()) {
            SocketChannel channel = kept.pop();
            try {
                // A master closes a connection that was silent for long; nothing else may come unasked.
                if (channel.read(ByteBuffer.allocate(1)) == 0) {
                    return channel;
                }
            } catch (IOException broken) {
                Exchange.closeQuietly(channel);
                continue;
            }
            Exchange.closeQuietly(channel);
        }
        return null;
    }

    /** A round is over. Its channels are not registered any more once its selector has looked again. */
    synchronized void giveBack(Selector selector, Map<SocketChannel, String> clean) {
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
        clean.forEach((channel, address) -> {
            Deque<SocketChannel> kept = idle.computeIfAbsent(address, any -> new ArrayDeque<>());
            if (closed || kept.size() >= IDLE_MAX) {
                Exchange.closeQuietly(channel);
            } else {
                kept.push(channel);
            }
        });
    }

    synchronized void checkOpen() throws HoldfastException {
        if (closed) {
            throw new HoldfastException(Status.INTERNAL, "the calls of the masters were closed");
        }
    }

    /** Close what is idle and wake whoever waits; rounds under way close theirs as they end. */
    synchronized void close() {
        closed = true;
        idle.values().forEach(kept -> kept.forEach(Exchange::closeQuietly));
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
