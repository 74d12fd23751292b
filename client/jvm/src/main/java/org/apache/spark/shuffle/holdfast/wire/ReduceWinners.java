package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * REDUCE_WINNERS: the attempt that counts for every map, by index ({@link Limits#NO_ATTEMPT}: none), and, if the committer has it, for
 * which partitions each wrote something: bit p (byte p / 8, bit p % 8) of its bitmap. {@code bitmaps} has one per map or is empty.
 */
public record ReduceWinners(int partitions, long[] attempts, byte[][] bitmaps) {
    private static final int BITMAPS = 0x0001;
    private static final byte[][] NONE = {};

    /** Winners of a committer that does not have the partitions of each. */
    public static ReduceWinners withoutBitmaps(int partitions, long[] attempts) {
        return new ReduceWinners(partitions, attempts, NONE);
    }

    public static ReduceWinners decode(byte[] data) throws HoldfastException {
        ArrayFormat.Head head = ArrayFormat.head(data, ArrayFormat.REDUCE_WINNERS);
        int maps = head.first();
        int partitions = head.second();
        boolean withBitmaps = (head.flags() & BITMAPS) != 0;
        if ((head.flags() & ~BITMAPS) != 0 || maps < 0 || maps > Limits.MAPS_MAX || partitions < 1
                || partitions > Limits.PARTITIONS_MAX) {
            throw ArrayFormat.wrong(head.kind(), Integer.toUnsignedString(maps) + " maps, "
                    + Integer.toUnsignedString(partitions) + " partitions, flags " + head.flags());
        }
        int width = bitmapBytes(partitions);
        ByteBuffer rows = ArrayFormat.inflate(data, head, (long) maps * (8 + (withBitmaps ? width : 0)));
        long[] attempts = new long[maps];
        for (int i = 0; i < maps; i++) {
            attempts[i] = rows.getLong();
        }
        byte[][] bitmaps = withBitmaps ? new byte[maps][width] : NONE;
        for (byte[] bitmap : bitmaps) {
            rows.get(bitmap);
        }
        return new ReduceWinners(partitions, attempts, bitmaps);
    }

    /** Bytes of a bitmap over that many partitions. */
    public static int bitmapBytes(int partitions) {
        return (partitions + 7) / 8;
    }

    public boolean hasBitmaps() {
        return bitmaps.length > 0;
    }

    /** Whether this map wrote for the partition; only with bitmaps. */
    public boolean has(int map, int partition) {
        return (bitmaps[map][partition >> 3] & 1 << (partition & 7)) != 0;
    }

    public byte[] encode() throws HoldfastException {
        int width = bitmapBytes(partitions);
        if (hasBitmaps() && bitmaps.length != attempts.length) {
            throw ArrayFormat.wrong(ArrayFormat.REDUCE_WINNERS, attempts.length + " maps need a bitmap each");
        }
        ByteBuffer rows = ArrayFormat.rows(
                ArrayFormat.REDUCE_WINNERS, (long) attempts.length * (8 + (hasBitmaps() ? width : 0)));
        for (long each : attempts) {
            rows.putLong(each);
        }
        for (byte[] bitmap : bitmaps) {
            if (bitmap.length != width) {
                throw ArrayFormat.wrong(ArrayFormat.REDUCE_WINNERS, "a bitmap has " + width + " bytes, not " + bitmap.length);
            }
            rows.put(bitmap);
        }
        return ArrayFormat.encode(
                ArrayFormat.REDUCE_WINNERS, hasBitmaps() ? BITMAPS : 0, attempts.length, partitions, rows);
    }
}
