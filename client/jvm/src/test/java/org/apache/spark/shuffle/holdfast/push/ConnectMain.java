package org.apache.spark.shuffle.holdfast.push;

import java.io.DataInputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.data.FakeWorker;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.PushAnswer;
import org.apache.spark.shuffle.holdfast.wire.PushCredit;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * A writer of twenty workers, of which one does not answer HELLO until all others have what is theirs. Run by tests/jvm/test_push.py; prints
 * "ok".
 */
public final class ConnectMain {
    private static final int WORKERS = 20;
    private static final int ROOM_BYTES = 1 << 20;
    private static final int WAIT_SECONDS = 50;

    private ConnectMain() {}

    /** An error ends it. */
    public static void main(String[] arguments) throws Exception {
        CountDownLatch greeted = new CountDownLatch(WORKERS);
        CountDownLatch pushed = new CountDownLatch(WORKERS - 1);
        CountDownLatch release = new CountDownLatch(1);
        Buffers buffers = new Buffers(ROOM_BYTES);
        List<FakeWorker> workers = new ArrayList<>();
        List<WorkerAddress> addresses = new ArrayList<>();
        Location[] places = new Location[WORKERS];
        for (int each = 0; each < WORKERS; each++) {
            boolean silent = each == 0;
            FakeWorker worker = new FakeWorker(each + 1, (in, out) -> {
                greeted.countDown();
                if (silent) {
                    release.await();
                }
            }, (in, out) -> serve(in, out, pushed));
            workers.add(worker);
            addresses.add(new WorkerAddress(each + 1, 3, "host", worker.address(), true, "", false));
            places[each] = new Location(0, List.of(each + 1), 0);
        }
        try (Masters nowhere = new Masters("127.0.0.1:1", 1_000);
                ConnectionPool pool = new ConnectionPool(
                        () -> Hello.client("c", 0), new CredentialsProvider(), buffers, 20 * 1_000 * WAIT_SECONDS);
                PushContext context = new PushContext(nowhere, pool, buffers, 1, 0, PushLimits.USUAL)) {
            RegisteredShuffle registered = new RegisteredShuffle(
                    new ShuffleKey(Instance.random(), 1, 0), 1, 0, ReduceLocations.of(places).encode(), addresses);
            PushWriter writer = new PushWriter(context, registered, new PartitionLocations(registered), 0, 7, Compression.NONE, null);
            within(greeted, "before anything is written all workers are connected to");
            for (int each = 0; each < WORKERS; each++) {
                writer.write(each, new byte[100], 0, 100);
            }
            FutureTask<long[]> sizes = new FutureTask<>(writer::close);
            new Thread(sizes).start();
            within(pushed, "the workers that answer get what is theirs");
            check(!sizes.isDone(), "the attempt ended without one of its workers");
            release.countDown();
            check(sizes.get(WAIT_SECONDS, TimeUnit.SECONDS)[0] == 100, "the worker that answered late has its batch");
            check(pool.borrowed() == 0, pool.borrowed() + " connections are out");
            abandoned(context, registered, pool);
        }
        check(buffers.taken() == 0, buffers.taken() + " buffers are out");
        for (FakeWorker each : workers) {
            each.close();
        }
        System.out.println("ok");
    }

    /** A writer that is given up before it pushed anything leaves no connection out. */
    private static void abandoned(PushContext context, RegisteredShuffle registered, ConnectionPool pool) throws Exception {
        PushWriter writer = new PushWriter(context, registered, new PartitionLocations(registered), 0, 8, Compression.NONE, null);
        writer.abort();
        while (context.busyThreads() > 0) {
            Thread.onSpinWait();
        }
        check(pool.borrowed() == 0, pool.borrowed() + " connections are out");
    }

    private static void serve(DataInputStream in, OutputStream out, CountDownLatch pushed) throws Exception {
        for (;;) {
            FakeWorker.Came came = FakeWorker.readFrame(in);
            int type = came.header().type();
            if (type == FrameType.PUSH) {
                pushed.countDown();
            }
            out.write(FakeWorker.frame(
                    type, came.header().requestId(),
                    type == FrameType.PUSH
                            ? new PushAnswer(ROOM_BYTES, 0, 0, new int[0], new int[0]).encode() : new PushCredit(ROOM_BYTES).encode(),
                    new byte[0], Status.OK));
        }
    }

    private static void within(CountDownLatch latch, String what) throws InterruptedException {
        check(latch.await(WAIT_SECONDS, TimeUnit.SECONDS), what + "; missing: " + latch.getCount());
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
