package org.apache.spark.shuffle.holdfast.push;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.SeededCrc;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Pushes the output of one map attempt.
 *
 * <p>Rules: connecting to the workers begins with the writer. The task's thread makes batches, straight in the memory of the frame to their partition's worker;
 * full frames are pushed in the background. Memory is bounded: frames that are being filled together, and what no worker
 * has acknowledged, for which {@code write} waits. No attempt restarts from the beginning: a refused batch is sent
 * elsewhere, under its number. Every failure is final: the attempt is aborted, and every later {@code write} and
 * {@code close} throws it again, since what was being written is in no batch. One thread; leave it with {@link #close} or, on
 * any error, {@link #abort}. An interrupt ends {@code write} and {@code close}, and stays set. Called by the shuffle writer.
 */
public final class PushWriter {
    /** Shorter payloads gain less by compression than their handling costs. */
    private static final int COMPRESS_BYTES_MIN = 256;
    /** Longer records are sent in equal pieces of at most this size, flagged MORE, so that frames stay near their usual size. */
    static final int PIECE_BYTES = 4 << 20;
    /** Payload and header of a LAST with nothing in it. */
    private static final int HEAD_BYTES_MAX = BatchHeader.SIZE + BatchHeader.TOTALS_BYTES;
    private static final int FRAME_BYTES_LEAST = 64 << 10;
    private static final int MEMORY_PAUSE_MS = 20;
    private final PushLimits limits;
    private final PartitionLocations locations;
    private final PushMemory memory;
    private final Mailbox mail;
    private final Pusher pusher;
    private final String where;
    private final int map;
    private final long attempt;
    private final Compression compression;
    private final Shrinking shrinking;
    private final PlanesChoice planes = new PlanesChoice();
    private final Encryption encryption;
    private final SeededCrc crc;
    private final PushMetrics metrics;

    /** Of each partition: batches, sum of their CRCs, payload bytes as sent. */
    private final int[] batches;
    private final long[] crcSums;
    private final long[] sizes;
    private final boolean[] ended;
    /** Frames that are being filled, by slot of their destination, and their memory together. */
    private PushFrame[] open = new PushFrame[8];
    private long openBytes;
    private boolean over;
    /** What failed first; null while all is well. */
    private HoldfastException failure;

    /** @param encryption null for none */
    public PushWriter(
            PushContext context,
            RegisteredShuffle registered,
            PartitionLocations locations,
            int map,
            long attempt,
            Compression compression,
            Encryption encryption) {
        this.locations = locations;
        this.map = map;
        this.attempt = attempt;
        this.compression = compression;
        shrinking = new Shrinking(locations.partitions());
        this.encryption = encryption;
        limits = context.limits();
        metrics = context.metrics();
        crc = new SeededCrc(registered.key());
        memory = new PushMemory(context.buffers());
        where = Pusher.where(registered.key(), map, attempt);
        mail = new Mailbox(context, where);
        pusher = new Pusher(context, registered.key(), locations, map, attempt, memory, mail);
        mail.serve(pusher::run);
        batches = new int[locations.partitions()];
        crcSums = new long[locations.partitions()];
        sizes = new long[locations.partitions()];
        ended = new boolean[locations.partitions()];
        pusher.connectAhead();
    }

    /** Writes one batch of whole records, which need not be the last of its partition. */
    public void write(int partition, byte[] data, int off, int len) throws HoldfastException {
        write(partition, data, off, len, false);
    }

    /** The same, {@code last} if nothing follows for this partition. */
    public void write(int partition, byte[] data, int off, int len, boolean last) throws HoldfastException {
        write(partition, ByteBuffer.wrap(data, off, len), last);
    }

    /**
     * Writes one batch of whole records, on the heap or direct, between position and limit, which stay; waits while too much is unacknowledged. One
     * that is longer than a batch may be is cut, and joined by readers. Nothing may follow for a partition whose {@code last} batch was written. Throws
     * what ended the attempt if it is over: COMMITTED if another attempt won, NO_ROOM, UNAVAILABLE, APPLICATION_GONE; then call
     * {@link #abort}.
     */
    public void write(int partition, ByteBuffer data, boolean last) throws HoldfastException {
        check(partition);
        if (!data.hasRemaining() && !last) {
            return;
        }
        try {
            take(partition, data.duplicate(), last);
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
    }

    private void take(int partition, ByteBuffer data, boolean last) throws HoldfastException {
        int len = data.remaining();
        boolean compressed = compression.on() && len >= COMPRESS_BYTES_MIN && len <= Limits.ORIGINAL_BYTES_MAX
                && shrinking.worth(partition);
        int bound = compressed ? Math.max(compression.codec().bound(len), len) : len;
        boolean copied = !data.hasArray() && (compressed || encryption != null); // these take arrays
        ByteBuffer block = copied ? ByteBuffer.wrap(ByteArrays.SHARED.take(len), 0, len).put(data).flip() : data;
        if (encryption != null || bound > PIECE_BYTES) {
            writeApart(partition, block, compressed, last);
        } else {
            writeStraight(partition, block, compressed ? bound : 0, last);
        }
        if (copied) {
            ByteArrays.SHARED.give(block.array());
        }
    }

    /** Writes one record of any length, as a batch of its own or several. */
    public void writeRecord(int partition, byte[] data, int off, int len) throws HoldfastException {
        write(partition, data, off, len, false);
    }

    /**
     * Pushes the rest and waits until everything is acknowledged; returns the payload bytes of each partition as sent,
     * at least 1 where any batch was sent. Throws as {@code write}.
     */
    public long[] close() throws HoldfastException {
        checkOpen();
        try {
            finish();
        } catch (Throwable error) {
            fail(error);
            throw error;
        }
        over = true;
        return sizes;
    }

    private void finish() throws HoldfastException {
        ByteBuffer nothing = ByteBuffer.allocate(0);
        long made = 0;
        for (int each = 0; each < batches.length; each++) {
            if (batches[each] > 0) {
                if (!ended[each]) {
                    writeStraight(each, nothing, 0, true);
                }
                sizes[each] = Math.max(1, sizes[each]);
                made += batches[each];
            }
        }
        List<PushFrame> last = new ArrayList<>();
        for (PushFrame frame : open) {
            if (frame != null) {
                last.add(frame);
            }
        }
        forgetOpen();
        mail.finish(last, made);
    }

    /** Gives the attempt up; readers drop what it pushed. Harmless after {@code close}, and twice. */
    public void abort() {
        if (over) {
            return;
        }
        over = true;
        for (PushFrame frame : open) {
            if (frame != null) {
                memory.release(frame);
            }
        }
        forgetOpen();
        mail.abort();
        pusher.disconnect();
    }

    /** Bytes of batches handed to the pusher so far, headers included. */
    public long pushedBytes() {
        return mail.pushedBytes();
    }

    /** Memory of what was handed over and is not acknowledged yet: at least its bytes. */
    public long unacknowledgedBytes() {
        return mail.heldBytes();
    }

    /** Names the attempt, for errors. */
    @Override
    public String toString() {
        return where;
    }

    // Batches.

    /** Gives the attempt up for good. */
    private void fail(Throwable error) {
        if (failure == null) {
            failure = error instanceof HoldfastException known ? known : new HoldfastException(Status.INTERNAL, where + ": " + error, error);
        }
        abort();
    }

    private void checkOpen() throws HoldfastException {
        if (failure != null) {
            throw new HoldfastException(failure.status(), failure.getMessage(), failure);
        }
        if (over) {
            throw new HoldfastException(
                    Status.INTERNAL, where + " was closed or aborted; nothing more can be written");
        }
    }

    private void check(int partition) throws HoldfastException {
        checkOpen();
        if (ended[Objects.checkIndex(partition, ended.length)]) {
            throw new IllegalStateException(where + ": partition " + partition + " had its last batch");
        }
    }

    /** A batch made in the frame itself. @param bound room for the compressed payload, 0 to send it as it is */
    private void writeStraight(int partition, ByteBuffer data, int bound, boolean last) throws HoldfastException {
        int len = data.remaining();
        PushFrame frame = frameFor(partition, HEAD_BYTES_MAX + Math.max(bound, len));
        ByteBuffer body = frame.body;
        int at = body.position();
        int payloadAt = at + BatchHeader.SIZE + (last ? BatchHeader.TOTALS_BYTES : 0);
        body.position(payloadAt);
        Codec codec = bound == 0 ? plain(len) : compress(partition, data, body);
        if (codec == plain(len)) {
            body.position(payloadAt);
            body.put(data);
        }
        seal(frame, partition, at, last ? BatchHeader.LAST : 0, codec);
    }

    /** A batch whose payload is made elsewhere first: because it has to be encrypted, or to be cut. */
    private void writeApart(int partition, ByteBuffer data, boolean compressed, boolean last) throws HoldfastException {
        ByteBuffer payload = data;
        Codec codec = plain(data.remaining());
        if (compressed) {
            ByteBuffer small = ByteBuffer.allocate(compression.codec().bound(data.remaining())).order(ByteOrder.LITTLE_ENDIAN);
            codec = compress(partition, data, small);
            payload = codec == Codec.NONE ? data : small.flip();
        }
        if (encryption != null && payload.hasRemaining()) {
            try {
                Encryption.Sealed sealed =
                        encryption.seal(payload.array(), payload.arrayOffset() + payload.position(), payload.remaining());
                payload = ByteBuffer.wrap(sealed.bytes(), 0, sealed.length());
            } catch (IOException failed) {
                throw new HoldfastException(Status.INTERNAL, where + ": encryption: " + failed.getMessage(), failed);
            }
        }
        // Equal pieces: a reader that gets the end of a record first can tell by its length that it may be one.
        int left = payload.remaining();
        int pieces = (left - 1) / PIECE_BYTES + 1;
        int pieceMax = (left - 1) / pieces + 1;
        do {
            int piece = Math.min(left, pieceMax);
            left -= piece;
            boolean ends = last && left == 0;
            PushFrame frame = frameFor(partition, HEAD_BYTES_MAX + piece);
            ByteBuffer body = frame.body;
            int at = body.position();
            body.position(at + BatchHeader.SIZE + (ends ? BatchHeader.TOTALS_BYTES : 0));
            body.put(payload.limit(payload.position() + piece));
            int flags = (left > 0 ? BatchHeader.MORE : 0) | (ends ? BatchHeader.LAST : 0);
            seal(frame, partition, at, flags, codec);
        } while (left > 0);
    }

    /** Puts a payload, compressed, at the position of {@code dst}; returns the codec, NONE where it did not shrink. */
    private Codec compress(int partition, ByteBuffer block, ByteBuffer dst) {
        byte[] data = block.array();
        int off = block.arrayOffset() + block.position();
        int len = block.remaining();
        int from = dst.position();
        boolean due = compression.ofRows() && planes.due();
        if (due) {
            compression.compress(data, off, len, dst, false);
        }
        int asTheyAre = dst.position() - from;
        Codec used = compression.compress(data, off, len, dst.position(from), due || planes.better());
        if (due && !planes.compared(asTheyAre, dst.position() - from)) {
            used = compression.compress(data, off, len, dst.position(from), false);
        }
        return shrinking.shrank(partition, len, dst.position() - from) ? used : Codec.NONE;
    }

    /** The codec of so many bytes that go as they are: nothing is nobody's. */
    private Codec plain(int len) {
        return len == 0 ? Codec.NONE : compression.plain();
    }

    /** Writes the header of the batch that ends where the frame's body is now, and counts it. */
    private void seal(PushFrame frame, int partition, int at, int lastAndMore, Codec codec) {
        ByteBuffer body = frame.body;
        int payload = body.position() - at - BatchHeader.SIZE;
        boolean last = (lastAndMore & BatchHeader.LAST) != 0;
        if (last) {
            BatchHeader.putTotals(body, at + BatchHeader.SIZE, batches[partition] + 1, crcSums[partition]);
            ended[partition] = true;
        }
        int sum = BatchHeader.write(
                body, at, BatchHeader.flags(lastAndMore, codec.number()), map, attempt, batches[partition], payload, partition, crc);
        frame.added(partition, batches[partition]++);
        crcSums[partition] += sum & 0xFFFF_FFFFL;
        int size = payload - (last ? BatchHeader.TOTALS_BYTES : 0);
        sizes[partition] += size;
        metrics.made(codec, size);
    }

    // Frames.

    /** Returns the open frame of the partition's destination, with room for so many bytes more. */
    private PushFrame frameFor(int partition, int bytes) throws HoldfastException {
        Destination destination = locations.at(partition).destination();
        int slot = destination.slot();
        if (slot >= open.length) {
            open = Arrays.copyOf(open, Math.max(2 * open.length, slot + 1));
        }
        PushFrame frame = open[slot];
        if (frame != null) {
            boolean fits = frame.body.remaining() >= bytes && frame.size() + bytes <= Math.max(limits.frameBytes(), bytes);
            if (fits && frame.count() < Limits.PUSH_BATCHES_MAX) {
                return frame;
            }
            handOver(slot);
        }
        // Many destinations have small frames each, so that they fit the bound together.
        int usual = (int) Math.min(limits.frameBytes(), limits.openBytes() / Math.max(1, locations.destinations()));
        frame = take(destination, Math.max(bytes, Math.max(usual, FRAME_BYTES_LEAST)));
        open[slot] = frame;
        openBytes += frame.body.capacity();
        while (openBytes > limits.openBytes() && handOverFullest(slot)) { }
        return frame;
    }

    /** Takes memory; where the JVM has none left this writer waits until its own is acknowledged, then for that of others. */
    private PushFrame take(Destination destination, int bytes) throws HoldfastException {
        long deadlineNs = System.nanoTime() + limits.memoryNs();
        LongWait slow = new LongWait();
        for (;;) {
            try {
                return memory.take(destination, bytes);
            } catch (NoDirectMemoryException full) {
                boolean mine = mail.heldBytes() > 0;
                while (handOverFullest(-1)) {
                    mine = true;
                }
                mail.drain();
                if (!mine && System.nanoTime() - deadlineNs > 0) {
                    throw new HoldfastException(Status.INTERNAL,
                            where + ": " + full.getMessage() + "; waited for " + limits.memoryMs() + " ms (push.memoryGrace)", full);
                }
                if (slow.due(System.nanoTime())) {
                    LogEvent.PUSH_WAITING_FOR_MEMORY.log("task", where, "reason", full);
                }
                mail.rest(MEMORY_PAUSE_MS);
            }
        }
    }

    private boolean handOverFullest(int except) throws HoldfastException {
        int fullest = -1;
        for (int each = 0; each < open.length; each++) {
            if (each != except && open[each] != null && (fullest < 0 || open[each].size() > open[fullest].size())) {
                fullest = each;
            }
        }
        if (fullest >= 0) {
            handOver(fullest);
        }
        return fullest >= 0;
    }

    private void handOver(int slot) throws HoldfastException {
        PushFrame frame = open[slot];
        open[slot] = null;
        openBytes -= frame.body.capacity();
        mail.add(frame);
    }

    private void forgetOpen() {
        Arrays.fill(open, null);
        openBytes = 0;
    }
}
