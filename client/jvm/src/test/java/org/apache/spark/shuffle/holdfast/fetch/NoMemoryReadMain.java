package org.apache.spark.shuffle.holdfast.fetch;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.data.FakeWorker;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.wire.CopyResult;
import org.apache.spark.shuffle.holdfast.wire.EpochResult;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Reads that meet a JVM without direct memory: as they ask for more files than a connection's buffer names, and as something long lies on an idle
 * connection. The connection is given back, and counted as that. To be run with a few MiB of direct memory; run by tests/jvm/test_fetch.py.
 */
public final class NoMemoryReadMain {
    private static final int WORKER = 7;
    private static final int PARTITIONS = 3_000;
    private static final int LONG_BYTES = 300_000;
    private static final int WAIT_MS = 3_000;

    private NoMemoryReadMain() {}

    /** An error ends it. */
    public static void main(String[] arguments) throws Exception {
        askedForMuch();
        unasked();
        System.out.println("ok");
    }

    private static void askedForMuch() throws Exception {
        Buffers buffers = new Buffers(0);
        try (FakeWorker worker = new FakeWorker(WORKER, (in, out) -> {});
                ServerSocket silent = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
                Masters masters = new Masters("127.0.0.1:" + silent.getLocalPort(), WAIT_MS);
                ConnectionPool pool = new ConnectionPool(() -> Hello.client("c", 0), buffers)) {
            pool.giveBack(pool.borrow(WORKER, worker.address()));
            ReadBook book = new ReadBook(ReadSettings.defaults());
            ReadContext context = new ReadContext(masters, pool, FetchLimits.defaults(), book);
            List<ByteBuffer> taken = fill();
            Manifest manifest = manifest(worker.address());
            try (FetchReader reader = new FetchReader(
                    context, manifest, 0, PARTITIONS, 0, 1, ExpectedMaps.of(manifest.winners()), new CountedCosts())) {
                reader.next();
                throw new AssertionError("there is memory");
            } catch (NoDirectMemoryException full) {
                nothingLeft(buffers, pool);
                Check.equal(book.open(), 0);
            }
            Check.that(!taken.isEmpty(), "nothing was taken");
        }
    }

    private static void unasked() throws Exception {
        Buffers buffers = new Buffers(0);
        try (FakeWorker worker = new FakeWorker(WORKER, (in, out) -> out.write(
                        FakeWorker.frame(FrameType.CHUNKS_DATA, 1, ByteBuffer.allocate(8), new byte[LONG_BYTES], Status.OK)));
                ConnectionPool pool = new ConnectionPool(() -> Hello.client("c", 0), buffers)) {
            var connection = pool.borrow(WORKER, worker.address());
            connection.awaitReadable(WAIT_MS);
            pool.giveBack(connection);
            List<ByteBuffer> taken = fill();
            try {
                pool.discard(pool.borrow(WORKER, worker.address())); // another one, for which that one's memory was enough
            } catch (NoDirectMemoryException | HoldfastException full) {
                Check.that(!taken.isEmpty(), "nothing was taken");
            }
            Check.that(connection.isClosed(), "what nobody asked for lies on it");
            nothingLeft(buffers, pool);
        }
    }

    private static void nothingLeft(Buffers buffers, ConnectionPool pool) {
        Check.equal(pool.borrowed(), 0);
        Check.equal(buffers.taken(), 2 * pool.idle());
    }

    private static Manifest manifest(String address) throws HoldfastException {
        EpochResult[] results = new EpochResult[PARTITIONS];
        for (int partition = 0; partition < PARTITIONS; partition++) {
            results[partition] = new EpochResult(partition, 0, List.of(new CopyResult(WORKER, Status.OK, 100)));
        }
        ShuffleKey key = new ShuffleKey(Instance.random(), 0, 0);
        ReduceWinners winners = new ReduceWinners(PARTITIONS, new long[] {9}, new byte[][] {new byte[(PARTITIONS + 7) / 8]});
        WorkerAddress place = new WorkerAddress(WORKER, 3, "here", address, true, "", false);
        return new Manifest(key, winners, ReduceManifest.of(PARTITIONS, results), List.of(place), 0);
    }

    /** Takes all the direct memory that is left. */
    private static List<ByteBuffer> fill() {
        List<ByteBuffer> taken = new ArrayList<>();
        for (int size = 1 << 20; size > 0; size /= 2) {
            for (boolean more = true; more; ) {
                try {
                    taken.add(ByteBuffer.allocateDirect(size));
                } catch (OutOfMemoryError full) {
                    more = false;
                }
            }
        }
        return taken;
    }
}
