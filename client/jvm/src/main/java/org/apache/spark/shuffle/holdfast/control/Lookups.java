package org.apache.spark.shuffle.holdfast.control;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;

/**
 * Looks the names of masters up on threads of their own: a name server that does not answer may take any time, and no thread can be
 * called away from that.
 *
 * <p>Rules: one lookup of an address at a time, however many want it, so there are never more threads than addresses. An address without a name takes
 * no thread. Thread-safe. Called by {@link Connections}.
 */
final class Lookups {
    private static final Pattern NUMBERS = Pattern.compile("[0-9.]+|\\[?[0-9a-fA-F:.%]*:[0-9a-zA-Z:.%]*]?");

    private final Map<String, CompletableFuture<InetSocketAddress>> running = new HashMap<>();

    /** The address of "host:port", which may be unresolved. Each waiter has a deadline of its own. */
    CompletableFuture<InetSocketAddress> find(String host, int port) {
        if (NUMBERS.matcher(host).matches()) {
            return CompletableFuture.completedFuture(new InetSocketAddress(host, port));
        }
        String name = host + ":" + port;
        CompletableFuture<InetSocketAddress> found;
        synchronized (running) {
            found = running.get(name);
            if (found != null) {
                return found;
            }
            found = new CompletableFuture<>();
            running.put(name, found);
        }
        begin(name, host, port, found);
        return found;
    }

    private void begin(String name, String host, int port, CompletableFuture<InetSocketAddress> found) {
        Thread thread = new Thread(() -> {
            try {
                InetSocketAddress address = new InetSocketAddress(host, port);
                end(name);
                found.complete(address);
            } catch (RuntimeException | Error mistake) {
                end(name);
                found.completeExceptionally(mistake);
            }
        }, "holdfast-lookup-" + host);
        thread.setDaemon(true);
        try {
            thread.start();
        } catch (OutOfMemoryError full) {
            end(name);
            found.complete(new InetSocketAddress(host, port)); // without a thread it is done here
        }
    }

    private void end(String name) {
        synchronized (running) {
            running.remove(name);
        }
    }
}
