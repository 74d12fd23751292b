package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Batches that stand still half-way until they are let go, and notice when they are closed there. */
public final class HaltedSource implements BatchSource {
    private static final int BYTES = 2_000;

    /** Counted down when a batch is half-way. */
    public final CountDownLatch reading = new CountDownLatch(1);
    /** Lets it go. */
    public final CountDownLatch go = new CountDownLatch(1);
    /** What should not have been, or null. */
    public volatile String wrong;
    /** How often it was told to stop. */
    public volatile int stopped;
    /** How often it was closed. */
    public volatile int closed;

    private volatile boolean inside;

    @Override
    public FetchedBatch next() throws HoldfastException {
        inside = true;
        reading.countDown();
        try {
            go.await();
        } catch (InterruptedException error) {
            throw new HoldfastException(Status.UNAVAILABLE, "interrupted");
        }
        inside = false;
        FetchedBatch made = new FetchedBatch();
        made.payload = ByteBuffer.wrap(new byte[BYTES]);
        return made;
    }

    @Override
    public void stop() {
        stopped++;
    }

    @Override
    public void close() {
        closed++;
        wrong = inside ? "closed in the middle of a batch" : wrong;
    }
}
