package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The header of a batch, the unit of exactly-once (docs/internals/protocol.md, "Batch"): {@link #write} seals a batch whose payload is
 * already in the buffer, {@link #parse} verifies one and keeps its fields until the next call.
 *
 * <p>Allocates nothing per batch; a reader keeps one instance. Buffers are little endian. Not thread-safe.
 */
public final class BatchHeader {
    public static final int SIZE = 28;
    public static final int MAGIC = 0x4248;
    public static final int VERSION = 1;
    public static final int PAYLOAD_BYTES_MAX = Limits.BATCH_BYTES_MAX - SIZE;
    /** What the payload of a LAST batch begins with: u32 number of batches, itself included, u64 sum of the CRCs before it. */
    public static final int TOTALS_BYTES = 12;

    public static final int LAST = 0x01;
    /** The record continues in the next batch of the same map, attempt and partition. */
    public static final int MORE = 0x02;
    private static final int CODEC_SHIFT = 4;
    private static final int CODEC_MASK = 0x70;
    /** A bit for each codec's number. */
    private static final int CODECS = 0b110_1111;
    private static final int KNOWN_FLAGS = LAST | MORE | CODEC_MASK;

    private static final int MAP_AT = 4;
    private static final int ATTEMPT_AT = 8;
    private static final int NUMBER_AT = 16;
    private static final int LENGTH_AT = 20;
    private static final int CRC_AT = 24;

    private int flags;
    private int map;
    private long attempt;
    private int number;
    private int crc;
    private int payloadOffset;
    private int payloadBytes;
    private int batches;
    private long crcSum;

    /** Flags of a batch: {@link #LAST} and {@link #MORE} or 0, and the codec's number, see {@link Codec#number}. */
    public static int flags(int lastAndMore, int codecNumber) {
        return lastAndMore | codecNumber << CODEC_SHIFT;
    }

    /** Put the totals of a LAST batch where its payload begins. {@code batches} counts this one, {@code crcSum} does not. */
    public static void putTotals(ByteBuffer data, int payloadOffset, int batches, long crcSum) {
        data.putInt(payloadOffset, batches).putLong(payloadOffset + 4, crcSum);
    }

    /**
     * Write the header at {@code offset}; its payload ({@code payloadBytes}, the totals of a LAST batch included) is already
     * right behind. Returns the CRC, which the writer adds to its sum. The buffer's position stays.
     */
    public static int write(
            ByteBuffer data, int offset, int flags, int map, long attempt, int number, int payloadBytes, int partition,
            SeededCrc crc) {
        if (data.order() != ByteOrder.LITTLE_ENDIAN) {
            throw new IllegalArgumentException("batches are little endian");
        }
        if (payloadBytes > PAYLOAD_BYTES_MAX || payloadBytes < ((flags & LAST) == 0 ? 0 : TOTALS_BYTES)) {
            throw new IllegalArgumentException(
                    "a batch holds at most " + PAYLOAD_BYTES_MAX + " payload bytes and a LAST its totals, not " + payloadBytes);
        }
        data.putInt(offset, MAGIC | VERSION << 16 | flags << 24);
        data.putInt(offset + MAP_AT, map);
        data.putLong(offset + ATTEMPT_AT, attempt);
        data.putInt(offset + NUMBER_AT, number);
        data.putInt(offset + LENGTH_AT, payloadBytes);
        int value = crc.ofBatch(partition, data, offset, payloadBytes);
        data.putInt(offset + CRC_AT, value);
        return value;
    }

    /**
     * Verify the batch at {@code offset}, which ends before the buffer's limit, and return the offset behind it; its fields are
     * then in this object. Throws CORRUPT naming what is wrong; the caller adds where.
     */
    public int parse(ByteBuffer data, int offset, int partition, SeededCrc check) throws HoldfastException {
        int whole = wholeBytes(data, offset);
        if (whole < 0 || whole > data.limit() - offset) {
            throw new HoldfastException(Status.CORRUPT,
                    "batch cut at offset " + offset + ": " + (data.limit() - offset) + " bytes are there");
        }
        flags = data.get(offset + 3) & 0xFF;
        map = data.getInt(offset + MAP_AT);
        attempt = data.getLong(offset + ATTEMPT_AT);
        number = data.getInt(offset + NUMBER_AT);
        crc = data.getInt(offset + CRC_AT);
        payloadOffset = offset + SIZE;
        payloadBytes = whole - SIZE;
        if ((flags & ~KNOWN_FLAGS) != 0 || (CODECS >> codec() & 1) == 0) {
            throw new HoldfastException(Status.CORRUPT, "not a batch header at offset " + offset);
        }
        if (check.ofBatch(partition, data, offset, payloadBytes) != crc) {
            throw new HoldfastException(Status.CORRUPT, "batch checksum mismatch at offset " + offset + " (map "
                    + Integer.toUnsignedString(map) + " attempt " + Long.toUnsignedString(attempt) + " batch "
                    + Integer.toUnsignedString(number) + ")");
        }
        batches = 0;
        crcSum = 0;
        if (last()) {
            if (payloadBytes < TOTALS_BYTES) {
                throw new HoldfastException(Status.CORRUPT, "LAST batch without totals at offset " + offset);
            }
            batches = data.getInt(payloadOffset);
            crcSum = data.getLong(payloadOffset + 4);
            payloadOffset += TOTALS_BYTES;
            payloadBytes -= TOTALS_BYTES;
        }
        return offset + whole;
    }

    /**
     * The length of the batch at {@code offset}, header included, or -1 while its header is not whole before the limit. Only magic,
     * version and length are looked at; throws CORRUPT if it cannot be a header.
     */
    public static int wholeBytes(ByteBuffer data, int offset) throws HoldfastException {
        if (data.order() != ByteOrder.LITTLE_ENDIAN) {
            throw new IllegalArgumentException("batches are little endian");
        }
        if (data.limit() - offset < SIZE) {
            return -1;
        }
        int length = data.getInt(offset + LENGTH_AT);
        if ((data.getInt(offset) & 0x00FF_FFFF) != (MAGIC | VERSION << 16) || length < 0 || length > PAYLOAD_BYTES_MAX) {
            throw new HoldfastException(Status.CORRUPT, "not a batch header at offset " + offset);
        }
        return SIZE + length;
    }

    public int flags() {
        return flags;
    }

    public boolean last() {
        return (flags & LAST) != 0;
    }

    public boolean more() {
        return (flags & MORE) != 0;
    }

    /** Number of the codec: see {@link Codec#of(int)}. */
    public int codec() {
        return (flags & CODEC_MASK) >> CODEC_SHIFT;
    }

    /** u32. */
    public int map() {
        return map;
    }

    /** u64. */
    public long attempt() {
        return attempt;
    }

    /** u32. */
    public int number() {
        return number;
    }

    /** u32. */
    public int crc() {
        return crc;
    }

    /** Where the payload begins, behind the totals of a LAST batch. */
    public int payloadOffset() {
        return payloadOffset;
    }

    /** Without the totals of a LAST batch. */
    public int payloadBytes() {
        return payloadBytes;
    }

    /** Totals of a LAST batch: how many batches there are, itself included; 0 of another. */
    public int batches() {
        return batches;
    }

    /** Totals of a LAST batch: sum mod 2^64 of the CRCs (as u32) of the batches before it; 0 of another. */
    public long crcSum() {
        return crcSum;
    }
}
