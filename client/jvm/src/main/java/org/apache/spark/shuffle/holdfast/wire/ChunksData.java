package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * Worker to client: the next bytes of one chunk, a response to CHUNKS_OPEN's request id. {@code sequence} counts the stream's frames
 * from 0, {@code file} is an index into {@link ChunksOpen#files}, {@code leftBytes} are the bytes of this chunk behind this body.
 */
public record ChunksData(long stream, int sequence, int file, int chunk, int flags, int leftBytes) implements Message {
    /** Flag: nothing more comes on this stream. */
    public static final int END = 1;
    /** Flag: the chunk ends with this body. */
    public static final int END_OF_CHUNK = 2;

    public static ChunksData decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "CHUNKS_DATA");
        long stream = meta.u64();
        int sequence = meta.u32();
        int file = meta.u32();
        int chunk = meta.u32();
        int left = meta.u32();
        int flags = meta.u8();
        meta.end();
        return new ChunksData(stream, sequence, file, chunk, flags, left);
    }

    public boolean end() {
        return (flags & END) != 0;
    }

    public boolean endOfChunk() {
        return (flags & END_OF_CHUNK) != 0;
    }

    @Override
    public int encodedBytes() {
        return 25;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putLong(stream).putInt(sequence).putInt(file).putInt(chunk).putInt(leftBytes).put((byte) flags);
    }
}
