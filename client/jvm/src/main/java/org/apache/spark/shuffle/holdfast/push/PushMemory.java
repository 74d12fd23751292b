package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayDeque;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;

/**
 * The frames of one writer: memory of {@link Buffers}, books that are used again. Thread-safe: the task takes, the pusher
 * releases. Called by {@link PushWriter} and {@link PushSession}.
 */
final class PushMemory implements FrameStore {
    private static final int IDLE_MAX = 16;

    private final Buffers buffers;
    private final ArrayDeque<PushFrame> idle = new ArrayDeque<>();

    PushMemory(Buffers buffers) {
        this.buffers = buffers;
    }

    @Override
    public PushFrame take(Destination destination, int bytes) {
        PushFrame frame;
        synchronized (this) {
            frame = idle.pollLast();
        }
        if (frame == null) {
            frame = new PushFrame();
        }
        frame.reset(destination, buffers.take(bytes));
        return frame;
    }

    @Override
    public void release(PushFrame frame) {
        buffers.release(frame.body);
        frame.body = null;
        synchronized (this) {
            if (idle.size() < IDLE_MAX) {
                idle.addLast(frame);
            }
        }
    }
}
