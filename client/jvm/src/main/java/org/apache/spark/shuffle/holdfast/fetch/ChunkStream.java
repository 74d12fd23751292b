package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.ChunksData;
import org.apache.spark.shuffle.holdfast.wire.ChunksOpened;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.SeededCrc;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.shuffle.holdfast.wire.StreamCredit;

/**
 * One open stream of a worker: its connection, the frame being read, and a batch that is cut over two frames.
 *
 * <p>Rules: no decisions. Batches are verified where they lie in the frame; only one that is cut is copied, so at most
 * one batch is kept. Credit is given back in quarters, and not at all once everything that is to come was allowed.
 * Called by {@link FetchReader}.
 */
final class ChunkStream {
    final int number;
    final List<EpochFile> files;
    final WorkerConnection connection;
    final long requestId;
    private final int creditBytes;
    private final Buffers buffers;
    /** What the worker answered; null before. */
    private ChunksOpened opened;
    /** The file that is being read, by index. */
    int file;
    /** When something came last, or the reader last had no time to look. */
    long seenNs;
    /** When it was asked for, and later by the times in which the reader did not look. */
    long askedNs;
    /** So long after that it is late; 0: something came, or reads are not speculative. */
    long lateNs;
    private long allowedBytes;
    private long usedBytes;

    // The frame that is being read.
    ChunksData data;
    private ByteBuffer body;
    private ByteBuffer bodyView;
    private int at;
    private int frameBytes;
    /** Of its chunk, this frame included. */
    private long chunkBytes;

    // The batch that is being put together, of which chunk.
    private ByteBuffer carry;
    private ByteBuffer carryView;
    private int carryFile = -1;
    private int carryChunk = -1;
    private boolean carryOut;
    /** Where the payload of the newest batch lies. */
    private ByteBuffer source;

    ChunkStream(
            int number, List<EpochFile> files, WorkerConnection connection, long requestId, int creditBytes, long nowNs,
            long lateNs, Buffers buffers) {
        this.number = number;
        this.files = files;
        this.connection = connection;
        this.requestId = requestId;
        this.creditBytes = creditBytes;
        this.buffers = buffers;
        allowedBytes = creditBytes;
        seenNs = nowNs;
        askedNs = nowNs;
        this.lateNs = lateNs;
    }

    /** Its first data is here; returns after how long. */
    long inTime() {
        lateNs = 0;
        return seenNs - askedNs;
    }

    int worker() {
        return connection.worker();
    }

    boolean isOpened() {
        return opened != null;
    }

    /** The worker's answer. Throws BAD_FRAME if it is about something else. */
    void opened(ChunksOpened answer) throws HoldfastException {
        if (opened != null || answer.chunks().length != files.size()) {
            throw new HoldfastException(
                    Status.BAD_FRAME, connection + " answers about other files than were asked for");
        }
        opened = answer;
    }

    /** How many chunks the worker has of the file that is being read. */
    int chunksOfFile() {
        return opened.chunks()[file];
    }

    /** Bytes of the frame that is being read. */
    int frameBytes() {
        return frameBytes;
    }

    /** Bytes of the chunk that came on this stream, the frame that is being read included. */
    long chunkBytes() {
        return chunkBytes;
    }

    /** Begins a data frame. Throws CORRUPT if it leaves a batch unfinished. */
    void begin(ChunksData frame, ByteBuffer bytes) throws HoldfastException {
        data = frame;
        body = bytes;
        bodyView = bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        at = bytes.position();
        frameBytes = bytes.remaining();
        if (frame.file() != carryFile || frame.chunk() != carryChunk) {
            endOfChunk();
            carryFile = frame.file();
            carryChunk = frame.chunk();
            chunkBytes = 0;
        }
        chunkBytes += frameBytes;
    }

    /** Verifies the next whole batch of the frame; false at the end. Throws CORRUPT. */
    boolean nextBatch(BatchHeader batch, int partition, SeededCrc crc) throws HoldfastException {
        if (carryOut) {
            releaseCarry();
        }
        if (carry != null) {
            if (!fillCarry()) {
                return false;
            }
            carryOut = true;
            batch.parse(carry, 0, partition, crc);
            source = carryView;
            return true;
        }
        if (at == body.limit()) {
            return false;
        }
        int size = BatchHeader.wholeBytes(body, at);
        if (size < 0 || at + size > body.limit()) {
            carry = buffers.take(Math.max(size, BatchHeader.SIZE));
            carryView = carry.duplicate().order(ByteOrder.LITTLE_ENDIAN);
            carry.limit(Math.max(size, BatchHeader.SIZE));
            fillCarry();
            return false;
        }
        at = batch.parse(body, at, partition, crc);
        source = bodyView;
        return true;
    }

    /** The payload of the batch that {@link #nextBatch} verified; good until the next call of it. */
    ByteBuffer payload(BatchHeader batch) {
        return source.limit(batch.payloadOffset() + batch.payloadBytes()).position(batch.payloadOffset());
    }

    /** Nothing more comes of this chunk. Throws CORRUPT if a batch is unfinished. */
    void endOfChunk() throws HoldfastException {
        if (carryOut) {
            releaseCarry();
        }
        if (carry != null) {
            throw new HoldfastException(Status.CORRUPT, "the last batch is cut");
        }
    }

    /** Gives everything back that is not the connection. */
    void release() {
        releaseCarry();
        body = null;
        bodyView = null;
        source = null;
        data = null;
    }

    /** Copies what the frame has of the unfinished batch; returns whether it is whole. */
    private boolean fillCarry() throws HoldfastException {
        for (;;) {
            int count = Math.min(carry.remaining(), body.limit() - at);
            carry.put(body.slice(at, count));
            at += count;
            if (carry.hasRemaining()) {
                return false;
            }
            int size = carry.limit() < BatchHeader.SIZE ? -1 : BatchHeader.wholeBytes(carry, 0);
            if (size == carry.limit()) {
                return true;
            }
            growCarry(size);
        }
    }

    /** Its header is whole now, and says how long the batch is. */
    private void growCarry(int size) {
        if (carry.capacity() < size) {
            ByteBuffer larger = buffers.take(size);
            larger.put(carry.flip());
            buffers.release(carry);
            carry = larger;
            carryView = carry.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        }
        carry.limit(size);
    }

    private void releaseCarry() {
        carryOut = false;
        if (carry != null) {
            buffers.release(carry);
            carry = null;
            carryView = null;
        }
    }

    /** Lets the worker send more in a few large steps, unless all that is to come is allowed already. */
    void giveCredit() throws HoldfastException {
        usedBytes += frameBytes;
        long credit = usedBytes + creditBytes - allowedBytes;
        if (credit >= creditBytes / 4 && allowedBytes < opened.totalBytes()) {
            allowedBytes += credit;
            StreamCredit more = new StreamCredit(opened.stream(), (int) credit);
            connection.send(FrameType.STREAM_CREDIT, requestId, more.encode());
        }
    }
}
