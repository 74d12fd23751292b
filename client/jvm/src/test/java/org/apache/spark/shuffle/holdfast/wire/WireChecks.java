package org.apache.spark.shuffle.holdfast.wire;

import static org.apache.spark.shuffle.holdfast.Checks.check;
import static org.apache.spark.shuffle.holdfast.Checks.refused;
import static org.apache.spark.shuffle.holdfast.Checks.same;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Bad bytes of every kind are typed errors, before anything large is allocated; hot paths allocate nothing per batch. Arguments: the
 * golden batches in hex, and the seeded CRC of "data" as Python has it.
 */
public final class WireChecks {
    private static final ShuffleKey SHUFFLE = new ShuffleKey(Instance.ofHex("000102030405060708090a0b0c0d0e0f"), 7, 2, 0xFEDC_BA98_7654_3210L);
    private static final int PARTITION = 5;
    /** Those that take any bytes. */
    private static final List<Codec> BLOCKS = List.of(Codec.NONE, Codec.LZ4, Codec.ZSTD);

    /** A decoder of something. */
    private interface Decoder {
        Object decode(ByteBuffer data) throws HoldfastException;
    }

    private WireChecks() {}

    public static void main(String[] args) throws Exception {
        byte[] batches = HexFormat.of().parseHex(args[0]);
        seededCrc(Integer.parseUnsignedInt(args[1]));
        flippedBits(batches);
        cuts(batches);
        misdirected(batches);
        headers();
        batchBounds();
        frames();
        messages();
        pushBounds();
        arrays();
        codecs();
        rowPlanes();
        allocations();
        System.out.println("checked");
    }

    private static ByteBuffer direct(byte[] bytes) {
        return ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.LITTLE_ENDIAN).put(bytes).flip();
    }

    private static ByteBuffer heap(byte[] bytes) {
        // Behind an offset, as a slice of a larger array would be.
        byte[] larger = new byte[bytes.length + 7];
        System.arraycopy(bytes, 0, larger, 7, bytes.length);
        return ByteBuffer.wrap(larger, 7, bytes.length).slice().order(ByteOrder.LITTLE_ENDIAN);
    }

    private static void seededCrc(int expected) {
        SeededCrc crc = new SeededCrc(SHUFFLE);
        byte[] data = "data".getBytes();
        same(expected, crc.of(PARTITION, heap(data)), "seeded CRC of a heap buffer");
        same(expected, crc.of(PARTITION, direct(data)), "seeded CRC of a direct buffer");
        ByteBuffer first = direct("da".getBytes());
        same(expected, crc.of(PARTITION, first, heap("ta".getBytes())), "seeded CRC of two pieces");
        same(2, first.remaining(), "a buffer is as before");
        check(crc.of(PARTITION + (1 << 24), heap(data)) != expected, "all bytes of the partition count");
    }

    private static int parseAll(ByteBuffer data, int partition) throws HoldfastException {
        BatchHeader header = new BatchHeader();
        SeededCrc crc = new SeededCrc(SHUFFLE);
        int offset = 0;
        int count = 0;
        while (offset < data.limit()) {
            offset = header.parse(data, offset, partition, crc);
            count++;
        }
        return count;
    }

    private static void flippedBits(byte[] batches) throws Exception {
        for (int bit = 0; bit < batches.length * 8; bit++) {
            byte[] wrong = batches.clone();
            wrong[bit >> 3] ^= (byte) (1 << (bit & 7));
            refused(Status.CORRUPT, "bit " + bit, () -> parseAll(heap(wrong), PARTITION));
            refused(Status.CORRUPT, "bit " + bit, () -> parseAll(direct(wrong), PARTITION));
        }
    }

    private static void cuts(byte[] batches) throws Exception {
        int whole = 0;
        for (int end = 0; end < batches.length; end++) {
            ByteBuffer cut = direct(Arrays.copyOf(batches, end));
            try {
                same(whole++, parseAll(cut, PARTITION), "batches before byte " + end);
            } catch (HoldfastException error) {
                whole--;
                same(Status.CORRUPT, error.status(), "a cut at " + end);
            }
        }
        same(3, whole, "borders between batches before the end");
        ByteBuffer head = heap(Arrays.copyOf(batches, BatchHeader.SIZE));
        same(BatchHeader.SIZE + 5, BatchHeader.wholeBytes(head, 0), "the length is known from the header");
        same(-1, BatchHeader.wholeBytes(head, 1), "an incomplete header");
    }

    private static void misdirected(byte[] batches) throws Exception {
        same(3, parseAll(direct(batches), PARTITION), "batches in the right place");
        for (int partition : new int[] {4, 6, -1}) {
            refused(Status.CORRUPT, "partition " + partition, () -> parseAll(direct(batches), partition));
        }
        SeededCrc other = new SeededCrc(SHUFFLE.withGeneration(3));
        refused(Status.CORRUPT, "another generation", () -> new BatchHeader().parse(direct(batches), 0, PARTITION, other));
    }

    private static void headers() throws Exception {
        ByteBuffer data = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
        SeededCrc crc = new SeededCrc(SHUFFLE);
        for (int[] wrong : new int[][] {{0, 0x12}, {1, 0x34}, {2, 2}, {3, 0x04}, {3, 0x80}, {23, 0x7F}, {23, 0xFF}}) {
            BatchHeader.write(data, 0, BatchHeader.flags(0, 1), 1, 2, 3, 10, PARTITION, crc);
            same(38, new BatchHeader().parse(data, 0, PARTITION, crc), "a good header");
            data.put(wrong[0], (byte) wrong[1]);
            refused(Status.CORRUPT, "byte " + wrong[0], () -> new BatchHeader().parse(data, 0, PARTITION, crc));
        }
        for (int codec : new int[] {4, 7}) {
            BatchHeader.write(data, 0, BatchHeader.flags(0, codec), 1, 2, 3, 10, PARTITION, crc);
            refused(Status.CORRUPT, "codec " + codec, () -> new BatchHeader().parse(data, 0, PARTITION, crc));
        }
        // A LAST that has no room for its totals, with a right checksum.
        data.clear();
        BatchHeader.write(data, 0, 0, 1, 2, 3, 4, PARTITION, crc);
        data.put(3, (byte) BatchHeader.LAST);
        data.putInt(24, crc.ofBatch(PARTITION, data, 0, 4));
        refused(Status.CORRUPT, "LAST without totals", () -> new BatchHeader().parse(data, 0, PARTITION, crc));
    }

    private static void batchBounds() throws Exception {
        ByteBuffer data = ByteBuffer.allocate(100).order(ByteOrder.LITTLE_ENDIAN);
        SeededCrc crc = new SeededCrc(SHUFFLE);
        for (int bytes : new int[] {BatchHeader.PAYLOAD_BYTES_MAX + 1, -1, Integer.MAX_VALUE}) {
            illegal("a payload of " + bytes, () -> BatchHeader.write(data, 0, 0, 1, 1, 0, bytes, PARTITION, crc));
        }
        illegal("a LAST of 11 bytes",
                () -> BatchHeader.write(data, 0, BatchHeader.LAST, 1, 1, 0, 11, PARTITION, crc));
        illegal("big endian", () -> BatchHeader.wholeBytes(ByteBuffer.allocate(100), 0));
    }

    private static void illegal(String what, org.apache.spark.shuffle.holdfast.Checks.Action action) throws Exception {
        try {
            action.run();
        } catch (IllegalArgumentException expected) {
            return;
        }
        throw new AssertionError(what + " was accepted");
    }

    private static void frames() throws Exception {
        ByteBuffer meta = new StreamCredit(1, 2).encode();
        ByteBuffer frame = ByteBuffer.allocate(FrameHeader.SIZE).order(ByteOrder.LITTLE_ENDIAN);
        FrameHeader.encode(frame, FrameType.STREAM_CREDIT, 9, meta, 0);
        FrameHeader good = FrameHeader.decode(frame, 0);
        good.checkMeta(frame, 0, meta);
        for (int bit = 0; bit < FrameHeader.SIZE * 8; bit++) {
            byte[] wrong = frame.array().clone();
            wrong[bit >> 3] ^= (byte) (1 << (bit & 7));
            ByteBuffer data = direct(wrong);
            try {
                FrameHeader.decode(data, 0).checkMeta(data, 0, meta);
                throw new AssertionError("bit " + bit + " of a frame header may change");
            } catch (HoldfastException expected) {
                check(expected.status() >= Status.BAD_FRAME && expected.status() <= Status.TOO_LARGE, "bit " + bit);
            }
        }
        frame.putInt(16, Limits.FRAME_META_BYTES_MAX + 1);
        refused(Status.TOO_LARGE, "meta", () -> FrameHeader.decode(frame, 0));
        frame.putInt(16, 0).putInt(20, Limits.FRAME_BODY_BYTES_MAX + 1);
        refused(Status.TOO_LARGE, "body", () -> FrameHeader.decode(frame, 0));
        frame.putInt(20, -1);
        refused(Status.TOO_LARGE, "body", () -> FrameHeader.decode(frame, 0));
        refused(Status.TOO_LARGE, "body to send",
                () -> FrameHeader.encode(frame.clear(), FrameType.PUSH, 1, meta, Limits.FRAME_BODY_BYTES_MAX + 1));
        frame.clear().put(4, (byte) 2).putInt(0, FrameHeader.MAGIC);
        refused(Status.BAD_VERSION, "version", () -> FrameHeader.decode(frame, 0));
    }

    private static void messages() throws Exception {
        ReplicaPlace replica = new ReplicaPlace(5, 2, "127.0.0.1:7001");
        Map<Message, Decoder> all = new HashMap<>(Map.of(
                new Hello(1, Hello.CLIENT, 99, "blue", new byte[] {1, 2}), Hello::decode,
                new HelloOk(2, 4, 9, Instance.ofHex("101112131415161718191a1b1c1d1e1f")), HelloOk::decode,
                new Push(SHUFFLE, 9, Ack.WRITTEN, 3, 77, 5, 100, List.of(replica, replica), 2, List.of(new PushEntry(5, 1, 0, 33, 0))), Push::decode,
                new PushAnswer(1 << 22, 1, 2, new int[] {0, 7}, new int[] {1, 10}), PushAnswer::decode,
                new PushSettle(SHUFFLE, 9, 3, 77, List.of(new EpochName(5, 1))), PushSettle::decode,
                new PushCredit(1 << 22), PushCredit::decode,
                new ChunksOpen(SHUFFLE, 0, Limits.ALL_MAPS, 1 << 20, List.of(new ChunkFile(5, 0, 3))), ChunksOpen::decode,
                new ChunksOpened(1, 2, new int[] {3, 4}), ChunksOpened::decode,
                new ChunksData(1, 2, 3, 4, 1, 0), ChunksData::decode,
                new StreamCredit(1, 2), StreamCredit::decode));
        all.put(new PushSettled(List.of(new IncompleteCopy(5, 1, 7))), PushSettled::decode); // Map.of takes ten
        Random random = new Random(3);
        for (Map.Entry<Message, Decoder> each : all.entrySet()) {
            String name = each.getKey().getClass().getSimpleName();
            byte[] good = each.getKey().encode().array();
            for (int end = 0; end < good.length; end++) {
                byte[] cut = Arrays.copyOf(good, end);
                refused(Status.BAD_FRAME, name + " cut at " + end, () -> each.getValue().decode(direct(cut)));
            }
            refused(Status.BAD_FRAME, name + " too long",
                    () -> each.getValue().decode(heap(Arrays.copyOf(good, good.length + 1))));
            for (int i = 0; i < 500; i++) {
                byte[] wrong = good.clone();
                for (int j = random.nextInt(4); j >= 0; j--) {
                    wrong[random.nextInt(wrong.length)] = (byte) random.nextInt(256);
                }
                try {
                    each.getValue().decode(heap(wrong));
                } catch (HoldfastException expected) {
                    same(Status.BAD_FRAME, expected.status(), name + " with garbage");
                }
            }
        }
    }

    private static void pushBounds() throws Exception {
        ByteBuffer to = ByteBuffer.allocate(1000).order(ByteOrder.LITTLE_ENDIAN);
        for (int count : new int[] {0, -1, Limits.PUSH_BATCHES_MAX + 1}) {
            refused(Status.BAD_FRAME, "a push of " + count,
                    () -> Push.putHead(to.clear(), SHUFFLE, 1, 1, 1, 1, 1, 1, List.of(), 0, count));
        }
        ReplicaPlace far = new ReplicaPlace(1, 1, "x".repeat(256));
        refused(Status.BAD_FRAME, "a long address", () -> Push.headBytes(List.of(far)));
        same(Push.headBytes(List.of()) + PushEntry.BYTES,
                new Push(SHUFFLE, 1, 1, 1, 1, 1, 1, List.of(), 0, List.of(new PushEntry(1, 1, 1, 1, 1))).encode().limit(), "length of a push");
        for (int count : new int[] {Limits.PUSH_BATCHES_MAX + 1, -1, 3}) {
            byte[] answer = new PushAnswer(1, 0, 0, new int[] {1, 2}, new int[] {1, 1}).encode().putInt(6, count).array();
            refused(Status.BAD_FRAME, "an answer of " + count, () -> PushAnswer.decode(heap(answer)));
        }
        refused(Status.BAD_FRAME, "an epoch twice", () -> ChunksOpen.decode(new ChunksOpen(
                SHUFFLE, 0, 1, 1, List.of(new ChunkFile(1, 2, 3), new ChunkFile(1, 2, 4))).encode()));
    }

    private static void arrays() throws Exception {
        byte[] manifest = ReduceManifest.of(3,
                new EpochResult(1, 0, List.of(new CopyResult(1, Status.OK, 5))),
                new EpochResult(1, 1, List.of(new CopyResult(1, Status.DATA_LOST, 0), new CopyResult(2, Status.UNAVAILABLE, 0), new CopyResult(3, Status.FAILED_COPY, 0))),
                new EpochResult(2, 0, List.of(new CopyResult(1, Status.FAILED_COPY, 0), new CopyResult(2, Status.UNKNOWN_FILE, 0)))).encode();
        ReduceManifest read = ReduceManifest.decode(manifest);
        same(List.of(0, 0, 2, 3), List.of(read.first(0), read.first(1), read.first(2), read.first(3)), "rows of partitions");
        same(List.of(false, true, false), List.of(read.get(0).lost(), read.get(1).lost(), read.get(2).lost()), "lost epochs");
        for (int end = 0; end < manifest.length; end++) {
            byte[] cut = Arrays.copyOf(manifest, end);
            refused(Status.BAD_FRAME, "a manifest cut at " + end, () -> ReduceManifest.decode(cut));
        }
        byte[] longer = Arrays.copyOf(manifest, manifest.length + 1);
        refused(Status.BAD_FRAME, "a manifest too long", () -> ReduceManifest.decode(longer));
        refused(Status.BAD_FRAME, "another kind", () -> ReduceWinners.decode(manifest));
        CopyResult ok = new CopyResult(1, Status.OK, 1);
        refused(Status.BAD_FRAME, "out of order",
                () -> ReduceManifest.of(3, new EpochResult(1, 1, List.of(ok, ok)), new EpochResult(1, 1, List.of(ok, ok))));
        refused(Status.BAD_FRAME, "a partition too far", () -> ReduceManifest.of(3, new EpochResult(3, 1, List.of(ok, ok))));
        // Counts and sizes that agree, of 256 MB that are not there: nothing of that is allocated.
        ByteBuffer bomb = ByteBuffer.allocate(40).order(ByteOrder.LITTLE_ENDIAN);
        bomb.put((byte) 2).put((byte) ArrayFormat.REDUCE_WINNERS).putShort((short) 1).putInt(1_999).putInt(1_000_000);
        bomb.putLong(1_999L * (8 + 125_000));
        refused(Status.BAD_FRAME, "a bomb", () -> ReduceWinners.decode(bomb.array()));
        bomb.putLong(12, 1L << 40);
        refused(Status.TOO_LARGE, "a larger bomb", () -> ReduceWinners.decode(bomb.array()));
        bomb.putLong(12, -1);
        refused(Status.TOO_LARGE, "a negative bomb", () -> ReduceWinners.decode(bomb.array()));
        ReduceWinners winners = ReduceWinners.decode(ReduceWinners.withoutBitmaps(11, new long[] {1, Limits.NO_ATTEMPT}).encode());
        check(!winners.hasBitmaps() && winners.attempts()[1] == Limits.NO_ATTEMPT, "winners without bitmaps");
        ReduceWinners marked = ReduceWinners.decode(new ReduceWinners(11, new long[] {1}, new byte[][] {{0x21, 4}}).encode());
        check(marked.has(0, 0) && marked.has(0, 5) && marked.has(0, 10) && !marked.has(0, 1), "bits of winners");
        refused(Status.BAD_FRAME, "a short bitmap", () -> new ReduceWinners(11, new long[] {1}, new byte[][] {{1}}).encode());
    }

    private static void codecs() throws Exception {
        Random random = new Random(5);
        for (Codec codec : BLOCKS) {
            for (int size : new int[] {0, 1, 255, 5_000, 100_000, 3 * Limits.MIB}) {
                byte[] original = new byte[size + 3];
                for (int i = 0; i < size; i++) {
                    original[i + 3] = (byte) (random.nextInt(8) == 0 ? random.nextInt() : i / 50);
                }
                List<ByteBuffer> targets = List.of(ByteBuffer.allocate(codec.bound(size) + 9),
                        ByteBuffer.allocateDirect(codec.bound(size) + 9));
                for (ByteBuffer to : targets) {
                    to.order(ByteOrder.LITTLE_ENDIAN).position(9);
                    int written = codec.compress(original, 3, size, to, Codec.USUAL_LEVEL);
                    same(9 + written, to.position(), "the position is behind what was written");
                    to.flip().position(9);
                    same(size, codec.originalBytes(to), codec + " knows the length");
                    byte[] back = codec.decompress(to, size % 2 == 0 ? null : new byte[size]);
                    check(Arrays.equals(original, 3, 3 + size, back, 0, size), codec + " of " + size + " bytes");
                    same(written, to.remaining(), "a payload is as before");
                }
            }
        }
        for (Codec codec : List.of(Codec.LZ4, Codec.ZSTD)) {
            spoiled(codec, random);
        }
        refused(Status.BAD_REQUEST, "the engine's codec", () -> Codec.of(3));
        byte[] reuse = new byte[Codec.LZ4.bound(100)];
        illegal("too little room", () -> Codec.LZ4.compress(new byte[200], 0, 200,
                ByteBuffer.wrap(reuse).order(ByteOrder.LITTLE_ENDIAN), Codec.USUAL_LEVEL));
    }

    /** Payloads that lie about their length or hold something else are CORRUPT; so is every cut. */
    private static void spoiled(Codec codec, Random random) throws Exception {
        byte[] original = new byte[2_000];
        ByteBuffer to = ByteBuffer.allocate(codec.bound(original.length)).order(ByteOrder.LITTLE_ENDIAN);
        codec.compress(original, 0, original.length, to, Codec.USUAL_LEVEL);
        byte[] good = Arrays.copyOf(to.array(), to.position());
        for (int claim : new int[] {1_999, 2_001, 0, -1, Limits.ORIGINAL_BYTES_MAX + 1}) {
            byte[] wrong = good.clone();
            ByteBuffer.wrap(wrong).order(ByteOrder.LITTLE_ENDIAN).putInt(0, claim);
            refused(Status.CORRUPT, codec + " claims " + claim, () -> codec.decompress(heap(wrong), null));
            refused(Status.CORRUPT, codec + " claims " + claim, () -> codec.decompress(direct(wrong), null));
        }
        for (int end = 0; end < good.length; end++) {
            byte[] cut = Arrays.copyOf(good, end);
            refused(Status.CORRUPT, codec + " cut at " + end, () -> codec.decompress(direct(cut), null));
        }
        for (int i = 0; i < 500; i++) {
            byte[] wrong = good.clone();
            wrong[4 + random.nextInt(wrong.length - 4)] = (byte) random.nextInt(256);
            try {
                codec.decompress(direct(wrong), null);
            } catch (HoldfastException expected) {
                same(Status.CORRUPT, expected.status(), codec + " with garbage");
            }
        }
    }

    /**
     * Rows of one length and of several, few and many, some of no field, are the same again, at any offset; fewer than eight have no planes, nor have the
     * longest. What a thread keeps is bounded.
     */
    private static void rowPlanes() throws Exception {
        Random random = new Random(6);
        for (Codec codec : List.of(Codec.LZ4_ROWS, Codec.ZSTD_ROWS)) {
            for (int count : new int[] {1, 7, 8, 9, 15, 16, 63, 64, 65, 128, 1_001}) {
                for (int words : new int[] {0, 1, 7, 30}) {
                    for (int variableMax : new int[] {0, 1, 4}) {
                        byte[] rows = rows(random, count, words, variableMax);
                        int size = rows.length - 3;
                        ByteBuffer to = ByteBuffer.allocateDirect(codec.bound(size)).order(ByteOrder.LITTLE_ENDIAN);
                        boolean turned = codec.compressRows(rows, 3, size, words, to, Codec.USUAL_LEVEL);
                        same(count >= RowPlanes.ROWS_MIN, turned, count + " rows have planes");
                        if (turned) {
                            same(size, codec.originalBytes(to.flip()), codec + " knows the length");
                            byte[] back = codec.decompress(to, null);
                            check(Arrays.equals(rows, 3, rows.length, back, 0, size), codec + " of " + count + " rows of " + words + " words");
                        }
                    }
                }
            }
        }
        for (int[] shape : new int[][] {{65_536, 1}, {8, 16_383}, {8, 20_000}, {200_000, 1}}) {
            byte[] rows = rows(random, shape[0], shape[1], 0);
            RowPlanes.turn(rows, 3, rows.length - 3, shape[1], new byte[rows.length + RowPlanes.HEAD_BYTES]);
            check(RowPlanes.bytesKept() <= 2 * RowPlanes.VECTOR_BYTES_KEPT, "a thread keeps " + RowPlanes.bytesKept() + " bytes");
        }
        ByteBuffer longest = ByteBuffer.allocate(Limits.ORIGINAL_BYTES_MAX).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at < longest.capacity(); at += longest.capacity() / 8) {
            longest.putInt(at, longest.capacity() / 8 - 4);
        }
        boolean fits = Codec.LZ4_ROWS.compressRows(longest.array(), 0, longest.capacity(), 1, ByteBuffer.allocate(0), Codec.USUAL_LEVEL);
        same(false, fits, "rows whose planes would be longer than an original may be");
        same(Codec.NONE, Codec.NONE.ofRows(), "what is not compressed has no planes");
        refused(Status.CORRUPT, "planes without a head", () -> RowPlanes.rowBytes(7));
        for (int[] head : new int[][] {{0, 0}, {7, 1}, {8, -1}, {-1, 1}, {8, Integer.MAX_VALUE}, {Integer.MAX_VALUE, 1 << 28}, {13, 0}}) {
            byte[] planes = new byte[60];
            ByteBuffer.wrap(planes).order(ByteOrder.LITTLE_ENDIAN).putInt(head[0]).putInt(head[1]);
            refused(Status.CORRUPT, "planes of " + Arrays.toString(head), () -> RowPlanes.back(planes, 52 - head[0] % 2, new byte[60]));
        }
    }

    /** Behind three bytes. */
    private static byte[] rows(Random random, int count, int words, int variableMax) {
        ByteBuffer made = ByteBuffer.allocate(3 + count * (4 + 8 * (words + variableMax))).order(ByteOrder.LITTLE_ENDIAN).position(3);
        for (int row = 0; row < count; row++) {
            int variable = variableMax < 2 ? variableMax : random.nextInt(variableMax + 1);
            made.putInt(8 * (words + variable));
            for (int word = 0; word < words + variable; word++) {
                made.putLong(random.nextLong() >>> random.nextInt(64));
            }
        }
        return Arrays.copyOf(made.array(), made.position());
    }

    /** Writing, checking, compressing and decompressing a batch costs no heap. */
    private static void allocations() throws Exception {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        ByteBuffer direct = ByteBuffer.allocateDirect(8_192).order(ByteOrder.LITTLE_ENDIAN);
        SeededCrc crc = new SeededCrc(SHUFFLE);
        BatchHeader header = new BatchHeader();
        byte[] record = new byte[2_000];
        byte[] reuse = new byte[4_096];
        List<String> reported = new ArrayList<>();
        for (Codec codec : BLOCKS) {
            long before = 0;
            int rounds = 20_000;
            // The first half warms up: class loading and the first contexts do allocate.
            for (int i = 0; i < 2 * rounds; i++) {
                if (i == rounds) {
                    before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
                }
                direct.clear().position(BatchHeader.SIZE);
                int size = codec.compress(record, 0, record.length, direct, Codec.USUAL_LEVEL);
                BatchHeader.write(direct, 0, BatchHeader.flags(0, codec.number()), 1, 2, i, size, PARTITION, crc);
                direct.flip();
                header.parse(direct, 0, PARTITION, crc);
                direct.position(header.payloadOffset());
                check(codec.decompress(direct, reuse) == reuse, "the array is used again");
            }
            long each = (threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before) / rounds;
            reported.add(codec + " " + each);
            // Without the optimising compiler the views that lz4 needs of arrays are real: two of 56 bytes.
            check(each <= (codec == Codec.LZ4 ? 112 : 0), codec + " allocates " + each + " bytes per batch");
        }
        System.out.println("bytes allocated per batch: " + reported);
    }
}
