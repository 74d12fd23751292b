package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.data.Waiter;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.ChunkFile;
import org.apache.spark.shuffle.holdfast.wire.ChunksOpen;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The open streams of one reader, and where workers are: opens, waits for any, finds those that are late or stalled.
 *
 * <p>Rules: a connection is returned to the pool only when its stream ended by itself; otherwise something may
 * still be on its way, and it is closed. Called by {@link FetchReader}.
 */
final class Streams {
    /** A stream that has credit and brings nothing for so long is taken for lost. */
    private static final long STALL_NS = 30_000_000_000L;
    /** The same where everything that it owes can be read elsewhere. */
    private static final long SWITCH_NS = 3_000_000_000L;
    private static final long CONNECT_NS = 5_000_000_000L;
    /** How often a waiting reader checks for stalled streams. */
    private static final long LOOK_NS = 1_000_000_000L;
    /** Less time between two frames is not worth noting. */
    private static final long PAUSE_NS = 10_000_000L;

    /** Maps [begin, end), as the wire has it. */
    record Range(int begin, int end) {
        static final Range ALL = new Range(0, Limits.ALL_MAPS);
    }

    private final ConnectionPool connections;
    private final ReadBook book;
    private final ReadCosts costs;
    private final ChunkFetch chunks;
    private final ShuffleKey key;
    private final Range maps;
    private final int creditBytes;
    private final Map<Integer, String> addresses = new HashMap<>();
    private final List<ChunkStream> open = new ArrayList<>();
    private final List<Effect> news = new ArrayList<>();
    private Waiter waiter;
    private int turn;
    /** When the reader was given a frame; 0 while it waits. */
    private long busySinceNs;

    Streams(
            ReadContext context, ChunkFetch chunks, ShuffleKey key, Range maps, int creditBytes,
            List<WorkerAddress> workers, ReadCosts costs) {
        this.costs = costs;
        connections = context.connections();
        book = context.book();
        this.chunks = chunks;
        this.key = key;
        this.maps = maps;
        this.creditBytes = creditBytes;
        for (WorkerAddress each : workers) {
            addresses.put(each.worker(), each.address());
        }
    }

    /** Takes note of where workers are now; returns those that are alive. */
    Set<Integer> learn(List<WorkerAddress> workers) {
        Set<Integer> alive = new HashSet<>();
        for (WorkerAddress each : workers) {
            addresses.put(each.worker(), each.address());
            if (each.alive()) {
                alive.add(each.worker());
            }
        }
        return alive;
    }

    /** Asks a worker for files; returns why that failed, or null. Nothing is left of what failed, whatever it was. */
    HoldfastException open(Effect.OpenStream effect) {
        int worker = effect.worker();
        String address = addresses.get(worker);
        if (address == null) {
            return new HoldfastException(Status.UNAVAILABLE, "the address of worker " + worker + " is not known");
        }
        List<ChunkFile> files = new ArrayList<>(effect.files().size());
        for (EpochFile file : effect.files()) {
            files.add(new ChunkFile(file.partition, file.epoch, chunks.firstChunk(file, worker)));
        }
        WorkerConnection connection = null;
        boolean asked = false;
        long from = System.nanoTime();
        try {
            long lateNs = book.speculative() ? book.delayNs() : 0;
            long patienceNs = Math.min(CONNECT_NS, patienceNs(effect.stream()));
            if (lateNs > 0 && chunks.fetch.maySwitch(effect.stream())) {
                patienceNs = Math.min(patienceNs, lateNs); // nothing else is looked at meanwhile
            }
            connection = connections.borrow(worker, address, (int) (patienceNs / 1_000_000));
            ChunksOpen request = new ChunksOpen(key, maps.begin(), maps.end(), creditBytes, files);
            long id = connection.send(FrameType.CHUNKS_OPEN, request.encode());
            ChunkStream stream = new ChunkStream(
                    effect.stream(), effect.files(), connection, id, creditBytes, System.nanoTime(), lateNs,
                    connections.buffers());
            open.add(stream);
            book.opened(worker);
            watch(stream);
            asked = true;
            return null;
        } catch (HoldfastException error) {
            return error;
        } finally {
            costs.waited(System.nanoTime() - from);
            if (!asked && connection != null) {
                if (open.removeIf(each -> each.number == effect.stream())) {
                    book.closed(worker);
                }
                connections.discard(connection);
            }
        }
    }

    /**
     * Returns a stream that has a frame, waiting until {@code wakeAtNs} (0: as long as is good) at most; null if there is
     * none, or the thread was interrupted. Late, broken or stalled streams are then in {@link #takeNews()}.
     */
    ChunkStream ready(long wakeAtNs) throws HoldfastException {
        if (busySinceNs != 0) {
            notSilent(System.nanoTime());
        }
        ChunkStream found = anyReady();
        if (found == null && news.isEmpty()) {
            long now = System.nanoTime();
            long waitNs = wakeAtNs == 0 ? LOOK_NS : Math.max(0, Math.min(LOOK_NS, wakeAtNs - now));
            waitNs = book.speculative() ? Math.min(waitNs, untilLateNs(now)) : waitNs;
            await(waitNs / 1_000_000 + 1);
            costs.waited(System.nanoTime() - now);
            found = anyReady();
            if (found == null) {
                now = System.nanoTime();
                lookForLate(now);
                lookForStalls(now);
            }
        }
        busySinceNs = found == null ? 0 : found.seenNs;
        return found;
    }

    /** What the core makes of streams that failed or are late since this was asked. */
    List<Effect> takeNews() {
        List<Effect> taken = List.copyOf(news);
        news.clear();
        return taken;
    }

    /** The stream ended by itself. */
    void giveBack(ChunkStream stream) {
        if (forget(stream)) {
            connections.giveBack(stream.connection);
        }
    }

    /** The stream is left, or broken. */
    void discard(ChunkStream stream) {
        if (forget(stream)) {
            connections.discard(stream.connection);
        }
    }

    /** The same by number; nothing if it is over. */
    void discard(int number) {
        for (ChunkStream each : open) {
            if (each.number == number) {
                discard(each);
                return;
            }
        }
    }

    void close() {
        for (ChunkStream each : List.copyOf(open)) {
            discard(each);
        }
        if (waiter != null) {
            waiter.close();
            waiter = null;
        }
    }

    private boolean forget(ChunkStream stream) {
        if (!open.remove(stream)) {
            return false;
        }
        stream.release();
        costs.streamed(stream.seenNs - stream.askedNs);
        book.closed(stream.worker());
        if (waiter != null) {
            waiter.remove(stream.connection);
        }
        return true;
    }

    /** One connection waits by itself; a selector is worth it from two on. */
    private void watch(ChunkStream stream) throws HoldfastException {
        if (waiter != null) {
            waiter.add(stream.connection);
        } else if (open.size() > 1) {
            waiter = new Waiter();
            for (ChunkStream each : open) {
                waiter.add(each.connection);
            }
        }
    }

    private void await(long timeoutMs) throws HoldfastException {
        if (waiter == null && open.size() == 1) {
            open.get(0).connection.awaitReadable((int) timeoutMs);
            return;
        }
        if (waiter == null) {
            waiter = new Waiter();
        }
        waiter.await(timeoutMs);
    }

    /** Streams take turns. */
    private ChunkStream anyReady() {
        for (int count = open.size(); count > 0; count--) {
            turn = turn + 1 < open.size() ? turn + 1 : 0;
            ChunkStream stream = open.get(turn);
            try {
                if (stream.connection.ready()) {
                    stream.seenNs = System.nanoTime();
                    return stream;
                }
            } catch (HoldfastException error) {
                discard(stream);
                news.addAll(chunks.fetch.streamFailed(stream.number, error, System.nanoTime()));
                return null;
            }
        }
        return null;
    }

    /** A reader that was busy is not the workers' silence. */
    private void notSilent(long nowNs) {
        if (nowNs - busySinceNs > PAUSE_NS) {
            for (ChunkStream each : open) {
                long busyNs = nowNs - Math.max(busySinceNs, each.askedNs); // it may have been opened meanwhile
                each.seenNs += busyNs;
                each.askedNs += busyNs;
            }
        }
    }

    private long untilLateNs(long nowNs) {
        long least = LOOK_NS;
        for (ChunkStream each : open) {
            least = each.lateNs == 0 ? least : Math.min(least, Math.max(0, each.askedNs + each.lateNs - nowNs));
        }
        return least;
    }

    /** Tells the core which streams are late, and again after as long. */
    private void lookForLate(long nowNs) {
        for (ChunkStream each : open) {
            if (each.lateNs != 0 && nowNs - each.askedNs >= each.lateNs) {
                each.lateNs += book.delayNs();
                news.addAll(chunks.fetch.late(each.number));
            }
        }
    }

    private void lookForStalls(long nowNs) {
        for (ChunkStream each : List.copyOf(open)) {
            long patienceNs = patienceNs(each.number);
            if (nowNs - each.seenNs > patienceNs) {
                discard(each);
                String text = "worker " + each.worker() + (each.isOpened() ? " sent nothing" : " did not answer")
                        + " for " + patienceNs / 1_000_000_000 + " s";
                HoldfastException error = new HoldfastException(Status.UNAVAILABLE, text);
                news.addAll(chunks.fetch.streamFailed(each.number, error, nowNs));
            }
        }
    }

    /** How long the worker of a stream may be silent. */
    private long patienceNs(int stream) {
        return chunks.fetch.maySwitch(stream) ? SWITCH_NS : STALL_NS;
    }
}
