package org.apache.spark.shuffle.holdfast.wire;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdCompressCtx;
import com.github.luben.zstd.ZstdDecompressCtx;
import com.github.luben.zstd.ZstdException;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * zstd contexts of this JVM. They hold native memory and have no finalizer, so they cannot hang on threads that come and go: a
 * fixed number of slots keeps them, a thread takes what its slot holds and puts it back, and what finds its slot taken is closed.
 * Arrays are compressed to arrays, since that is what all supported versions of zstd-jni can do. Called by {@link Codec} alone.
 */
final class ZstdContexts {
    private static final int SLOTS = 64;
    /** Scratch arrays above this are not kept. */
    private static final int SCRATCH_KEPT_MAX = 2 * Limits.MIB;
    private static final AtomicReferenceArray<ZstdContexts> KEPT = new AtomicReferenceArray<>(SLOTS);

    private final ZstdCompressCtx compressor = new ZstdCompressCtx().setLevel(Codec.USUAL_LEVEL).setContentSize(true);
    private final ZstdDecompressCtx decompressor = new ZstdDecompressCtx();
    private int level = Codec.USUAL_LEVEL;
    private byte[] scratch = new byte[64 * Limits.KIB];

    private ZstdContexts() {}

    static int bound(int n) {
        return (int) Zstd.compressBound(n);
    }

    /** Compress into {@code dst} at an absolute offset; return how many bytes that took. */
    static int compress(byte[] src, int off, int len, ByteBuffer dst, int at, int bytesMax, int level) {
        ZstdContexts mine = take();
        try {
            mine.level(level);
            if (dst.hasArray()) {
                return mine.compressor.compressByteArray(dst.array(), dst.arrayOffset() + at, bytesMax, src, off, len);
            }
            byte[] scratch = mine.scratch(bound(len));
            int written = mine.compressor.compressByteArray(scratch, 0, scratch.length, src, off, len);
            dst.put(at, scratch, 0, written);
            return written;
        } finally {
            mine.giveBack();
        }
    }

    /** Decompress what is between {@code at} and the limit into the first {@code size} bytes; return how many there were. */
    static int decompress(ByteBuffer payload, int at, byte[] original, int size) throws HoldfastException {
        ZstdContexts mine = take();
        int length = payload.limit() - at;
        try {
            if (payload.hasArray()) {
                return mine.decompressor.decompressByteArray(
                        original, 0, size, payload.array(), payload.arrayOffset() + at, length);
            }
            byte[] scratch = mine.scratch(length);
            payload.get(at, scratch, 0, length);
            return mine.decompressor.decompressByteArray(original, 0, size, scratch, 0, length);
        } catch (ZstdException error) {
            throw new HoldfastException(Status.CORRUPT, "a payload cannot be decompressed: " + error.getMessage(), error);
        } finally {
            mine.giveBack();
        }
    }

    private void level(int wanted) {
        if (level != wanted) {
            compressor.setLevel(wanted);
            level = wanted;
        }
    }

    private byte[] scratch(int size) {
        if (scratch.length < size) {
            scratch = new byte[size + (size >> 2)];
        }
        return scratch;
    }

    private static int slot() {
        return (int) Thread.currentThread().getId() & SLOTS - 1;
    }

    private static ZstdContexts take() {
        ZstdContexts kept = KEPT.getAndSet(slot(), null);
        return kept != null ? kept : new ZstdContexts();
    }

    private void giveBack() {
        if (scratch.length > SCRATCH_KEPT_MAX) {
            scratch = new byte[64 * Limits.KIB];
        }
        if (!KEPT.compareAndSet(slot(), null, this)) {
            compressor.close();
            decompressor.close();
        }
    }
}
