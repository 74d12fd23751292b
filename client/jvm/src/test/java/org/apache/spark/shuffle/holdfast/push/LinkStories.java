package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.nio.ByteBuffer;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.FakeWorker;
import org.apache.spark.shuffle.holdfast.data.Frame;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.FrameHeader;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** What a writer does about a worker that says nothing, with a clock of its own. Told by {@link PushCoreMain}. */
final class LinkStories {
    private static final int WORKER = 7;
    private static final int WAIT_SECONDS = 30;

    private LinkStories() {}

    /** Room is asked for and none is given: the worker is asked whether it lives, and may take its time if it says so. */
    static void aWorkerWithoutRoomIsAskedWhetherItLives() {
        BlockingQueue<FrameHeader> came = new LinkedBlockingQueue<>();
        FakeWorker.Story answersPings = (in, out) -> {
            for (;;) {
                FrameHeader header = FakeWorker.readFrame(in).header();
                if (header.type() == FrameType.PING) {
                    out.write(FakeWorker.frame(FrameType.PING, header.requestId(), ByteBuffer.allocate(0), new byte[0], Status.OK));
                }
                came.add(header);
            }
        };
        withLink(answersPings, link -> {
            link.ask(100, 0);
            same(came.poll(WAIT_SECONDS, TimeUnit.SECONDS).type(), FrameType.PUSH_CREDIT);
            long now = 0;
            for (int turn = 0; turn < 3; turn++) {
                link.look(now + Link.PING_NS - 1);
                now += Link.PING_NS;
                link.look(now);
                same(came.poll(WAIT_SECONDS, TimeUnit.SECONDS).type(), FrameType.PING);
                Frame pong = link.connection.receive(1_000 * WAIT_SECONDS);
                that(pong != null && link.isPing(pong.requestId()), "the answer is that of the ping");
                link.heard(now);
            }
        });
    }

    /** Neither room nor an answer: the worker is left. */
    static void aWorkerThatDoesNotAnswerIsLeft() {
        withLink((in, out) -> {}, link -> {
            link.ask(100, 0);
            link.look(Link.PING_NS);
            try {
                link.look(2 * Link.PING_NS);
            } catch (HoldfastException right) {
                same(right.status(), Status.OUTCOME_UNKNOWN);
                return;
            }
            throw new AssertionError("a silent worker was not left");
        });
    }

    private interface Reported {
        void by(Link link) throws Exception;
    }

    private static void withLink(FakeWorker.Story story, Reported reported) {
        Buffers buffers = new Buffers(1 << 20);
        try (FakeWorker worker = new FakeWorker(WORKER, story);
                WorkerConnection connection =
                        WorkerConnection.open(WORKER, worker.address(), Hello.client("c", 0), new CredentialsProvider(), 1_000 * WAIT_SECONDS, buffers)) {
            reported.by(new Link(connection, 0));
        } catch (Exception wrong) {
            throw new AssertionError(wrong);
        }
        same(buffers.taken(), 0);
    }
}
