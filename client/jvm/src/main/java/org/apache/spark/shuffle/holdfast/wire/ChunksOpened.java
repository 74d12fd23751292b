package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** Worker to client. {@code chunks} has how many chunks each file has in all, in the order asked for. */
public record ChunksOpened(long stream, long totalBytes, int[] chunks) implements Message {
    public static ChunksOpened decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "CHUNKS_OPEN answer");
        long stream = meta.u64();
        long total = meta.u64();
        int[] chunks = new int[meta.count(4, Limits.STREAM_FILES_MAX)];
        for (int i = 0; i < chunks.length; i++) {
            chunks[i] = meta.u32();
        }
        meta.end();
        return new ChunksOpened(stream, total, chunks);
    }

    @Override
    public int encodedBytes() {
        return 20 + 4 * chunks.length;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putLong(stream).putLong(totalBytes).putInt(chunks.length);
        for (int each : chunks) {
            to.putInt(each);
        }
    }
}
