package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.CurrentEpoch;

/**
 * Batches of one attempt for one destination, back to back, with their books: what a PUSH carries.
 *
 * <p>Rules: filled by one thread, then handed on. The bytes stay where they are until every batch is kept by a worker or
 * was copied into another frame. Books are arrays that are used again. Made by {@link FrameStore}.
 */
final class PushFrame {
    private static final int BOOKS_MIN = 64;

    Destination destination;
    /** Position of the next batch. Null while the frame is idle. */
    ByteBuffer body;
    /** Bytes that its writer counts it as, while it holds it back for this frame. */
    int accounted;
    /** When it was last sent; 0 before. */
    long sentAtNs;
    private int count;
    private int size;
    private int[] partitions = new int[BOOKS_MIN];
    private int[] numbers = new int[BOOKS_MIN];
    private int[] ends = new int[BOOKS_MIN];
    /** Destination of each batch: filled when the frame is sent. */
    private int[] epochs = new int[BOOKS_MIN];
    private short[] hints = new short[BOOKS_MIN];
    /** Batches that are no concern of this frame any more; null while all are. */
    private boolean[] gone;
    private int left;

    /** Begins anew. */
    void reset(Destination to, ByteBuffer memory) {
        destination = to;
        body = memory;
        count = 0;
        size = 0;
        gone = null;
        left = 0;
        accounted = 0;
        sentAtNs = 0;
    }

    /** A batch was put at the end: the body's position is behind it. */
    void added(int partition, int number) {
        if (count == numbers.length) {
            grow();
        }
        partitions[count] = partition;
        numbers[count] = number;
        size = body.position();
        ends[count++] = size;
        left++;
    }

    private void grow() {
        int larger = 2 * count;
        partitions = Arrays.copyOf(partitions, larger);
        numbers = Arrays.copyOf(numbers, larger);
        ends = Arrays.copyOf(ends, larger);
        epochs = Arrays.copyOf(epochs, larger);
        hints = Arrays.copyOf(hints, larger);
    }

    /** Copies a batch of another frame to the end. */
    void copy(PushFrame from, int index) {
        int length = from.length(index);
        int at = body.position();
        body.put(at, from.body, from.start(index), length);
        body.position(at + length);
        added(from.partitions[index], from.numbers[index]);
    }

    int count() {
        return count;
    }

    /** Bytes of all batches. */
    int size() {
        return size;
    }

    int partition(int index) {
        return partitions[index];
    }

    int number(int index) {
        return numbers[index];
    }

    int start(int index) {
        return index == 0 ? 0 : ends[index - 1];
    }

    int length(int index) {
        return ends[index] - start(index);
    }

    /** The epoch that the batch was last sent to. */
    int epoch(int index) {
        return epochs[index];
    }

    int hint(int index) {
        return hints[index];
    }

    /** Notes where a batch is sent. */
    void route(int index, CurrentEpoch place) {
        epochs[index] = place.epoch();
        hints[index] = (short) place.hint();
    }

    /** Batches that are neither kept nor copied elsewhere. */
    int left() {
        return left;
    }

    boolean has(int index) {
        return gone == null || !gone[index];
    }

    /** A batch is kept by a worker, or has been copied elsewhere. */
    void drop(int index) {
        if (gone == null) {
            gone = new boolean[count];
        }
        if (!gone[index]) {
            gone[index] = true;
            left--;
        }
    }

    /** The bytes to send: a view of its own, so that the frame can be sent again. */
    ByteBuffer bytes() {
        return body.slice(0, size);
    }
}
