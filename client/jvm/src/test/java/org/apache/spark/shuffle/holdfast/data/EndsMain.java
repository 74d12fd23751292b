package org.apache.spark.shuffle.holdfast.data;

import java.nio.ByteBuffer;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** A connection that is closed while frames that had come were not looked at. Run by tests/jvm/test_fetch.py; prints "ok". */
public final class EndsMain {
    private static final int WORKER = 7;
    private static final int FRAMES = 3;
    private static final int WAIT_MS = 10_000;

    private EndsMain() {}

    /** An error ends it. */
    public static void main(String[] arguments) throws Exception {
        for (boolean looked : new boolean[] {true, false}) {
            Buffers buffers = new Buffers(1 << 20);
            try (FakeWorker worker = new FakeWorker(WORKER, (in, out) -> {
                byte[] frame = FakeWorker.frame(FrameType.PING, 1, ByteBuffer.allocate(8), new byte[100], Status.OK);
                byte[] all = new byte[frame.length * FRAMES];
                for (int each = 0; each < FRAMES; each++) {
                    System.arraycopy(frame, 0, all, each * frame.length, frame.length);
                }
                out.write(all);
            })) {
                WorkerConnection connection =
                        WorkerConnection.open(WORKER, worker.address(), Hello.client("c", 0), new CredentialsProvider(), WAIT_MS, buffers);
                check(connection.receive(WAIT_MS) != null, "no frame");
                check(!looked || connection.ready(), "no second frame");
                connection.close();
                closed(() -> connection.receive(0));
                closed(connection::ready);
                check(!connection.isQuiet(), "of use again");
            }
            check(buffers.taken() == 0, buffers.taken() + " buffers are left");
        }
        System.out.println("ok");
    }

    private interface Attempt {
        Object run() throws HoldfastException;
    }

    private static void closed(Attempt attempt) {
        try {
            attempt.run();
        } catch (HoldfastException right) {
            check(right.status() == Status.UNAVAILABLE && right.getMessage().contains("is closed"), right.getMessage());
            return;
        }
        throw new AssertionError("a closed connection had something");
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
