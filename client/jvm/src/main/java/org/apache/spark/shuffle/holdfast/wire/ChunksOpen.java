package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Client to worker: send the chunks of sealed epochs, under credit; each epoch once. With a range of maps only the batches of maps
 * [mapBegin, mapEnd) are sent (u32; all: 0 and {@link Limits#ALL_MAPS}). The answer is a {@link ChunksOpened}.
 */
public record ChunksOpen(ShuffleKey shuffle, int mapBegin, int mapEnd, int creditBytes, List<ChunkFile> files) implements Message {
    public static ChunksOpen decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "CHUNKS_OPEN");
        ShuffleKey shuffle = meta.shuffle();
        int begin = meta.u32();
        int end = meta.u32();
        int credit = meta.u32();
        int count = meta.count(ChunkFile.BYTES, Limits.STREAM_FILES_MAX);
        List<ChunkFile> files = new ArrayList<>(count);
        Set<Long> seen = new HashSet<>();
        for (int i = 0; i < count; i++) {
            ChunkFile file = new ChunkFile(meta.u32(), meta.u32(), meta.u32());
            files.add(file);
            seen.add((long) file.partition() << 32 | file.epoch() & 0xFFFF_FFFFL);
        }
        meta.end();
        if (Integer.compareUnsigned(begin, end) >= 0 || count == 0) {
            throw meta.wrong(count + " files, maps [" + Integer.toUnsignedString(begin) + ", " + Integer.toUnsignedString(end) + ")");
        }
        if (seen.size() < count) {
            throw meta.wrong("an epoch is named twice; name each once, with the first chunk to send");
        }
        return new ChunksOpen(shuffle, begin, end, credit, files);
    }

    @Override
    public int encodedBytes() {
        return ShuffleKey.BYTES + 16 + files.size() * ChunkFile.BYTES;
    }

    @Override
    public void encode(ByteBuffer to) throws HoldfastException {
        if (files.isEmpty() || files.size() > Limits.STREAM_FILES_MAX) {
            throw new HoldfastException(
                    Status.BAD_FRAME, "CHUNKS_OPEN names 1 to " + Limits.STREAM_FILES_MAX + " epochs, not " + files.size());
        }
        shuffle.put(to);
        to.putInt(mapBegin).putInt(mapEnd).putInt(creditBytes).putInt(files.size());
        for (ChunkFile each : files) {
            to.putInt(each.partition()).putInt(each.epoch()).putInt(each.firstChunk());
        }
    }
}
