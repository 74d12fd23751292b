package org.apache.spark.shuffle.holdfast.data;

import static org.apache.spark.shuffle.holdfast.data.FakeWorker.frame;
import static org.apache.spark.shuffle.holdfast.data.FakeWorker.readFrame;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.secure.TestTls;
import org.apache.spark.shuffle.holdfast.wire.Closing;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Connections, their pool and the buffers against a worker that sends anything in any slices. Run by pytest; prints "ok". Arguments: none, or, for
 * the same through TLS, the CA's certificate and the worker's key store.
 */
public final class DataMain {
    private static final int WORKER = 7;
    private static CredentialsProvider credentials = new CredentialsProvider();

    private DataMain() {}

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] all = new byte[buffer.remaining()];
        buffer.duplicate().get(all);
        return all;
    }

    private static WorkerConnection open(FakeWorker worker, Buffers buffers) throws HoldfastException {
        return WorkerConnection.open(WORKER, worker.address(), Hello.client("c", 0), credentials, 5_000, buffers);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            credentials = TestTls.credentials(arguments[0]);
            FakeWorker.sockets = TestTls.context(arguments[1]).getServerSocketFactory();
        }
        int seeds = arguments.length > 0 ? 5 : 12;
        for (int seed = 0; seed < seeds; seed++) {
            framesInAnySlices(seed);
        }
        whatIsSentArrives();
        refusals();
        pooled();
        buffers();
        System.out.println("ok");
    }

    /** Frames of every size, in slices cut anywhere, are what was sent; nothing is left of them. */
    private static void framesInAnySlices(int seed) throws Exception {
        Random random = new Random(seed);
        int[] sizes = {0, 1, 100, 3_000, 65_000, (64 << 10) - 57, (64 << 10) - 32, 64 << 10, 300_000, 1 << 20, 5 << 20};
        List<byte[][]> frames = new ArrayList<>();
        int count = seed % 3 == 0 ? 2_000 : 60;
        for (int each = 0; each < count; each++) {
            byte[] meta = new byte[random.nextInt(20) == 0 ? random.nextInt(200_000) : random.nextInt(60)];
            byte[] body = new byte[sizes[random.nextInt(count > 100 ? 5 : sizes.length)]];
            random.nextBytes(meta);
            random.nextBytes(body);
            frames.add(new byte[][] {meta, body});
        }
        FakeWorker.Story story = (in, out) -> {
            java.io.ByteArrayOutputStream all = new java.io.ByteArrayOutputStream();
            for (int each = 0; each < frames.size(); each++) {
                byte[][] parts = frames.get(each);
                all.write(frame(FrameType.CHUNKS_DATA, each, ByteBuffer.wrap(parts[0]), parts[1], Status.OK));
            }
            byte[] stream = all.toByteArray();
            Random cuts = new Random(seed);
            int slice = seed % 2 == 0 ? 200_000 : 3_000;
            for (int at = 0; at < stream.length; ) {
                int length = Math.min(stream.length - at, 1 + cuts.nextInt(slice));
                out.write(stream, at, length);
                at += length;
            }
        };
        Buffers buffers = new Buffers(32 << 20);
        try (FakeWorker worker = new FakeWorker(WORKER, story)) {
            WorkerConnection connection = open(worker, buffers);
            check(connection.incarnation() == 3, "another incarnation");
            for (int each = 0; each < frames.size(); each++) {
                Frame frame = connection.receive(10_000);
                check(frame != null && frame.requestId() == each, "frame " + each + " of seed " + seed);
                check(java.util.Arrays.equals(bytes(frame.meta()), frames.get(each)[0]), "meta of " + each);
                check(java.util.Arrays.equals(bytes(frame.body()), frames.get(each)[1]), "body of " + each);
                if (random.nextBoolean()) {
                    frame.release();
                }
            }
            check(connection.receive(0) == null && !connection.ready(), "a frame too many");
            connection.close();
            check(buffers.taken() == 0, buffers.taken() + " buffers are left");
        }
    }

    /** Long bodies of several buffers arrive though the worker reads slowly. */
    private static void whatIsSentArrives() throws Exception {
        CountDownLatch read = new CountDownLatch(1);
        List<FakeWorker.Came> came = new ArrayList<>();
        FakeWorker.Story story = (in, out) -> {
            for (int each = 0; each < 3; each++) {
                came.add(readFrame(in));
            }
            read.countDown();
        };
        Buffers buffers = new Buffers(32 << 20);
        try (FakeWorker worker = new FakeWorker(WORKER, story)) {
            WorkerConnection connection = open(worker, buffers);
            ByteBuffer body = buffers.take(9 << 20);
            body.limit(9 << 20);
            for (int at = 0; at < body.limit(); at += 4) {
                body.putInt(at, at);
            }
            ByteBuffer meta = ByteBuffer.wrap(new byte[300_000]);
            connection.send(FrameType.PUSH, meta, body.duplicate().limit(5 << 20), body.duplicate().position(5 << 20));
            long id = connection.send(FrameType.PUSH, ByteBuffer.wrap(new byte[9]));
            connection.send(FrameType.STREAM_CREDIT, id, ByteBuffer.wrap(new byte[12]), ByteBuffer.wrap(new byte[5]));
            read.await();
            check(came.get(0).meta().length == 300_000 && java.util.Arrays.equals(came.get(0).body(), bytes(body)), "the first");
            check(came.get(1).meta().length == 9 && came.get(1).body().length == 0, "the second");
            check(came.get(2).meta().length == 12 && came.get(2).body().length == 5, "the third");
            connection.close();
            buffers.release(body);
            check(buffers.taken() == 0, buffers.taken() + " buffers are left");
        }
    }

    private interface Attempt {
        void run() throws Exception;
    }

    private static void fails(int status, String text, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (HoldfastException right) {
            check(right.status() == status && right.getMessage().contains(text) && right.getMessage().contains("worker 7"),
                    Status.name(right.status()) + " " + right.getMessage());
            return;
        }
        throw new AssertionError("no error with " + text);
    }

    /** Every way in which a connection ends is an error that names the worker; nothing is left of it. */
    private static void refusals() throws Exception {
        Buffers buffers = new Buffers(1 << 20);
        try (FakeWorker other = new FakeWorker(8, (in, out) -> {})) {
            fails(Status.UNAVAILABLE, "worker 8 answers", () -> open(other, buffers));
        }
        fails(Status.UNAVAILABLE, "cannot be reached", () -> WorkerConnection.open(
                WORKER, "127.0.0.1:1", Hello.client("c", 0), credentials, 1_000, buffers));
        byte[] closing = frame(FrameType.CLOSING, 0, new Closing("no room").encode(), new byte[0], Status.BUSY);
        try (FakeWorker busy = new FakeWorker(WORKER, (in, out) -> out.write(closing))) {
            fails(Status.BUSY, "no room", () -> open(busy, buffers).receive(5_000));
        }
        try (FakeWorker gone = new FakeWorker(WORKER, (in, out) -> {
            throw new IOException("it ends");
        })) {
            fails(Status.UNAVAILABLE, "worker 7", () -> open(gone, buffers).receive(5_000));
        }
        byte[] broken = frame(FrameType.CHUNKS_DATA, 1, ByteBuffer.wrap(new byte[40]), new byte[9], Status.OK);
        broken[50] ^= 1;
        try (FakeWorker wrong = new FakeWorker(WORKER, (in, out) -> out.write(broken))) {
            fails(Status.UNAVAILABLE, "checksum", () -> open(wrong, buffers).receive(5_000));
        }
        try (FakeWorker silent = new FakeWorker(WORKER, (in, out) -> {})) {
            WorkerConnection connection = open(silent, buffers);
            check(connection.receive(20) == null, "a frame from nowhere");
            Thread.currentThread().interrupt();
            check(connection.receive(60_000) == null && Thread.interrupted(), "the interrupt is lost");
            check(!connection.isClosed(), "an interrupt closed it");
            connection.close();
            fails(Status.UNAVAILABLE, "is closed", () -> connection.send(FrameType.PING, ByteBuffer.allocate(0)));
        }
        check(buffers.taken() == 0, buffers.taken() + " buffers are left");
    }

    /** A connection is used again, unless it broke or something came meanwhile. */
    private static void pooled() throws Exception {
        Buffers buffers = new Buffers(1 << 20);
        ConnectionPool pool = new ConnectionPool(() -> Hello.client("c", 0, credentials.tokenBytes()), credentials, buffers);
        CountDownLatch speak = new CountDownLatch(1);
        try (FakeWorker worker = new FakeWorker(WORKER, (in, out) -> {
            if (speak.getCount() == 0) {
                return;
            }
            speak.await();
            out.write(frame(FrameType.PING, 9, ByteBuffer.allocate(0), new byte[0], Status.OK));
        })) {
            WorkerConnection first = pool.borrow(WORKER, worker.address());
            pool.giveBack(first);
            check(pool.borrow(WORKER, worker.address()) == first && worker.accepted == 1, "it was not used again");
            check(pool.borrowed() == 1 && pool.idle() == 0, "wrong counts");
            speak.countDown();
            first.awaitReadable(10_000);
            pool.giveBack(first);
            check(!first.isClosed() && pool.idle() == 1, "it is not kept");
            // what came unasked is noticed here, and the worker then has its hands free for another
            WorkerConnection second = pool.borrow(WORKER, worker.address());
            check(second != first && first.isClosed() && worker.accepted == 2, "what nobody asked for was passed on");
            pool.discard(second);
            check(pool.borrowed() == 0 && pool.idle() == 0, "wrong counts");
        }
        pool.close();
        check(buffers.taken() == 0, buffers.taken() + " buffers are left");
        try {
            pool.borrow(WORKER, "127.0.0.1:1");
            throw new AssertionError("a closed pool gave a connection");
        } catch (HoldfastException right) {
            check(right.getMessage().contains("closed"), right.getMessage());
        }
    }

    /** What lies idle is bounded, and what is out is counted. */
    private static void buffers() {
        Buffers buffers = new Buffers(3 << 20);
        List<ByteBuffer> taken = new ArrayList<>();
        for (int each = 0; each < 6; each++) {
            ByteBuffer one = buffers.take((1 << 20) - each);
            check(one.capacity() == 1 << 20 && one.position() == 0 && one.isDirect(), "not of its class");
            check(one.order() == ByteOrder.LITTLE_ENDIAN, "not little endian");
            taken.add(one);
        }
        ByteBuffer huge = buffers.take(Buffers.CLASS_BYTES_MAX + 1);
        check(huge.capacity() == Buffers.CLASS_BYTES_MAX + 1, "a long one has its own size");
        check(buffers.taken() == 7 && buffers.takenBytes() == (6 << 20) + huge.capacity(), "wrong counts");
        buffers.release(huge);
        taken.forEach(buffers::release);
        check(buffers.taken() == 0 && buffers.takenBytes() == 0 && buffers.keptBytes() == 3 << 20, "wrong counts");
        ByteBuffer again = buffers.take(1 << 20);
        check(taken.stream().anyMatch(each -> each == again), "none is used again");
        buffers.trim();
        check(buffers.keptBytes() == 0, "idle memory is left");
    }
}
