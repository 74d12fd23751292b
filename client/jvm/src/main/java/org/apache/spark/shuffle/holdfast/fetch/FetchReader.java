package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.Frame;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.ChunksData;
import org.apache.spark.shuffle.holdfast.wire.ChunksOpened;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.SeededCrc;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Reads partitions of a committed shuffle: carries out what {@link ChunkFetch} decides, and believes nothing; the twin of
 * {@code client/read/push_reader.py} and {@code stream_reader.py}.
 *
 * <p>Rules: everything happens on the thread that calls {@link #next()}, which is the only one to use it: it asks, waits,
 * verifies and, where a worker is out of reach, asks the masters. One stream per worker for all partitions wanted; what
 * the workers send meanwhile waits in the kernel, bounded by the credit of the streams. A payload is handed on after its
 * checksum was right, once; null comes only when every partition was whole. Errors name shuffle, partition, epoch and
 * chunk or map. Called by the shuffle reader.
 */
public final class FetchReader implements BatchSource {
    /** Masters elect a leader in about a second; meanwhile the workers may be back. */
    private static final int ASK_MS = 5_000;

    private final Masters masters;
    private final ReadBook book;
    private final ReadCosts costs;
    private final ShuffleKey key;
    private final ChunkFetch chunks;
    private final LongRecords records;
    private final SeededCrc crc;
    private final BatchHeader batch = new BatchHeader();
    private final FetchedBatch fetched = new FetchedBatch();
    private final ArrayDeque<Effect> effects = new ArrayDeque<>();
    private final Streams streams;
    private final LongWait slow = new LongWait();
    /** That sent something wrong; the log has the first of each. */
    private final Set<Integer> corrupt = new HashSet<>();
    private ChunkStream current;
    /** When the masters are to be asked; 0: not at all. */
    private long askAtNs;
    /**
     * When a newer manifest may be asked for: one may be large, and many may read, so what said nothing new is asked for again later
     * and later.
     */
    private long manifestAtNs = System.nanoTime();
    private long manifestPauseNs = 1_000_000_000L;
    private boolean begun;
    private boolean complete;
    private boolean closed;
    private volatile boolean stopped;
    private long bytes;

    /**
     * @param context what it shares with other readers
     * @param manifest what was committed
     * @param startPartition the first partition of {@code [startPartition, endPartition)}
     * @param startMap the first map of {@code [startMap, endMap)}; 0 and the number of maps or more for all
     * @param costs is told what the read costs
     */
    public FetchReader(
            ReadContext context,
            Manifest manifest,
            int startPartition,
            int endPartition,
            int startMap,
            int endMap,
            ExpectedMaps expected,
            ReadCosts costs) {
        this.costs = costs;
        masters = context.masters();
        book = context.book();
        key = manifest.key();
        boolean partly = startMap > 0 || endMap < expected.maps();
        chunks = new ChunkFetch(
                manifest.epochs(), expected, startPartition, endPartition, startMap, endMap, partly, "shuffle " + key,
                book.order(), context.limits(), book.speculative());
        records = new LongRecords(chunks);
        crc = new SeededCrc(key);
        int creditBytes = context.limits()
                .creditBytes(chunks.fetch.workersWanted(), context.limits().rivals(book.speculative()));
        Streams.Range maps = partly ? new Streams.Range(startMap, endMap) : Streams.Range.ALL;
        streams = new Streams(context, chunks, key, maps, creditBytes, manifest.workers(), costs);
    }

    @Override
    public FetchedBatch next() throws HoldfastException {
        if (closed) {
            if (complete) {
                return null;
            }
            throw new HoldfastException(Status.UNAVAILABLE, "shuffle " + key + ": the reader is closed");
        }
        boolean good = false;
        try {
            FetchedBatch found = advance();
            good = true;
            if (found == null) {
                close();
            }
            return found;
        } finally {
            if (!good) {
                close();
            }
        }
    }

    /** Batches that came more than once so far, resent or read from both copies, and were dropped. */
    public long duplicates() {
        return chunks.duplicates();
    }

    /** Bytes that came from workers so far. */
    public long bytes() {
        return bytes;
    }

    @Override
    public void stop() {
        stopped = true;
    }

    @Override
    public void close() {
        closed = true;
        current = null;
        streams.close();
        records.clear();
        fetched.payload = null;
    }

    private FetchedBatch advance() throws HoldfastException {
        if (!begun) {
            begun = true;
            effects.addAll(chunks.started());
        }
        while (!stopped) {
            LongRecords.Whole whole = records.poll();
            if (whole != null) {
                whole.into(fetched);
                return fetched;
            }
            if (!effects.isEmpty()) {
                carryOut(effects.poll());
            } else if (current != null) {
                if (nextOfFrame()) {
                    return fetched;
                }
            } else if (complete) {
                records.end();
                return null;
            } else {
                nextFrame();
            }
        }
        throw new HoldfastException(Status.UNAVAILABLE, "shuffle " + key + ": the task that reads has ended");
    }

    // Frames.

    /** Takes the next frame of any stream, or does due work while there is no frame. */
    private void nextFrame() throws HoldfastException {
        if (askAtNs != 0 && System.nanoTime() - askAtNs >= 0) {
            askMasters();
            return;
        }
        ChunkStream stream = streams.ready(askAtNs);
        if (stream != null) {
            slow.over();
            onFrame(stream);
            return;
        }
        if (slow.due(System.nanoTime())) {
            LogEvent.READ_WAITING.log("shuffle", key, "what", chunks.fetch.waitsFor());
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new ReadInterruptedException("shuffle " + key);
        }
        effects.addAll(streams.takeNews());
    }

    private void onFrame(ChunkStream stream) throws ReadInterruptedException {
        try {
            Frame frame = stream.connection.receive(0);
            if (frame == null || frame.requestId() != stream.requestId) {
                return; // a late refusal of something that an earlier user of this connection said
            }
            if (frame.status() != Status.OK) {
                String text = "worker " + stream.worker() + ": " + frame.text();
                streams.giveBack(stream);
                failed(stream.number, new HoldfastException(frame.status(), text));
            } else if (frame.type() == FrameType.CHUNKS_OPEN) {
                stream.opened(ChunksOpened.decode(frame.meta()));
            } else if (frame.type() == FrameType.CHUNKS_DATA && stream.isOpened()) {
                onData(stream, ChunksData.decode(frame.meta()), frame);
            } else {
                String text = stream.connection + " sent " + FrameType.name(frame.type()) + " on a stream";
                throw new HoldfastException(Status.BAD_FRAME, text);
            }
        } catch (HoldfastException error) {
            streams.discard(stream);
            failed(stream.number, error);
        }
    }

    /** Tells the core; unless this thread was interrupted, by which connections break in the middle of something: that is no fault of a worker's. */
    private void failed(int stream, HoldfastException error) throws ReadInterruptedException {
        if (Thread.currentThread().isInterrupted()) {
            throw new ReadInterruptedException("shuffle " + key);
        }
        effects.addAll(chunks.fetch.streamFailed(stream, error, System.nanoTime()));
    }

    private void onData(ChunkStream stream, ChunksData data, Frame frame) {
        if (!frame.body().hasRemaining() && !data.endOfChunk() && !data.end()) {
            return; // the worker lives, and waits for the DFS
        }
        if (stream.lateNs != 0) { // speculative, and nothing came before
            book.took(stream.inTime());
            effects.addAll(chunks.fetch.dataCame(stream.number));
        }
        try {
            if (frame.body().hasRemaining() || data.endOfChunk()) { // of the last chunk maybe nothing was wanted
                if (data.file() < 0 || data.file() >= stream.files.size()) {
                    damaged(stream, stream.file, "worker " + stream.worker() + " sent a file that was not asked for");
                    return;
                }
                stream.begin(data, frame.body());
                if (upToFile(stream, data.file())) {
                    chunks.chunkCame(stream.files.get(data.file()), stream.worker(), data.chunk(), ChunkFetch.NOT_COMPLETE);
                    current = stream;
                }
            } else if (data.end()) {
                onEnd(stream);
            }
        } catch (HoldfastException | IncompleteException error) {
            damaged(stream, stream.file, data, error);
        }
    }

    /** Finds the next payload of the frame that counts; ends the frame after the last. */
    private boolean nextOfFrame() throws ReadInterruptedException {
        ChunkStream stream = current;
        ChunksData data = stream.data;
        EpochFile file = stream.files.get(data.file());
        try {
            while (stream.nextBatch(batch, file.partition, crc)) {
                if (!chunks.admit(file.partition, batch)) {
                    continue;
                }
                effects.addAll(chunks.fetch.progressed(stream.number));
                if (batch.payloadBytes() > 0 && isAlone(stream, file.partition)) {
                    fetched.partition = file.partition;
                    fetched.map = batch.map();
                    fetched.attempt = batch.attempt();
                    fetched.flags = batch.flags();
                    fetched.codec = batch.codec();
                    fetched.payload = stream.payload(batch);
                    return true;
                }
                if (chunks.fetch.isOver()) {
                    current = null;
                    return false;
                }
            }
            current = null;
            if (data.endOfChunk()) {
                stream.endOfChunk();
                chunks.chunkCame(file, stream.worker(), data.chunk(), stream.chunkBytes());
                effects.addAll(chunks.fetch.progressed(stream.number));
            }
        } catch (HoldfastException | IncompleteException error) {
            damaged(stream, data.file(), data, error);
            return false;
        }
        endOfFrame(stream, data);
        return false;
    }

    /**
     * Whether the batch is a record of its own. One that fits nowhere ends the read, whatever the reason: it was
     * counted, so reading it again would drop it as a duplicate, and every copy has the same.
     */
    private boolean isAlone(ChunkStream stream, int partition) {
        try {
            return records.isAlone(partition, batch, stream.payload(batch));
        } catch (HoldfastException error) {
            String text = "shuffle " + key + ": " + inChunk(stream, stream.data, error);
            effects.addAll(chunks.fetch.stop(new HoldfastException(error.status(), text, error)));
            return false;
        }
    }

    private void endOfFrame(ChunkStream stream, ChunksData data) throws ReadInterruptedException {
        bytes += stream.frameBytes();
        try {
            if (data.end()) {
                stream.endOfChunk();
                onEnd(stream);
            } else {
                stream.giveCredit();
            }
        } catch (HoldfastException error) {
            if (error.status() == Status.CORRUPT) {
                damaged(stream, data.file(), data, error);
                return;
            }
            streams.discard(stream);
            failed(stream.number, error);
        }
    }

    private static String inChunk(ChunkStream stream, ChunksData data, Exception error) {
        return "chunk " + data.chunk() + " from worker " + stream.worker() + ": " + error.getMessage();
    }

    /** Ends the files before {@code file}, which the worker has sent in full; returns whether all of them were whole. */
    private boolean upToFile(ChunkStream stream, int file) {
        if (file < stream.file) {
            damaged(stream, stream.file, "worker " + stream.worker() + " sent file " + file + " out of turn");
            return false;
        }
        while (stream.file < file) {
            EpochFile done = stream.files.get(stream.file);
            try {
                chunks.fileSent(done, stream.worker(), stream.chunksOfFile());
            } catch (IncompleteException error) {
                damaged(stream, stream.file, "partition " + error.partition + " from worker " + stream.worker() + ": "
                        + error.getMessage());
                return false;
            }
            stream.file++;
            effects.addAll(chunks.epochComplete(stream.number, done, stream.worker()));
        }
        return true;
    }

    private void onEnd(ChunkStream stream) {
        if (upToFile(stream, stream.files.size())) {
            streams.giveBack(stream);
            effects.addAll(chunks.fetch.streamEnded(stream.number));
        }
    }

    private void damaged(ChunkStream stream, int file, ChunksData data, Exception error) {
        String what = inChunk(stream, data, error);
        if (error instanceof HoldfastException wrong && wrong.status() == Status.CORRUPT) {
            costs.damaged();
            if (corrupt.add(stream.worker())) {
                String address = stream.connection.address();
                String reason = blamed(stream, file) + ": " + what;
                LogEvent.READ_CORRUPT.log("shuffle", key, "worker", stream.worker(), "address", address, "reason", reason);
            }
        }
        damaged(stream, file, what);
    }

    /** What came is wrong, or less than there was; the stream is of no use any more. */
    private void damaged(ChunkStream stream, int file, String what) {
        current = null;
        EpochFile blamed = blamed(stream, file);
        streams.discard(stream);
        effects.addAll(chunks.fetch.fileBad(stream.number, blamed, what));
    }

    private static EpochFile blamed(ChunkStream stream, int file) {
        return stream.files.get(Math.max(0, Math.min(file, stream.files.size() - 1)));
    }

    // Effects.

    private void carryOut(Effect effect) throws HoldfastException {
        if (effect instanceof Effect.OpenStream open) {
            HoldfastException error = streams.open(open);
            if (error != null) {
                failed(open.stream(), error);
            }
        } else if (effect instanceof Effect.CloseStream close) {
            if (current != null && current.number == close.stream()) {
                current = null;
            }
            streams.discard(close.stream());
        } else if (effect instanceof Effect.AskMasters ask) {
            long at = System.nanoTime() + ask.afterNs();
            askAtNs = askAtNs == 0 || at - askAtNs < 0 ? at : askAtNs;
        } else if (effect instanceof Effect.Failed failure) {
            throw droppedError(failure.error());
        } else {
            complete = true;
        }
    }

    private void askMasters() throws HoldfastException {
        askAtNs = 0;
        long from = System.nanoTime();
        try {
            List<WorkerAddress> workers = masters.workers(ASK_MS);
            book.learn(workers);
            Set<Integer> alive = streams.learn(workers);
            learnCopies(alive);
            effects.addAll(chunks.fetch.workersKnown(alive, System.nanoTime()));
        } catch (HoldfastException error) {
            if (Thread.currentThread().isInterrupted()) {
                throw new ReadInterruptedException("shuffle " + key);
            }
            effects.addAll(chunks.fetch.mastersSilent(error, System.nanoTime()));
        } finally {
            costs.waited(System.nanoTime() - from);
        }
    }

    /** Learns copies that were sealed or made since the manifest was read; without an answer the workers that are known have to do. */
    private void learnCopies(Set<Integer> alive) {
        if (System.nanoTime() - manifestAtNs < 0 || !chunks.mayHaveCopies(alive)) {
            return;
        }
        try {
            chunks.learn(masters.getManifest(key, ASK_MS).epochs());
            manifestAtNs = System.nanoTime() + manifestPauseNs;
            manifestPauseNs *= 2;
        } catch (HoldfastException error) {
            LogEvent.READ_MANIFEST_KEPT.log("shuffle", key, "reason", error);
        }
    }

    /** Missing data was lost, or dropped on purpose: only the masters can say. */
    private HoldfastException droppedError(HoldfastException error) {
        if (error.status() == Status.DATA_LOST) {
            try {
                masters.getManifest(key, 0, false);
            } catch (HoldfastException gone) {
                if (gone.status() == Status.APPLICATION_GONE || gone.status() == Status.UNKNOWN_SHUFFLE
                        || gone.status() == Status.UNKNOWN_GENERATION) {
                    return new HoldfastException(gone.status(), gone.getMessage(), error);
                }
            }
        }
        return error;
    }
}
