package org.apache.spark.shuffle.holdfast.data;

import java.io.IOException;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Waits for any of several connections, for the one thread that uses them.
 *
 * <p>Rules: {@link #await} belongs to that thread; {@link #wake} may be called by any. An interrupt of the thread ends
 * the wait and stays set. A connection is in one waiter at a time, and taken out before it is given back to the pool.
 * Called by the fetch reader, the pusher and {@link WorkerConnection} itself.
 */
public final class Waiter implements AutoCloseable {
    private final Selector selector;

    /** Throws UNAVAILABLE where the system has no descriptor left. */
    public Waiter() throws HoldfastException {
        try {
            selector = Selector.open();
        } catch (IOException error) {
            throw new HoldfastException(Status.UNAVAILABLE, "no selector can be opened: " + error.getMessage(), error);
        }
    }

    /** Wakes {@link #await} when this connection has something to read (or is broken), from now on. */
    public void add(WorkerConnection connection) throws HoldfastException {
        register(connection, SelectionKey.OP_READ);
    }

    /** Forgets the connection. */
    public void remove(WorkerConnection connection) {
        SelectionKey key = connection.channel().keyFor(selector);
        if (key != null) {
            key.cancel();
        }
    }

    /** Returns when something can be read, {@link #wake} was called, the thread was interrupted, or the time is up. */
    public void await(long timeoutMs) throws HoldfastException {
        try {
            if (timeoutMs <= 0) {
                selector.selectNow();
            } else {
                selector.select(timeoutMs);
            }
            selector.selectedKeys().clear();
        } catch (IOException error) {
            throw new HoldfastException(Status.UNAVAILABLE, "waiting for workers failed: " + error.getMessage(), error);
        }
    }

    /** Ends the wait of now, or else the next one. */
    public void wake() {
        selector.wakeup();
    }

    @Override
    public void close() {
        try {
            selector.close();
        } catch (IOException ignored) {
            // nothing is lost with a selector
        }
    }

    void register(WorkerConnection connection, int operations) throws HoldfastException {
        try {
            connection.channel().register(selector, operations);
        } catch (CancelledKeyException again) {
            // removed and added again before the selector looked: let it forget the old key first
            await(0);
            register(connection, operations);
        } catch (IOException | IllegalStateException error) {
            throw connection.broken("is closed", error instanceof IOException ? error : null);
        }
    }
}
