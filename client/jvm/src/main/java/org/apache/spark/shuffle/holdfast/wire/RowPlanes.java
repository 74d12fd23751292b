package org.apache.spark.shuffle.holdfast.wire;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Rows of SQL, turned so that equal bits of neighbouring rows lie side by side, where LZ4 and zstd see long runs (docs/internals/protocol.md, "Row planes").
 *
 * <p>Rows are a length as u32 and as many bytes, of which the first {@code words} times eight are the fixed part: UnsafeRow's bitset and one word for each
 * field. They become <em>columns</em>: byte 0 of all lengths, byte 1 of all, and so on, to the last byte of the last word. In each column the bits of whole
 * groups of 64 rows become planes: bit 0 of all of them, bit 1, and so on; what is left of a column stays bytes. Variable parts follow as they were. The
 * twin of client/core/read/row_planes.py.
 *
 * <p>Rules: all words of a row, its length before them, go to one of 72 vectors, one vector for each row of a group, and eight for the rows that are left. A
 * matrix of 8 by 8 bytes or bits is transposed by three rounds of exchanges between two words: between two vectors, each is one short loop, of which the JVM
 * makes instructions that work on many words at once.
 */
public final class RowPlanes {
    /** In front of the planes: u32 rows, u32 words. */
    static final int HEAD_BYTES = 8;
    /** There is no smaller batch of planes: it would not be shorter, and {@link #putColumns} needs columns of eight bytes. */
    static final int ROWS_MIN = 8;
    private static final int WORDS_AT = 4;
    private static final int LENGTH_BYTES = 4;
    private static final int WORD_BYTES = 8;
    private static final int GROUP = 64;
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    /** What of two words is exchanged, four, two and one rows apart. */
    private static final long[] BYTE_MASKS = {0x0000_0000_FFFF_FFFFL, 0x0000_FFFF_0000_FFFFL, 0x00FF_00FF_00FF_00FFL};
    private static final long[] BIT_MASKS = {0x0F0F_0F0F_0F0F_0F0FL, 0x3333_3333_3333_3333L, 0x5555_5555_5555_5555L};
    /** Vectors that take more are not kept for the next batch: a thread keeps so much for groups, and as much for the rows after them. */
    static final int VECTOR_BYTES_KEPT = 1 << 20;
    private static final ThreadLocal<long[][]> VECTORS = ThreadLocal.withInitial(RowPlanes::noVectors);

    private final byte[] rows;
    private final byte[] planes;
    private final int count;
    /** Of a row, and with its length. */
    private final int words;
    private final int width;
    /** Whole groups, then whole eights, then rows that are left; eights of both. */
    private final int groups;
    private final int eights;
    private final int left;
    private final int lastEights;
    private final long[][] vectors;

    private RowPlanes(byte[] rows, byte[] planes, int count, int words) {
        this.rows = rows;
        this.planes = planes;
        this.count = count;
        this.words = words;
        width = words + 1;
        groups = count / GROUP;
        eights = count % GROUP / 8;
        left = count % 8;
        lastEights = (count % GROUP + 7) / 8;
        long longs = (long) width * (GROUP * groups + 8 * lastEights);
        vectors = WORD_BYTES * longs <= VECTOR_BYTES_KEPT ? VECTORS.get() : noVectors();
        lengthen(0, GROUP, groups * width);
        lengthen(GROUP, vectors.length, lastEights * width);
    }

    /** Bytes that this thread keeps, for tests. */
    static long bytesKept() {
        return Arrays.stream(VECTORS.get()).mapToLong(vector -> (long) WORD_BYTES * vector.length).sum();
    }

    private static long[][] noVectors() {
        return new long[GROUP + 8][0];
    }

    private void lengthen(int from, int to, int length) {
        // The first is made last, so it is the shortest where memory runs out before.
        for (int vector = to - 1; vector >= from && vectors[from].length < length; vector--) {
            vectors[vector] = new long[length];
        }
    }

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
     * Puts the rows in [off, off + len), each of which has the fixed words, into {@code planes} and returns how many bytes that took, {@link #HEAD_BYTES}
     * more. Rows of one length, as those with decimals above 18 digits are, are turned from end to end.
     */
    static int turn(byte[] rows, int off, int len, int fixedWords, byte[] planes) {
        int count = 0;
        int one = (int) INTS.get(rows, off);
        boolean equal = one % WORD_BYTES == 0;
        for (int at = off; at < off + len; count++) {
            int length = (int) INTS.get(rows, at);
            equal &= length == one;
            at += LENGTH_BYTES + length;
        }
        new RowPlanes(rows, planes, count, equal ? one / WORD_BYTES : fixedWords).turn(off);
        return HEAD_BYTES + len;
    }

    /** How many bytes of rows are in so many bytes of planes. Throws CORRUPT. */
    static int rowBytes(int length) throws HoldfastException {
        if (length < HEAD_BYTES) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + length + " bytes");
        }
        return length - HEAD_BYTES;
    }

    /** Undoes {@link #turn} of planes that have {@code size} bytes of rows, at most {@link Limits#ORIGINAL_BYTES_MAX}. Throws CORRUPT. */
    static void back(byte[] planes, int size, byte[] rows) throws HoldfastException {
        int count = (int) INTS.get(planes, 0);
        int words = (int) INTS.get(planes, WORDS_AT);
        // Words first: then the product is no larger than a long.
        if (count < ROWS_MIN || words < 0 || words > size || count * (LENGTH_BYTES + (long) WORD_BYTES * words) > size) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + Integer.toUnsignedString(count) + " rows of "
                    + Integer.toUnsignedString(words) + " words in " + size + " bytes");
        }
        new RowPlanes(rows, planes, count, words).back(size);
    }

    private void turn(int off) {
        INTS.set(planes, 0, count);
        INTS.set(planes, WORDS_AT, words);
        int rest = columnAt(width, 0);
        for (int row = 0, at = off; row < count; row++) {
            int length = (int) INTS.get(rows, at);
            long[] vector = vectorOf(row);
            int place = placeOf(row);
            vector[place] = length;
            for (int word = 1; word < width; word++) {
                vector[place + word] = (long) LONGS.get(rows, at + WORD_BYTES * word - LENGTH_BYTES);
            }
            at += LENGTH_BYTES + length;
            int variable = length - WORD_BYTES * words;
            if (variable > 0) {
                System.arraycopy(rows, at - variable, planes, rest, variable);
                rest += variable;
            }
        }
        transpose();
        putColumns();
    }

    private void back(int size) throws HoldfastException {
        getColumns();
        transpose();
        int rest = columnAt(width, 0);
        int at = 0;
        for (int row = 0; row < count; row++) {
            long[] vector = vectorOf(row);
            int place = placeOf(row);
            int length = (int) vector[place];
            int variable = length - WORD_BYTES * words;
            if (length < 0 || variable < 0 || variable > HEAD_BYTES + size - rest) {
                throw new HoldfastException(Status.CORRUPT, "planes name a row of " + Integer.toUnsignedString(length) + " bytes");
            }
            INTS.set(rows, at, length);
            for (int word = 1; word < width; word++) {
                LONGS.set(rows, at + WORD_BYTES * word - LENGTH_BYTES, vector[place + word]);
            }
            at += LENGTH_BYTES + length;
            if (variable > 0) {
                System.arraycopy(planes, rest, rows, at - variable, variable);
                rest += variable;
            }
        }
        if (at != size) {
            throw new HoldfastException(Status.CORRUPT, "planes of " + size + " bytes of rows have rows of " + at);
        }
    }

    private long[] vectorOf(int row) {
        return vectors[row < groups * GROUP ? row % GROUP : GROUP + row % 8];
    }

    private int placeOf(int row) {
        return (row < groups * GROUP ? row / GROUP : row % GROUP / 8) * width;
    }

    private static int bytesOf(int word) {
        return word == 0 ? LENGTH_BYTES : WORD_BYTES;
    }

    /** Where the column of a byte begins, of the length (0) or of a word (from 1). */
    private int columnAt(int word, int which) {
        return HEAD_BYTES + (word == 0 ? which : WORD_BYTES * word - LENGTH_BYTES + which) * count;
    }

    /**
     * One after another: what is put for rows that do not exist is where the next column begins, and is put over. Behind the last column are variable
     * parts, so nothing is put beyond its end.
     */
    private void putColumns() {
        int end = columnAt(width, 0);
        for (int word = 0; word < width; word++) {
            for (int which = 0; which < bytesOf(word); which++) {
                int at = columnAt(word, which);
                for (int bit = 0; bit < 8 && groups > 0; bit++) {
                    long[] vector = vectors[8 * which + bit];
                    for (int place = word; place < groups * width; place += width, at += 8) {
                        LONGS.set(planes, at, vector[place]);
                    }
                }
                long[] vector = vectors[GROUP + which];
                int more = left > 0 && at + 8 * (eights + 1) <= end ? 1 : 0;
                for (int place = word; place < (eights + more) * width; place += width, at += 8) {
                    LONGS.set(planes, at, vector[place]);
                }
                for (int each = 0; each < left && more == 0; each++) {
                    planes[at + each] = (byte) (vector[word + eights * width] >>> 8 * each);
                }
            }
        }
    }

    /**
     * Undoes {@link #putColumns}: one method for both would be a fifth slower. Most columns are zero. What is got beyond a column's end is of rows that do
     * not exist.
     */
    private void getColumns() {
        int end = columnAt(width, 0);
        for (int each = groups == 0 ? GROUP : 0; each < vectors.length; each++) {
            Arrays.fill(vectors[each], 0, (each < GROUP ? groups : lastEights) * width, 0);
        }
        for (int word = 0; word < width; word++) {
            for (int which = 0; which < bytesOf(word); which++) {
                int at = columnAt(word, which);
                if (planes[at] == 0 && Arrays.equals(planes, at, at + count - 1, planes, at + 1, at + count)) {
                    continue;
                }
                for (int bit = 0; bit < 8 && groups > 0; bit++) {
                    long[] vector = vectors[8 * which + bit];
                    for (int place = word; place < groups * width; place += width, at += 8) {
                        vector[place] = (long) LONGS.get(planes, at);
                    }
                }
                long[] vector = vectors[GROUP + which];
                int more = left > 0 && at + 8 * (eights + 1) <= end ? 1 : 0;
                for (int place = word; place < (eights + more) * width; place += width, at += 8) {
                    vector[place] = (long) LONGS.get(planes, at);
                }
                for (int each = 0; each < left && more == 0; each++) {
                    vector[word + eights * width] |= (planes[at + each] & 0xFFL) << 8 * each;
                }
            }
        }
    }

    /** Turns bytes of eight rows, and then bits of 64, into those of columns; doing it again undoes it, since neither knows of the other. */
    private void transpose() {
        for (int vector = 0; vector < 8 && groups > 0; vector++) {
            transpose(vector, 8, groups * width, BYTE_MASKS, 8);
        }
        for (int vector = 0; vector < GROUP && groups > 0; vector += 8) {
            transpose(vector, 1, groups * width, BIT_MASKS, 1);
        }
        transpose(GROUP, 1, lastEights * width, BYTE_MASKS, 8);
    }

    /** Matrices whose rows are in the vectors {@code first}, {@code first + step}, and so on, of elements of so many bits. */
    private void transpose(int first, int step, int length, long[] masks, int elementBits) {
        for (int round = 0, distance = 4; distance > 0; round++, distance /= 2) {
            for (int each = 0; each < 8; each++) {
                if ((each & distance) == 0) {
                    exchange(vectors[first + step * each], vectors[first + step * (each + distance)], length, masks[round], elementBits * distance);
                }
            }
        }
    }

    private static void exchange(long[] one, long[] other, int length, long mask, int shift) {
        for (int each = 0; each < length; each++) {
            long difference = (one[each] >>> shift ^ other[each]) & mask;
            one[each] ^= difference << shift;
            other[each] ^= difference;
        }
    }
}
