package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * CRC-32C of batches, seeded with where they belong (docs/internals/protocol.md, "Batch"): application instance, shuffle, generation,
 * state, partition. {@link CRC32C} has no start value, so the 36 seed bytes go first, together with the header.
 *
 * <p>Allocates nothing per batch. Not thread-safe: one per writer or reader. The position and limit of a buffer that is
 * given are moved while it is read and are as before afterwards.
 */
public final class SeededCrc {
    private static final int SEED_BYTES = ShuffleKey.BYTES + 4;
    private static final int PARTITION_AT = ShuffleKey.BYTES;
    /** Header bytes that the checksum covers. */
    private static final int HEAD_BYTES = 24;

    private final CRC32C crc = new CRC32C();
    /** Seed, then a batch header's first 24 bytes: one update for both. */
    private final byte[] lead = new byte[SEED_BYTES + HEAD_BYTES];

    public SeededCrc(ShuffleKey shuffle) {
        shuffle.put(ByteBuffer.wrap(lead).order(ByteOrder.LITTLE_ENDIAN));
    }

    /** The CRC of a batch of {@code partition} whose header is at {@code offset}, with {@code payloadBytes} bytes behind it. */
    public int ofBatch(int partition, ByteBuffer data, int offset, int payloadBytes) {
        seed(partition);
        data.get(offset, lead, SEED_BYTES, HEAD_BYTES);
        crc.reset();
        crc.update(lead, 0, lead.length);
        update(crc, data, offset + BatchHeader.SIZE, payloadBytes);
        return (int) crc.getValue();
    }

    /** The seeded CRC of any bytes: those between position and limit. */
    public int of(int partition, ByteBuffer bytes) {
        seed(partition);
        crc.reset();
        crc.update(lead, 0, SEED_BYTES);
        update(crc, bytes, bytes.position(), bytes.remaining());
        return (int) crc.getValue();
    }

    /** The seeded CRC of two pieces that follow one another, each between position and limit. */
    public int of(int partition, ByteBuffer first, ByteBuffer second) {
        seed(partition);
        crc.reset();
        crc.update(lead, 0, SEED_BYTES);
        update(crc, first, first.position(), first.remaining());
        update(crc, second, second.position(), second.remaining());
        return (int) crc.getValue();
    }

    /** Feed {@code length} bytes at {@code offset} to a checksum; position and limit stay as they are. */
    static void update(CRC32C crc, ByteBuffer data, int offset, int length) {
        if (data.hasArray()) {
            crc.update(data.array(), data.arrayOffset() + offset, length);
            return;
        }
        int position = data.position();
        int limit = data.limit();
        try {
            data.limit(offset + length).position(offset);
            crc.update(data);
        } finally {
            data.limit(limit).position(position);
        }
    }

    private void seed(int partition) {
        lead[PARTITION_AT] = (byte) partition;
        lead[PARTITION_AT + 1] = (byte) (partition >> 8);
        lead[PARTITION_AT + 2] = (byte) (partition >> 16);
        lead[PARTITION_AT + 3] = (byte) (partition >> 24);
    }
}
