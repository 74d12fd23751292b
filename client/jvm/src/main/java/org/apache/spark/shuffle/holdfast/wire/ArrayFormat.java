package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * What the arrays of REDUCE partitions have in common ({@code common/formats/reduce_layouts.py}): u8 version, u8 kind, u16 flags, two u32
 * counts, u64 length of the rest when inflated; the rest is deflated (zlib). Counts are checked against lengths before anything is
 * allocated. Throws BAD_FRAME, or TOO_LARGE.
 */
final class ArrayFormat {
    static final int HEAD_BYTES = 20;
    static final int REDUCE_LOCATIONS = 16;
    static final int REDUCE_WINNERS = 17;
    static final int REDUCE_MANIFEST = 18;
    private static final int VERSION = 2;
    private static final int LEVEL = 1;
    /** Deflate cannot make more of a byte; so a few bytes cannot make us allocate a lot. */
    private static final long RATIO_MAX = 1_040;

    /** The fixed part of an array, checked but for the counts. */
    record Head(int kind, int flags, int first, int second, long size) {}

    private ArrayFormat() {}

    static String name(int kind) {
        return switch (kind) {
            case REDUCE_LOCATIONS -> "REDUCE_LOCATIONS";
            case REDUCE_WINNERS -> "REDUCE_WINNERS";
            case REDUCE_MANIFEST -> "REDUCE_MANIFEST";
            default -> "kind " + kind;
        };
    }

    /** How many workers each row has, which the flags of the head say. */
    static int copies(Head head) throws HoldfastException {
        if (head.flags < 1 || head.flags > Limits.COPIES_MAX) {
            throw wrong(head.kind, head.flags + " workers in a row; 1 to " + Limits.COPIES_MAX + " are allowed");
        }
        return head.flags;
    }

    /** How many workers of a row there are: behind the last one only {@link Limits#NO_WORKER} stands. BAD_FRAME if there is none, or that stands between them. */
    static int placed(int kind, int[][] workers, int row) throws HoldfastException {
        int count = 0;
        while (count < workers.length && workers[count][row] != Limits.NO_WORKER) {
            count++;
        }
        for (int copy = count; copy < workers.length; copy++) {
            if (workers[copy][row] != Limits.NO_WORKER) {
                count = 0;
            }
        }
        if (count == 0) {
            throw wrong(kind, "the workers of row " + row + " are not in order");
        }
        return count;
    }

    static HoldfastException wrong(int kind, String reason) {
        return new HoldfastException(Status.BAD_FRAME, name(kind) + ": " + reason);
    }

    /** An empty buffer for {@code size} bytes of rows; TOO_LARGE beyond the bound. */
    static ByteBuffer rows(int kind, long size) throws HoldfastException {
        checkSize(kind, size);
        return ByteBuffer.allocate((int) size).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** The bytes of an array whose rows fill a heap buffer. */
    static byte[] encode(int kind, int flags, int first, int second, ByteBuffer rows) {
        Deflater deflater = new Deflater(LEVEL);
        try {
            deflater.setInput(rows.array(), 0, rows.capacity());
            deflater.finish();
            byte[] packed = new byte[HEAD_BYTES + 64 + rows.capacity() / 4];
            int used = HEAD_BYTES;
            while (!deflater.finished()) {
                if (used == packed.length) {
                    packed = java.util.Arrays.copyOf(packed, packed.length * 2);
                }
                used += deflater.deflate(packed, used, packed.length - used);
            }
            ByteBuffer head = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN);
            head.put((byte) VERSION).put((byte) kind).putShort((short) flags).putInt(first).putInt(second);
            head.putLong(rows.capacity());
            return java.util.Arrays.copyOf(packed, used);
        } finally {
            deflater.end();
        }
    }

    static Head head(byte[] data, int kind) throws HoldfastException {
        if (data.length < HEAD_BYTES) {
            throw wrong(kind, data.length + " bytes are too few");
        }
        ByteBuffer head = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
        int version = head.get() & 0xFF;
        int got = head.get() & 0xFF;
        if (version != VERSION || got != kind) {
            throw new HoldfastException(Status.BAD_FRAME, "expected " + name(kind) + " version " + VERSION + ", got kind "
                    + got + " version " + version);
        }
        Head found = new Head(kind, head.getShort() & 0xFFFF, head.getInt(), head.getInt(), head.getLong());
        checkSize(kind, found.size);
        return found;
    }

    /** The rows, little endian, of an array whose counts make {@code expected} bytes. */
    static ByteBuffer inflate(byte[] data, Head head, long expected) throws HoldfastException {
        if (head.size != expected) {
            throw wrong(head.kind, "counts " + Integer.toUnsignedString(head.first) + " and "
                    + Integer.toUnsignedString(head.second) + " do not make " + head.size + " bytes");
        }
        if (head.size > RATIO_MAX * (data.length - HEAD_BYTES)) {
            throw notThat(head);
        }
        Inflater inflater = new Inflater();
        try {
            inflater.setInput(data, HEAD_BYTES, data.length - HEAD_BYTES);
            byte[] raw = new byte[(int) head.size];
            int got = 0;
            while (got < raw.length) {
                int more = inflater.inflate(raw, got, raw.length - got);
                if (more == 0) {
                    throw notThat(head);
                }
                got += more;
            }
            // The checksum at the end is read only with room for another byte.
            if (inflater.inflate(new byte[1]) != 0 || !inflater.finished() || inflater.getRemaining() != 0) {
                throw notThat(head);
            }
            return ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
        } catch (DataFormatException error) {
            throw wrong(head.kind, "not deflated data (" + error.getMessage() + ")");
        } finally {
            inflater.end();
        }
    }

    private static HoldfastException notThat(Head head) {
        return wrong(head.kind, "inflates to something other than " + head.size + " bytes");
    }

    private static void checkSize(int kind, long size) throws HoldfastException {
        if (size < 0 || size > Limits.INFLATED_BYTES_MAX) {
            throw new HoldfastException(Status.TOO_LARGE, name(kind) + ": " + Long.toUnsignedString(size)
                    + " bytes inflated are more than " + Limits.INFLATED_BYTES_MAX);
        }
    }
}
