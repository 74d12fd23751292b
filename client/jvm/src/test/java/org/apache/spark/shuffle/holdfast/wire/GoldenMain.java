package org.apache.spark.shuffle.holdfast.wire;

import static org.apache.spark.shuffle.holdfast.Checks.check;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.RecordComponent;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.zip.CRC32C;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * Decodes every golden file that a client of REDUCE partitions reads or writes, encodes it again and compares the bytes. Prints a line
 * per file: its name and what was read, as JSON, for Python to compare. Arguments: the folder of golden files.
 */
public final class GoldenMain {
    private static final ShuffleKey SHUFFLE = new ShuffleKey(Instance.ofHex("000102030405060708090a0b0c0d0e0f"), 7, 2, 0xFEDC_BA98_7654_3210L);
    private static final int PARTITION = 5;

    /** A decoder of a message. */
    private interface Decoder {
        Message decode(ByteBuffer data) throws HoldfastException;
    }

    private static final Map<String, Decoder> MESSAGES = new TreeMap<>(Map.of(
            "hello", Hello::decode, "hello_ok", HelloOk::decode, "push", Push::decode, "push_answer", PushAnswer::decode,
            "push_credit", PushCredit::decode, "chunks_open", ChunksOpen::decode, "chunks_opened", ChunksOpened::decode,
            "chunks_data", ChunksData::decode, "stream_credit", StreamCredit::decode, "push_settle", PushSettle::decode));

    static {
        MESSAGES.put("push_settled", PushSettled::decode); // Map.of takes ten
    }

    private final Path folder;

    private GoldenMain(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] args) throws Exception {
        GoldenMain golden = new GoldenMain(Path.of(args[0]));
        for (Map.Entry<String, Decoder> each : MESSAGES.entrySet()) {
            golden.message("message_" + each.getKey(), each.getValue());
        }
        byte[] batches = golden.bytes("batches");
        print("batches", golden.batches(batches, false));
        print("batches", golden.batches(batches, true));
        golden.planes();
        golden.frame("frame_push");
        golden.frame("frame_map_push");
        golden.frame("frame_refusal");
        golden.locations();
        golden.winners();
        golden.manifest();
        constants("Status", Status.class);
        statuses();
        constants("FrameType", FrameType.class);
        constants("Limits", Limits.class);
        constants("Ack", Ack.class);
    }

    /** A line for each status: number, name, what comes next, what a push and a fetch do, and whether it ends a lease. */
    private static void statuses() throws ReflectiveOperationException {
        Map<Integer, String> lines = new TreeMap<>();
        for (Field each : Status.class.getFields()) {
            if (each.getType() == int.class) {
                int number = each.getInt(null);
                String words = Status.next(number) + " " + Status.push(number) + " " + Status.fetch(number);
                String line = number + " " + Status.name(number) + " " + words.toLowerCase(java.util.Locale.ROOT);
                lines.put(number, line + (Status.endsLease(number) ? " lease" : ""));
            }
        }
        print("statuses", "[" + lines.values().stream().map(each -> '"' + each + '"').collect(Collectors.joining(",")) + "]");
    }

    private byte[] bytes(String name) throws IOException {
        return HexFormat.of().parseHex(Files.readString(folder.resolve(name + ".hex")).strip());
    }

    private void message(String name, Decoder decoder) throws Exception {
        byte[] golden = bytes(name);
        for (ByteBuffer data : List.of(ByteBuffer.wrap(golden), direct(golden))) {
            Message message = decoder.decode(data);
            check(message.encodedBytes() == golden.length, name + " knows its length");
            compare(name, golden, message.encode());
            print(name, json(message, true));
        }
    }

    /** Parse every batch, write each into a buffer of its own, and compare; says what was parsed. */
    private String batches(byte[] golden, boolean direct) throws Exception {
        ByteBuffer data = direct ? direct(golden) : ByteBuffer.wrap(golden).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer again = (direct ? ByteBuffer.allocateDirect(golden.length) : ByteBuffer.allocate(golden.length))
                .order(ByteOrder.LITTLE_ENDIAN);
        SeededCrc crc = new SeededCrc(SHUFFLE);
        BatchHeader header = new BatchHeader();
        List<String> reported = new ArrayList<>();
        int offset = 0;
        while (offset < golden.length) {
            int end = header.parse(data, offset, PARTITION, crc);
            if (header.last()) {
                BatchHeader.putTotals(again, offset + BatchHeader.SIZE, header.batches(), header.crcSum());
            }
            again.put(header.payloadOffset(), data, header.payloadOffset(), header.payloadBytes());
            int written = BatchHeader.write(again, offset, header.flags(), header.map(), header.attempt(), header.number(),
                    end - offset - BatchHeader.SIZE, PARTITION, crc);
            check(written == header.crc(), "a batch has the same checksum again");
            byte[] payload = new byte[header.payloadBytes()];
            data.get(header.payloadOffset(), payload);
            reported.add("[%d, %d, %s, %d, %s, \"%s\", %d, %s]".formatted(header.flags(), header.map(), u64(header.attempt()),
                    header.number(), u32(header.crc()), HexFormat.of().formatHex(payload), header.batches(),
                    u64(header.crcSum())));
            offset = end;
        }
        compare("batches", golden, again);
        return "[" + String.join(", ", reported) + "]";
    }

    /** Planes are made of the golden rows, compared, and turned back. */
    private void planes() throws Exception {
        byte[] rows = bytes("rows");
        byte[] planes = new byte[rows.length + RowPlanes.HEAD_BYTES];
        check(RowPlanes.turn(rows, 0, rows.length, RowPlanes.words(2), planes) == planes.length, "planes know their length");
        compare("rows_planes", bytes("rows_planes"), ByteBuffer.wrap(planes));
        byte[] back = new byte[rows.length];
        RowPlanes.back(planes, rows.length, back);
        compare("rows", rows, ByteBuffer.wrap(back));
        print("rows", '"' + HexFormat.of().formatHex(back) + '"');
        print("rows_planes", '"' + HexFormat.of().formatHex(planes) + '"');
    }

    private void frame(String name) throws Exception {
        byte[] golden = bytes(name);
        ByteBuffer data = direct(golden);
        FrameHeader header = FrameHeader.decode(data, 0);
        ByteBuffer meta = data.slice(FrameHeader.SIZE, header.metaBytes()).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer body = data.slice(FrameHeader.SIZE + header.metaBytes(), header.bodyBytes());
        check(FrameHeader.SIZE + header.metaBytes() + header.bodyBytes() == golden.length, name + " is whole");
        header.checkMeta(data, 0, meta);
        ByteBuffer again = ByteBuffer.allocateDirect(golden.length).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer encoded = meta;
        if (header.type() == FrameType.PUSH) {
            Push push = Push.decode(meta);
            encoded = push.encode();
            CRC32C crc = new CRC32C();
            crc.update(body.duplicate());
            check((int) crc.getValue() == push.bodyCrc(), "a push names its body");
        } else if (header.isResponse()) {
            encoded = Closing.decode(meta).encode();
        }
        FrameHeader.encode(again, header.type(), header.flags(), header.requestId(), encoded, header.bodyBytes(),
                header.status());
        again.put(encoded.duplicate()).put(body.duplicate());
        compare(name, golden, again);
        if (body.hasRemaining()) {
            byte[] whole = new byte[body.remaining()];
            body.get(whole);
            batches(whole, true);
        }
        print(name, json(header, true));
    }

    private void locations() throws Exception {
        byte[] rows = bytes("array_reduce_locations_rows");
        ReduceLocations read = ReduceLocations.decode(whole("array_reduce_locations_head", rows));
        compareArray("array_reduce_locations", read.encode(), rows);
        List<Object> all = new ArrayList<>();
        for (int i = 0; i < read.partitions(); i++) {
            all.add(read.get(i));
        }
        print("array_reduce_locations", json(all, false));
    }

    private void winners() throws Exception {
        byte[] rows = bytes("array_reduce_winners_rows");
        ReduceWinners read = ReduceWinners.decode(whole("array_reduce_winners_head", rows));
        compareArray("array_reduce_winners", read.encode(), rows);
        print("array_reduce_winners", json(read, true));
    }

    private void manifest() throws Exception {
        byte[] rows = bytes("array_reduce_manifest_rows");
        ReduceManifest read = ReduceManifest.decode(whole("array_reduce_manifest_head", rows));
        compareArray("array_reduce_manifest", read.encode(), rows);
        List<Object> all = new ArrayList<>();
        for (int partition = 0; partition < read.partitions(); partition++) {
            for (int row = read.first(partition); row < read.first(partition + 1); row++) {
                check(read.get(row).partition() == partition, "a partition's rows are found");
                all.add(read.get(row));
            }
        }
        print("array_reduce_manifest", json(all, false));
    }

    /** An array of a golden head and rows. */
    private byte[] whole(String head, byte[] rows) throws IOException {
        Deflater deflater = new Deflater(9);
        deflater.setInput(rows);
        deflater.finish();
        byte[] packed = new byte[rows.length + 100];
        int length = deflater.deflate(packed);
        deflater.end();
        byte[] first = bytes(head);
        byte[] whole = Arrays.copyOf(first, first.length + length);
        System.arraycopy(packed, 0, whole, first.length, length);
        return whole;
    }

    private void compareArray(String name, byte[] array, byte[] rows) throws Exception {
        compare(name + "_head", bytes(name + "_head"), ByteBuffer.wrap(array, 0, ArrayFormat.HEAD_BYTES).slice());
        Inflater inflater = new Inflater();
        inflater.setInput(array, ArrayFormat.HEAD_BYTES, array.length - ArrayFormat.HEAD_BYTES);
        byte[] raw = new byte[rows.length + 1];
        int length = inflater.inflate(raw);
        inflater.end();
        compare(name + "_rows", rows, ByteBuffer.wrap(raw, 0, length).slice());
    }

    /** Compare all bytes of a buffer, from 0 to its limit, and say which one differs. */
    private static void compare(String name, byte[] golden, ByteBuffer got) {
        check(got.limit() == golden.length, name + " has " + golden.length + " bytes, not " + got.limit());
        for (int i = 0; i < golden.length; i++) {
            check(got.get(i) == golden[i], name + " differs in byte " + i);
        }
    }

    private static ByteBuffer direct(byte[] bytes) {
        return ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.LITTLE_ENDIAN).put(bytes).flip();
    }

    private static void constants(String name, Class<?> of) throws IllegalAccessException {
        Map<String, String> found = new TreeMap<>();
        for (Field each : of.getDeclaredFields()) {
            if (Modifier.isPublic(each.getModifiers()) && Modifier.isStatic(each.getModifiers())) {
                Object value = each.get(null);
                found.put(each.getName(), value instanceof Integer number ? u32(number) : u64((Long) value));
            }
        }
        StringBuilder all = new StringBuilder();
        found.forEach((key, value) -> all.append(all.isEmpty() ? "" : ", ").append('"').append(key).append("\": ").append(value));
        print("constants_" + name, "{" + all + "}");
    }

    /** What was read, for comparison: ints and longs are unsigned on the wire, a record inside another is the list of its values. */
    private static String json(Object value, boolean outermost) throws Exception {
        if (value instanceof Record record && !(value instanceof ShuffleKey) && !(value instanceof Instance)) {
            List<String> parts = new ArrayList<>();
            for (RecordComponent each : record.getClass().getRecordComponents()) {
                each.getAccessor().setAccessible(true);
                String part = json(each.getAccessor().invoke(record), false);
                parts.add(outermost ? "\"" + each.getName() + "\": " + part : part);
            }
            return outermost ? "{" + String.join(", ", parts) + "}" : "[" + String.join(", ", parts) + "]";
        }
        if (value instanceof byte[] bytes) {
            return "\"" + HexFormat.of().formatHex(bytes) + "\"";
        }
        if (value instanceof int[] numbers) {
            return Arrays.stream(numbers).mapToObj(GoldenMain::u32).toList().toString();
        }
        if (value instanceof long[] numbers) {
            return Arrays.stream(numbers).mapToObj(GoldenMain::u64).toList().toString();
        }
        if (value instanceof Object[] || value instanceof List<?>) {
            List<String> parts = new ArrayList<>();
            for (Object each : value instanceof List<?> list ? list : Arrays.asList((Object[]) value)) {
                parts.add(json(each, false));
            }
            return parts.toString();
        }
        if (value instanceof Integer number) {
            return u32(number);
        }
        if (value instanceof Long number) {
            return u64(number);
        }
        return value == null ? "null" : "\"" + value + "\"";
    }

    private static String u32(int value) {
        return Integer.toUnsignedString(value);
    }

    private static String u64(long value) {
        return Long.toUnsignedString(value);
    }

    private static void print(String name, String what) {
        System.out.println(name + " " + what);
    }
}
