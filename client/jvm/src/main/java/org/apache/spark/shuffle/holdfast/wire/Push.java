package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Client to worker: a merged frame of whole batches. The body is the batches back to back, all of one (map, attempt);
 * {@code bodyCrc} is its plain CRC-32C. The answer is a {@link PushAnswer}; a frame status other than OK applies to every batch.
 *
 * <p>{@code replicas} are those that the primary sends all of it to, {@code ackCopies} how many copies, the primary's among them, hold a batch
 * before it is acknowledged (0: all). A writer that has thousands of entries puts the head with {@link #putHead} and
 * each entry with {@link PushEntry#put}, and needs no lists.
 */
public record Push(
        ShuffleKey shuffle, int incarnation, int ack, int map, long attempt, int bodyCrc, long raftIndex, List<ReplicaPlace> replicas,
        int ackCopies, List<PushEntry> entries) implements Message {
    private static final int FIXED_BYTES = ShuffleKey.BYTES + 29 + 2 + 4;

    /** How many bytes {@link #putHead} puts. */
    public static int headBytes(List<ReplicaPlace> replicas) throws HoldfastException {
        int bytes = FIXED_BYTES;
        for (ReplicaPlace each : replicas) {
            bytes += 4 + 4 + 2 + Meta.textBytes(each.address()).length;
        }
        return bytes;
    }

    /** Put everything before the entries, {@code count} of which are put right behind. */
    public static void putHead(
            ByteBuffer to, ShuffleKey shuffle, int incarnation, int ack, int map, long attempt, int bodyCrc, long raftIndex,
            List<ReplicaPlace> replicas, int ackCopies, int count) throws HoldfastException {
        if (count < 1 || count > Limits.PUSH_BATCHES_MAX) {
            throw new HoldfastException(
                    Status.BAD_FRAME, "a push has 1 to " + Limits.PUSH_BATCHES_MAX + " batches, not " + count);
        }
        shuffle.put(to);
        to.putInt(incarnation).put((byte) ack).putLong(raftIndex).putInt(map).putLong(attempt).putInt(bodyCrc);
        to.put((byte) replicas.size()).put((byte) (ackCopies == 0 ? 1 + replicas.size() : ackCopies));
        for (ReplicaPlace each : replicas) {
            to.putInt(each.worker()).putInt(each.incarnation());
            Meta.putBlob(to, Meta.textBytes(each.address()));
        }
        to.putInt(count);
    }

    public static Push decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "PUSH");
        ShuffleKey shuffle = meta.shuffle();
        int incarnation = meta.u32();
        int ack = meta.u8();
        long raftIndex = meta.u64();
        int map = meta.u32();
        long attempt = meta.u64();
        int crc = meta.u32();
        int copies = meta.u8();
        int ackCopies = meta.u8();
        List<ReplicaPlace> replicas = replicas(meta, copies, ackCopies);
        int count = meta.count(PushEntry.BYTES, Limits.PUSH_BATCHES_MAX);
        List<PushEntry> entries = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            entries.add(new PushEntry(meta.u32(), meta.u32(), meta.u32(), meta.u32(), meta.u16()));
        }
        meta.end();
        if (!Ack.known(ack) || count == 0) {
            throw meta.wrong(count + " batches at acknowledgement level " + ack);
        }
        return new Push(shuffle, incarnation, ack, map, attempt, crc, raftIndex, replicas, ackCopies % (1 + copies), entries);
    }

    private static List<ReplicaPlace> replicas(Meta meta, int count, int ackCopies) throws HoldfastException {
        if (count >= Limits.COPIES_MAX || ackCopies < 1 || ackCopies > 1 + count) {
            throw meta.wrong(ackCopies + " copies acknowledge, beside " + count + " replicas of at most " + (Limits.COPIES_MAX - 1));
        }
        List<ReplicaPlace> found = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            ReplicaPlace each = new ReplicaPlace(meta.u32(), meta.u32(), meta.text());
            if (each.worker() == Limits.NO_WORKER || each.address().isEmpty()) {
                throw meta.wrong("a replica has a worker and an address");
            }
            found.add(each);
        }
        return found;
    }

    @Override
    public int encodedBytes() {
        int places = 0;
        for (ReplicaPlace each : replicas) {
            places += 4 + 4 + 2 + each.address().getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
        }
        return FIXED_BYTES + places + entries.size() * PushEntry.BYTES;
    }

    @Override
    public void encode(ByteBuffer to) throws HoldfastException {
        putHead(to, shuffle, incarnation, ack, map, attempt, bodyCrc, raftIndex, replicas, ackCopies, entries.size());
        for (PushEntry each : entries) {
            PushEntry.put(to, each.partition(), each.epoch(), each.number(), each.sizeBytes(), each.hint());
        }
    }
}
