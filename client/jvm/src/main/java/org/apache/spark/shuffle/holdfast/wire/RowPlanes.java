package org.apache.spark.shuffle.holdfast.wire;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Rows of SQL, turned so that equal bits of neighbouring rows lie side by side, where LZ4 and zstd see long runs (docs/internals/protocol.md, "Row planes").
 *
 * <p>Rows are a length as u32 and as many bytes, of which the first {@code words} times eight are the fixed part: UnsafeRow's bitset and one word for each
 * field. First they become <em>columns</em>, byte 0 of all lengths, byte 1 of all, and so on, to the last byte of the last word; eight rows at a time, in
 * registers, the last eight once more where their number is no multiple of eight. Then, in each column, the bits of whole groups of 64 rows become planes:
 * bit 0 of all of them, bit 1, and so on; what is left of a column stays bytes. Variable parts follow as they were. Pure; the twin of
 * client/core/read/row_planes.py.
 */
public final class RowPlanes {
    /** In front of the planes: u32 rows, u32 words. */
    static final int HEAD_BYTES = 8;
    /** As many are turned at a time, and there is no smaller batch of planes. */
    static final int ROWS_MIN = 8;
    private static final int WORDS_AT = 4;
    private static final int LENGTH_BYTES = 4;
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    /** Whether bits are exchanged as well, before or after the bytes. */
    private enum BitTurn { NONE, FIRST, LAST }

    private RowPlanes() {}

    /** Words of the fixed part of an UnsafeRow. */
    public static int words(int fields) {
        return (fields + 63) / 64 + fields;
    }

    /** Whether there are enough rows in [off, off + len). */
    static boolean possible(byte[] rows, int off, int len) {
        int count = 0;
        for (int at = off; at < off + len && count < ROWS_MIN; at += LENGTH_BYTES + (int) INTS.get(rows, at)) {
            count++;
        }
        return count == ROWS_MIN;
    }

    /**
     * Puts the rows in [off, off + len) into {@code planes} and returns how many bytes that took, {@link #HEAD_BYTES} more. Rows of one length, as those
     * with decimals above 18 digits are, are turned from end to end.
     */
    static int turn(byte[] rows, int off, int len, int fixedWords, byte[] planes) {
        int count = 0;
        int one = (int) INTS.get(rows, off);
        boolean equal = one % 8 == 0;
        for (int at = off; at < off + len; count++) {
            int length = (int) INTS.get(rows, at);
            equal &= length == one;
            at += LENGTH_BYTES + length;
        }
        int words = equal ? one / 8 : fixedWords;
        INTS.set(planes, 0, count);
        INTS.set(planes, WORDS_AT, words);
        int first = HEAD_BYTES + LENGTH_BYTES * count;
        int rest = first + 8 * words * count;
        byte[] columns = ByteArrays.SHARED.take(rest);
        for (int each = 0; equal && each < LENGTH_BYTES; each++) {
            Arrays.fill(columns, HEAD_BYTES + each * count, HEAD_BYTES + (each + 1) * count, (byte) (one >> 8 * each));
        }
        int[] row = new int[8];
        int[] column = steps(count);
        for (int done = 0, at = off; done < count; done += 8) {
            int again = Math.max(0, done + 8 - count);
            System.arraycopy(row, 8 - again, row, 0, again);
            for (int each = again; each < 8; each++) {
                int length = equal ? one : (int) INTS.get(rows, at);
                row[each] = at + LENGTH_BYTES;
                at = row[each] + length;
                if (!equal) {
                    putLength(columns, done - again + each, count, length);
                    int variable = length - 8 * words;
                    System.arraycopy(rows, at - variable, planes, rest, variable);
                    rest += variable;
                }
            }
            for (int word = 0; word < words; word++) {
                exchange(rows, row, 8 * word, columns, column, first + 8 * word * count + done - again, BitTurn.NONE);
            }
        }
        turnBits(columns, planes, count, LENGTH_BYTES + 8 * words, true);
        ByteArrays.SHARED.give(columns);
        return HEAD_BYTES + len;
    }

    /** How many bytes of rows are in so many bytes of planes. Throws CORRUPT. */
    static int rowBytes(int length) throws HoldfastException {
        if (length < HEAD_BYTES) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + length + " bytes");
        }
        return length - HEAD_BYTES;
    }

    /** Undoes {@link #turn} of planes that have {@code size} bytes of rows. Throws CORRUPT. */
    static void back(byte[] planes, int size, byte[] rows) throws HoldfastException {
        int count = (int) INTS.get(planes, 0);
        int words = (int) INTS.get(planes, WORDS_AT);
        // Words first: then the product is no larger than a long.
        if (count < ROWS_MIN || words < 0 || words > size || count * (LENGTH_BYTES + 8L * words) > size) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + Integer.toUnsignedString(count) + " rows of "
                    + Integer.toUnsignedString(words) + " words in " + size + " bytes");
        }
        int first = HEAD_BYTES + LENGTH_BYTES * count;
        int rest = first + 8 * words * count;
        byte[] columns = ByteArrays.SHARED.take(rest);
        turnBits(planes, columns, count, LENGTH_BYTES + 8 * words, false);
        boolean equal = equalLengths(columns, count);
        int one = length(columns, 0, count);
        int[] row = new int[8];
        int[] column = steps(count);
        int at = 0;
        for (int done = 0; done < count; done += 8) {
            int again = Math.max(0, done + 8 - count);
            System.arraycopy(row, 8 - again, row, 0, again);
            for (int each = again; each < 8; each++) {
                int length = equal ? one : length(columns, done - again + each, count);
                int variable = length - 8 * words;
                if (length < 0 || variable < 0 || variable > HEAD_BYTES + size - rest) {
                    throw new HoldfastException(Status.CORRUPT, "planes name a row of " + Integer.toUnsignedString(length) + " bytes");
                }
                INTS.set(rows, at, length);
                row[each] = at + LENGTH_BYTES;
                at = row[each] + length;
                if (variable > 0) {
                    System.arraycopy(planes, rest, rows, at - variable, variable);
                    rest += variable;
                }
            }
            for (int word = 0; word < words; word++) {
                exchange(columns, column, first + 8 * word * count + done - again, rows, row, 8 * word, BitTurn.NONE);
            }
        }
        ByteArrays.SHARED.give(columns);
        if (at != size) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + size + " bytes of rows have rows of " + at);
        }
    }

    /** Columns become planes, or planes columns. */
    private static void turnBits(byte[] source, byte[] target, int count, int columns, boolean toPlanes) {
        int whole = count & ~63;
        int[] bytes = steps(8);
        int[] planes = steps(whole / 8);
        for (int column = 0, base = HEAD_BYTES; column < columns; column++, base += count) {
            for (int row = 0; row < whole; row += 64) {
                if (toPlanes) {
                    exchange(source, bytes, base + row, target, planes, base + row / 8, BitTurn.LAST);
                } else {
                    exchange(source, planes, base + row / 8, target, bytes, base + row, BitTurn.FIRST);
                }
            }
            System.arraycopy(source, base + whole, target, base + whole, count - whole);
        }
    }

    private static int[] steps(int step) {
        int[] steps = new int[8];
        for (int each = 1; each < 8; each++) {
            steps[each] = steps[each - 1] + step;
        }
        return steps;
    }

    /** Whether each column of the lengths is one byte again and again: its first is like the second, that like the third, and so on. */
    private static boolean equalLengths(byte[] columns, int count) {
        boolean equal = true;
        for (int at = HEAD_BYTES; at < HEAD_BYTES + LENGTH_BYTES * count; at += count) {
            equal &= Arrays.equals(columns, at, at + count - 1, columns, at + 1, at + count);
        }
        return equal;
    }

    private static void putLength(byte[] columns, int row, int count, int length) {
        int at = HEAD_BYTES + row;
        columns[at] = (byte) length;
        columns[at + count] = (byte) (length >> 8);
        columns[at + 2 * count] = (byte) (length >> 16);
        columns[at + 3 * count] = (byte) (length >> 24);
    }

    private static int length(byte[] columns, int row, int count) {
        int at = HEAD_BYTES + row;
        return columns[at] & 0xFF | (columns[at + count] & 0xFF) << 8 | (columns[at + 2 * count] & 0xFF) << 16 | columns[at + 3 * count] << 24;
    }

    /**
     * Eight words, one at each of {@code from}, become eight others: byte i of the k-th is byte k of the i-th, and with {@code bitTurn} then bit i of a
     * byte of the k-th is bit k of that byte of the i-th. Doing it again undoes it, bits first. Most words are zero in all eight.
     */
    private static void exchange(byte[] source, int[] from, int by, byte[] target, int[] to, int toBy, BitTurn bitTurn) {
        long a = (long) LONGS.get(source, from[0] + by);
        long b = (long) LONGS.get(source, from[1] + by);
        long c = (long) LONGS.get(source, from[2] + by);
        long d = (long) LONGS.get(source, from[3] + by);
        long e = (long) LONGS.get(source, from[4] + by);
        long f = (long) LONGS.get(source, from[5] + by);
        long g = (long) LONGS.get(source, from[6] + by);
        long h = (long) LONGS.get(source, from[7] + by);
        if ((a | b | c | d | e | f | g | h) != 0) {
            long t;
            // Which of the two is first differs there and back.
            int bytesAt = bitTurn == BitTurn.FIRST ? 1 : 0;
            for (int stage = 0; stage < 2; stage++) {
                if (stage == bytesAt) {
                    t = (a >>> 32 ^ e) & 0xFFFF_FFFFL; a ^= t << 32; e ^= t;
                    t = (b >>> 32 ^ f) & 0xFFFF_FFFFL; b ^= t << 32; f ^= t;
                    t = (c >>> 32 ^ g) & 0xFFFF_FFFFL; c ^= t << 32; g ^= t;
                    t = (d >>> 32 ^ h) & 0xFFFF_FFFFL; d ^= t << 32; h ^= t;
                    t = (a >>> 16 ^ c) & 0x0000_FFFF_0000_FFFFL; a ^= t << 16; c ^= t;
                    t = (b >>> 16 ^ d) & 0x0000_FFFF_0000_FFFFL; b ^= t << 16; d ^= t;
                    t = (e >>> 16 ^ g) & 0x0000_FFFF_0000_FFFFL; e ^= t << 16; g ^= t;
                    t = (f >>> 16 ^ h) & 0x0000_FFFF_0000_FFFFL; f ^= t << 16; h ^= t;
                    t = (a >>> 8 ^ b) & 0x00FF_00FF_00FF_00FFL; a ^= t << 8; b ^= t;
                    t = (c >>> 8 ^ d) & 0x00FF_00FF_00FF_00FFL; c ^= t << 8; d ^= t;
                    t = (e >>> 8 ^ f) & 0x00FF_00FF_00FF_00FFL; e ^= t << 8; f ^= t;
                    t = (g >>> 8 ^ h) & 0x00FF_00FF_00FF_00FFL; g ^= t << 8; h ^= t;
                } else if (bitTurn != BitTurn.NONE) {
                    t = (a >>> 4 ^ e) & 0x0F0F_0F0F_0F0F_0F0FL; a ^= t << 4; e ^= t;
                    t = (b >>> 4 ^ f) & 0x0F0F_0F0F_0F0F_0F0FL; b ^= t << 4; f ^= t;
                    t = (c >>> 4 ^ g) & 0x0F0F_0F0F_0F0F_0F0FL; c ^= t << 4; g ^= t;
                    t = (d >>> 4 ^ h) & 0x0F0F_0F0F_0F0F_0F0FL; d ^= t << 4; h ^= t;
                    t = (a >>> 2 ^ c) & 0x3333_3333_3333_3333L; a ^= t << 2; c ^= t;
                    t = (b >>> 2 ^ d) & 0x3333_3333_3333_3333L; b ^= t << 2; d ^= t;
                    t = (e >>> 2 ^ g) & 0x3333_3333_3333_3333L; e ^= t << 2; g ^= t;
                    t = (f >>> 2 ^ h) & 0x3333_3333_3333_3333L; f ^= t << 2; h ^= t;
                    t = (a >>> 1 ^ b) & 0x5555_5555_5555_5555L; a ^= t << 1; b ^= t;
                    t = (c >>> 1 ^ d) & 0x5555_5555_5555_5555L; c ^= t << 1; d ^= t;
                    t = (e >>> 1 ^ f) & 0x5555_5555_5555_5555L; e ^= t << 1; f ^= t;
                    t = (g >>> 1 ^ h) & 0x5555_5555_5555_5555L; g ^= t << 1; h ^= t;
                }
            }
        }
        LONGS.set(target, to[0] + toBy, a);
        LONGS.set(target, to[1] + toBy, b);
        LONGS.set(target, to[2] + toBy, c);
        LONGS.set(target, to[3] + toBy, d);
        LONGS.set(target, to[4] + toBy, e);
        LONGS.set(target, to[5] + toBy, f);
        LONGS.set(target, to[6] + toBy, g);
        LONGS.set(target, to[7] + toBy, h);
    }
}
