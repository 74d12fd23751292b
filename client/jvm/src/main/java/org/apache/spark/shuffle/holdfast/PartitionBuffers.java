package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.nio.ByteOrder;
import java.util.function.IntConsumer;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.unsafe.Platform;

/**
 * One growing buffer for each partition of a map attempt; full ones are given to the {@link BatchSink}.
 *
 * <p>Rules: a buffer starts small and doubles up to {@code limit}; full, it is sent as one batch and used again. All memory is asked of
 * Spark's memory manager, a MiB at a time; refused, or asked to spill, the largest buffers are sent until half of the memory is free, so
 * spilling means pushing. Only the thread of the task touches the buffers: a request to spill from another thread is declined, as Spark's own
 * sorters do. Whatever fails here once is final: rows may be missing from then on, so all buffers are dropped, and every later call throws, whoever
 * has swallowed the first error. Ends with {@link #finish} or {@link #close}, and close() after either is harmless. Called by the record writers.
 */
final class PartitionBuffers extends MemoryConsumer {
    /** Bytes in front of a row: its length. */
    static final int PREFIX_BYTES = 4;

    /** A task's buffers together, however much memory there is: batches of many partitions get smaller instead. */
    private static final long HELD_BYTES_MAX = 128L << 20;

    private static final long GRANT_STEP_BYTES = 1L << 20;
    /** Held beyond what was granted, so that a task without memory still sends batches and not single rows. */
    private static final long SLACK_BYTES = 1L << 20;

    private static final int MANY_PARTITIONS = 4096;
    private static final int NONE = -1;
    private static final boolean BIG_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN;

    private final BatchSink sink;
    private final ByteArrays arrays;
    private final byte[][] data;
    private final int[] used;
    /** Records in each buffer. */
    private final int[] records;
    private final int limit;
    private final int first;
    private final Thread owner = Thread.currentThread();
    /** Told before a partition's buffer is sent, so that a stream over it can be ended. */
    private IntConsumer beforeSend = partition -> {};

    private long held;
    private long granted;
    private long heldPeak;
    private int pinned = NONE;
    private int nextRelieved;
    /** While something is sent, nothing else is: neither for want of memory nor because another consumer wants some. */
    private boolean busy;
    /** What failed first; null while all is well. There are no buffers then, so only calls that need a new one look at it. */
    private HoldfastException failure;
    private boolean closed;

    PartitionBuffers(
            TaskMemoryManager memory, int partitions, int limit, ByteArrays arrays, BatchSink sink) {
        super(memory, memory.pageSizeBytes(), MemoryMode.ON_HEAP);
        this.sink = sink;
        this.arrays = arrays;
        this.limit = Integer.highestOneBit(Math.max(limit, 1 << 12));
        this.first = partitions > MANY_PARTITIONS ? 1 << 10 : 1 << 12;
        data = new byte[partitions][];
        used = new int[partitions];
        records = new int[partitions];
    }

    /** Sets a callback before a partition's buffer is sent; it may append to that buffer. */
    void beforeSend(IntConsumer ours) {
        beforeSend = ours;
    }

    /** Appends a row behind its length. {@code base} and {@code offset} as Spark's Platform wants them. */
    void putRow(int partition, Object base, long offset, int size) throws IOException {
        byte[] target = data[partition];
        int at = used[partition];
        if (target == null || target.length - at < size + PREFIX_BYTES) {
            if (size > limit - PREFIX_BYTES) {
                sendRow(partition, base, offset, size);
                return;
            }
            makeRoom(partition, size + PREFIX_BYTES);
            target = data[partition];
            at = used[partition];
        }
        copyRow(base, offset, size, target, at);
        used[partition] = at + PREFIX_BYTES + size;
        records[partition]++;
    }

    /** Appends a serialised record. */
    void putBytes(int partition, byte[] bytes, int offset, int length) throws IOException {
        byte[] target = data[partition];
        if (target == null || target.length - used[partition] < length) {
            if (length > limit) {
                sendRecord(partition, bytes, offset, length);
                return;
            }
            makeRoom(partition, length);
            target = data[partition];
        }
        System.arraycopy(bytes, offset, target, used[partition], length);
        used[partition] += length;
        records[partition]++;
    }

    /**
     * Appends bytes of an open stream: the buffer grows as far as it must, and is not sent in the middle of it. Its records are counted by
     * {@link #endRecord}.
     */
    void putStream(int partition, byte[] bytes, int offset, int length) throws IOException {
        int needed = Math.addExact(used[partition], length);
        if (data[partition] == null || data[partition].length < needed) {
            growStream(partition, needed);
        }
        System.arraycopy(bytes, offset, data[partition], used[partition], length);
        used[partition] += length;
    }

    /** All that a record has was written to the open stream. */
    void endRecord(int partition) {
        records[partition]++;
    }

    /** Keeps a partition from being sent while one of its records is under way; {@link #unpin} ends it. */
    void pin(int partition) {
        pinned = partition;
    }

    void unpin() {
        pinned = NONE;
    }

    /** Asks for memory that is not in the buffers: that of open streams. */
    void hold(long bytes) throws IOException {
        check();
        try {
            reserve(bytes);
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
        held += bytes;
    }

    /** Ends {@link #hold}. */
    void letGo(long bytes) {
        held -= bytes;
    }

    int used(int partition) {
        return used[partition];
    }

    int limit() {
        return limit;
    }

    /** The most that was held at one time. */
    long peakBytes() {
        return heldPeak;
    }

    /** What failed first, with what is to become of the attempt as its status; null while all is well. */
    HoldfastException failure() {
        return failure;
    }

    /** Sends what a partition holds; its buffer is used again. */
    void send(int partition, boolean last) throws IOException {
        check();
        boolean busyBefore = busy;
        busy = true;
        try {
            beforeSend.accept(partition);
            check(); // the caller may have ignored that the end of its stream had no room
            int length = used[partition];
            if (length > 0) {
                sink.write(partition, data[partition], 0, length, records[partition], last);
                used[partition] = 0;
                records[partition] = 0;
            }
        } catch (Throwable error) {
            fail(error);
            throw error;
        } finally {
            busy = busyBefore;
        }
        if (data[partition] != null && data[partition].length > limit) {
            drop(partition);
        }
    }

    /** Sends all that is left, each partition's last batch flagged as such, and gives the buffers back. */
    void finish() throws IOException {
        check();
        for (int partition = 0; partition < data.length; partition++) {
            if (data[partition] != null) {
                send(partition, true);
                if (data[partition] != null) {
                    drop(partition);
                }
            }
        }
        close();
    }

    /** Releases everything; data that was not sent is dropped. */
    void close() {
        closed = true;
        dropAll();
        held = 0;
        freeMemory(granted);
        granted = 0;
    }

    /**
     * Throws {@link WriteFailedException} alone: an IOException becomes a SparkOutOfMemoryError on its way to the operator that wants the memory,
     * and operators take that for a refusal and go on.
     */
    @Override
    public long spill(long size, MemoryConsumer trigger) {
        // What we ask for ourselves is no reason: reserve() sends as much as it then needs.
        if (trigger == this || Thread.currentThread() != owner || busy || closed) {
            return 0;
        }
        try {
            check();
            relieve(Math.max(size, held / 2));
        } catch (IOException error) {
            throw new WriteFailedException(error);
        }
        long free = granted - held;
        if (free <= 0) {
            return 0;
        }
        freeMemory(free);
        granted -= free;
        return free;
    }

    /** Throws what failed first, if anything did, and where nothing can be kept any more. */
    private void check() throws HoldfastException {
        if (failure != null) {
            throw new HoldfastException(failure.status(), failure.getMessage(), failure);
        }
        if (closed) {
            throw new HoldfastException(Status.INTERNAL, "the buffers of this map attempt were closed; nothing more can be written");
        }
    }

    /** Nothing is taken any more. With the buffers gone every call comes by {@link #check}, and the loop of the rows is spared it. */
    private void fail(Throwable error) {
        if (failure == null) {
            failure = error instanceof HoldfastException ours
                    ? ours
                    : new HoldfastException(Status.INTERNAL, "rows that were written could not be sent: " + error, error);
            dropAll();
        }
    }

    private void dropAll() {
        for (int partition = 0; partition < data.length; partition++) {
            if (data[partition] != null) {
                drop(partition);
            }
        }
    }

    private void makeRoom(int partition, int bytes) throws IOException {
        check();
        try {
            if (used[partition] + bytes > limit) {
                send(partition, false);
            }
            if (data[partition] == null || data[partition].length - used[partition] < bytes) {
                grow(partition, used[partition] + bytes);
            }
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
    }

    private void growStream(int partition, int needed) throws IOException {
        check();
        int pinnedBefore = pinned;
        pinned = partition;
        try {
            grow(partition, needed);
        } catch (Throwable error) {
            fail(error);
            throw error;
        } finally {
            pinned = pinnedBefore;
        }
    }

    private void grow(int partition, int needed) throws IOException {
        int length = Math.max(Math.max(first, capacity(needed)), data[partition] == null ? 0 : data[partition].length);
        reserve(length);
        // Looked at only now: asking for memory may have sent this very buffer.
        byte[] old = data[partition];
        byte[] larger = arrays.take(length);
        held += larger.length;
        if (old != null) {
            System.arraycopy(old, 0, larger, 0, used[partition]);
            held -= old.length;
            arrays.give(old);
        }
        data[partition] = larger;
        heldPeak = Math.max(heldPeak, held);
    }

    private static int capacity(int needed) {
        // Beyond a GiB doubling would overflow: exactly what is needed then.
        return needed > 1 << 30 ? needed : needed <= 1 ? 1 : Integer.highestOneBit(needed - 1) << 1;
    }

    private void reserve(long bytes) throws IOException {
        if (busy) {
            return;
        }
        if (held + bytes > HELD_BYTES_MAX) {
            relieve(held / 2);
        }
        if (held + bytes <= granted) {
            return;
        }
        // Not added at once: what others do for it may come back to spill(), which changes what was granted.
        long got = acquireMemory(Math.max(bytes, GRANT_STEP_BYTES));
        granted += got;
        if (held + bytes > granted + SLACK_BYTES) {
            relieve(held / 2);
        }
        if (held + bytes > granted + SLACK_BYTES) {
            relieve(held);
        }
    }

    /** Sends and drops the largest buffers until {@code goal} bytes are free. */
    private void relieve(long goal) throws IOException {
        long[] bytesOfLog = new long[32];
        for (byte[] buffer : data) {
            if (buffer != null) {
                bytesOfLog[log(buffer)] += buffer.length;
            }
        }
        int least = 31;
        for (long sum = 0; least > 0 && sum < goal; least--) {
            sum += bytesOfLog[least];
        }
        long target = held - goal;
        // Not always from the first partition on: equal buffers are taken in turn.
        for (int step = 0; step < data.length && held > target; step++) {
            int partition = nextRelieved;
            nextRelieved = partition + 1 == data.length ? 0 : partition + 1;
            if (data[partition] != null && log(data[partition]) > least && partition != pinned) {
                send(partition, false);
                if (data[partition] != null) {
                    drop(partition);
                }
            }
        }
    }

    private static int log(byte[] buffer) {
        return 31 - Integer.numberOfLeadingZeros(buffer.length);
    }

    private void drop(int partition) {
        held -= data[partition].length;
        arrays.give(data[partition]);
        data[partition] = null;
        used[partition] = 0;
        records[partition] = 0;
    }

    /** A row that no buffer holds is sent alone. */
    private void sendRow(int partition, Object base, long offset, int size) throws IOException {
        send(partition, false);
        try {
            int length = Math.addExact(size, PREFIX_BYTES);
            reserve(length);
            byte[] alone = arrays.take(length);
            held += length;
            copyRow(base, offset, size, alone, 0);
            sink.write(partition, alone, 0, length, 1, false);
            arrays.give(alone);
            held -= length;
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
    }

    /** The same for a serialised record. */
    private void sendRecord(int partition, byte[] bytes, int offset, int length) throws IOException {
        send(partition, false);
        try {
            sink.write(partition, bytes, offset, length, 1, false);
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
    }

    private static void copyRow(Object base, long offset, int size, byte[] target, int at) {
        long to = Platform.BYTE_ARRAY_OFFSET + (long) at;
        Platform.putInt(target, to, BIG_ENDIAN ? Integer.reverseBytes(size) : size);
        Platform.copyMemory(base, offset, target, to + PREFIX_BYTES, size);
    }

    /** The length in front of a row. */
    static int rowLength(byte[] data, int at) {
        int size = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + (long) at);
        return BIG_ENDIAN ? Integer.reverseBytes(size) : size;
    }
}
