package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Puts records together that are longer than a batch: pieces flagged MORE and the one behind them.
 *
 * <p>Rules: a record's pieces have consecutive numbers of one (map, partition) and may come in any order, from several
 * epochs. All but the last are flagged; whether a batch without the flag is the end of a record only the one before it
 * tells. Writers cut a record into <em>equal</em> pieces, so none is shorter than PIECE_BYTES_MIN, and a shorter batch is
 * a whole one whatever came before: only longer ones that are ahead of their turn are held. A writer that does otherwise
 * is found out, as an error. Gets admitted batches only. Called by {@link FetchReader}.
 */
final class LongRecords {
    /** Half of the piece that writers cut records into: {@code PushWriter.PIECE_BYTES}. */
    static final int PIECE_BYTES_MIN = 2 << 20;
    private static final long HELD_BYTES_MAX = Integer.MAX_VALUE;

    private record MapKey(int partition, int map) {}

    private record Piece(long attempt, int flags, int codec, byte[] bytes) {
        boolean more() {
            return (flags & BatchHeader.MORE) != 0;
        }
    }

    /** A record that is whole. */
    record Whole(int partition, int map, Piece last, byte[] bytes) {
        void into(FetchedBatch batch) {
            batch.partition = partition;
            batch.map = map;
            batch.attempt = last.attempt;
            batch.flags = last.flags;
            batch.codec = last.codec;
            batch.payload = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    private final ChunkFetch books;
    private final Map<MapKey, TreeMap<Integer, Piece>> held = new HashMap<>();
    private final ArrayDeque<Whole> whole = new ArrayDeque<>();
    private long heldBytes;

    /** @param books record which batches came */
    LongRecords(ChunkFetch books) {
        this.books = books;
    }

    /** Records that are complete now; null if none are. */
    Whole poll() {
        return whole.poll();
    }

    /** Returns whether an admitted batch is a record of its own; if not, it is kept here. */
    boolean isAlone(int partition, BatchHeader batch, ByteBuffer data) throws HoldfastException {
        boolean small = !batch.more() && batch.payloadBytes() < PIECE_BYTES_MIN;
        if (small && held.isEmpty()) {
            return true; // nearly always
        }
        MapKey key = new MapKey(partition, batch.map());
        TreeMap<Integer, Piece> pieces = held.get(key);
        if (pieces == null ? isFirst(batch, key, small) : !isNext(batch, pieces, small, key)) {
            if (pieces != null) {
                assemble(key, pieces);
            }
            return true;
        }
        if (batch.more() && books.isSeen(partition, batch.map(), batch.number() + 1)
                && (pieces == null || !pieces.containsKey(batch.number() + 1))) {
            throw new HoldfastException(Status.BAD_VERSION, "partition " + partition + " map " + batch.map() + " batch "
                    + batch.number() + " continues in a batch that is too short for a piece of a record");
        }
        hold(key, batch, data);
        return false;
    }

    /** Throws CORRUPT if records without an end are left. */
    void end() throws HoldfastException {
        for (Map.Entry<MapKey, TreeMap<Integer, Piece>> each : held.entrySet()) {
            throw new HoldfastException(Status.CORRUPT, "partition " + each.getKey().partition + " map "
                    + each.getKey().map + ": the record in batch " + each.getValue().firstKey() + " has no end");
        }
    }

    void clear() {
        held.clear();
        whole.clear();
        heldBytes = 0;
    }

    /** Nothing is held of this place: whether the batch begins a record, and ends it. */
    private boolean isFirst(BatchHeader batch, MapKey key, boolean small) {
        return small || (!batch.more() && (batch.number() == 0
                || books.isSeen(key.partition, key.map, batch.number() - 1)));
    }

    /** Whether the batch has to join what is held: it is a piece, or may be one. */
    private boolean isNext(BatchHeader batch, TreeMap<Integer, Piece> pieces, boolean small, MapKey key) {
        Piece before = pieces.get(batch.number() - 1);
        return batch.more() || (before != null && before.more()) || (before == null && !isFirst(batch, key, small));
    }

    private void hold(MapKey key, BatchHeader batch, ByteBuffer data) throws HoldfastException {
        heldBytes += batch.payloadBytes();
        if (heldBytes > HELD_BYTES_MAX) {
            throw new HoldfastException(Status.TOO_LARGE, "partition " + key.partition + " map " + key.map
                    + ": more than " + HELD_BYTES_MAX + " bytes of records that are not whole yet");
        }
        byte[] bytes = new byte[batch.payloadBytes()];
        data.get(batch.payloadOffset(), bytes);
        TreeMap<Integer, Piece> pieces = held.computeIfAbsent(key, any -> new TreeMap<>());
        pieces.put(batch.number(), new Piece(batch.attempt(), batch.flags(), batch.codec(), bytes));
        assemble(key, pieces);
    }

    /** Takes out every record that is whole. */
    private void assemble(MapKey key, TreeMap<Integer, Piece> pieces) {
        for (int first : new ArrayList<>(pieces.keySet())) {
            Piece piece = pieces.get(first);
            if (piece == null) {
                continue; // sent with an earlier one
            }
            Piece before = pieces.get(first - 1);
            boolean begins = before != null
                    ? !before.more()
                    : first == 0 || books.isSeen(key.partition, key.map, first - 1);
            int last = first;
            long size = piece.bytes.length;
            while (piece != null && piece.more()) {
                piece = pieces.get(++last);
                size += piece == null ? 0 : piece.bytes.length;
            }
            if (begins && piece != null) {
                join(key, pieces, first, last, (int) size);
            }
        }
        if (pieces.isEmpty()) {
            held.remove(key);
        }
    }

    private void join(MapKey key, TreeMap<Integer, Piece> pieces, int first, int last, int size) {
        ByteBuffer all = ByteBuffer.allocate(size);
        Piece end = null;
        for (int number = first; number <= last; number++) {
            end = pieces.remove(number);
            all.put(end.bytes);
        }
        heldBytes -= size;
        whole.add(new Whole(key.partition, key.map, end, all.array()));
    }
}
