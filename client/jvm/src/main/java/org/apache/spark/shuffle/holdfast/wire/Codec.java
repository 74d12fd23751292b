package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;

/**
 * How payloads are compressed: u32 length of the original, then one LZ4 block or one zstd frame (docs/internals/protocol.md). The codecs of rows have another one
 * compress the {@link RowPlanes} of the original. Thread-safe; zstd contexts are kept in {@link ZstdContexts}.
 */
public enum Codec {
    NONE(0, null) {
        @Override
        public int bound(int n) {
            return n;
        }

        @Override
        public int compress(byte[] src, int off, int len, ByteBuffer dst, int level) {
            dst.put(src, off, len);
            return len;
        }

        @Override
        public int originalBytes(ByteBuffer payload) {
            return payload.remaining();
        }

        @Override
        void undo(ByteBuffer payload, byte[] original, int size) {
            payload.get(payload.position(), original, 0, size);
        }
    },
    /** The engine's own: passed through, and neither made nor undone here. */
    ENGINE(3, null),
    LZ4(1, null) {
        @Override
        boolean possible(ByteBuffer payload, int at, int size) {
            return size <= (long) LZ4_RATIO_MAX * (payload.limit() - at);
        }

        @Override
        public int bound(int n) {
            return LENGTH_BYTES + Lz4.COMPRESSOR.maxCompressedLength(n);
        }

        @Override
        int block(byte[] src, int off, int len, ByteBuffer dst, int at, int bytesMax, int level) {
            if (dst.hasArray()) {
                return Lz4.COMPRESSOR.compress(src, off, len, dst.array(), dst.arrayOffset() + at, bytesMax);
            }
            return Lz4.COMPRESSOR.compress(ByteBuffer.wrap(src), off, len, dst, at, bytesMax);
        }

        @Override
        void undo(ByteBuffer payload, byte[] original, int size) throws HoldfastException {
            int at = payload.position() + LENGTH_BYTES;
            int got;
            try {
                if (payload.hasArray()) {
                    got = Lz4.DECOMPRESSOR.decompress(
                            payload.array(), payload.arrayOffset() + at, payload.limit() - at, original, 0, size);
                } else {
                    got = Lz4.DECOMPRESSOR.decompress(payload, at, payload.limit() - at, ByteBuffer.wrap(original), 0, size);
                }
            } catch (LZ4Exception error) {
                throw new HoldfastException(Status.CORRUPT, "a payload cannot be decompressed: " + error.getMessage(), error);
            }
            checkSize(got, size);
        }
    },
    ZSTD(2, null) {
        @Override
        boolean possible(ByteBuffer payload, int at, int size) {
            return ZstdFrame.possible(payload, at, size);
        }

        @Override
        public int bound(int n) {
            return LENGTH_BYTES + ZstdContexts.bound(n);
        }

        @Override
        int block(byte[] src, int off, int len, ByteBuffer dst, int at, int bytesMax, int level) {
            return ZstdContexts.compress(src, off, len, dst, at, bytesMax, level);
        }

        @Override
        void undo(ByteBuffer payload, byte[] original, int size) throws HoldfastException {
            checkSize(ZstdContexts.decompress(payload, payload.position() + LENGTH_BYTES, original, size), size);
        }
    },
    LZ4_ROWS(5, LZ4),
    ZSTD_ROWS(6, ZSTD);

    /** Default level of zstd: as spark.io.compression.zstd.level by default. */
    public static final int USUAL_LEVEL = 1;

    private static final int LENGTH_BYTES = 4;
    /** A byte of an LZ4 block decodes to so many bytes at most. */
    private static final int LZ4_RATIO_MAX = 255;
    private static final byte[] EMPTY = new byte[0];

    /** Loaded when first used: without compression the native library of lz4 is not needed. */
    private static final class Lz4 {
        static final LZ4Compressor COMPRESSOR = LZ4Factory.fastestInstance().fastCompressor();
        static final LZ4SafeDecompressor DECOMPRESSOR = LZ4Factory.fastestInstance().safeDecompressor();
    }

    private static final Codec[] ALL = values();

    private final int number;
    /** What compresses the planes of rows; null of a codec that takes any bytes, as they are. */
    private final Codec ofPlanes;

    Codec(int number, Codec ofPlanes) {
        this.number = number;
        this.ofPlanes = ofPlanes;
    }

    /** The codec of a number in a batch's flags. BAD_REQUEST for {@link #ENGINE}, which only the engine can undo. */
    public static Codec of(int number) throws HoldfastException {
        for (Codec each : ALL) {
            if (each.number == number && each != ENGINE) {
                return each;
            }
        }
        throw new HoldfastException(Status.BAD_REQUEST,
                "this payload was compressed by the engine (codec " + number + "); only the engine can undo it");
    }

    /** Its number in a batch's flags. */
    public final int number() {
        return number;
    }

    /** The same without planes. */
    public final Codec asTheyAre() {
        return ofPlanes == null ? this : ofPlanes;
    }

    /** The one that compresses the planes of rows with this one; none for {@link #NONE}. */
    public final Codec ofRows() {
        for (Codec each : ALL) {
            if (each.ofPlanes == this) {
                return each;
            }
        }
        return NONE;
    }

    /** The most bytes that {@link #compress} or {@link #compressRows} may write for {@code n} bytes. */
    public int bound(int n) {
        return ofPlanes.bound(n + RowPlanes.HEAD_BYTES);
    }

    /**
     * As {@link #compress}, of rows that have {@code words} words of fixed part each; false, and nothing was put, where they are fewer than
     * {@link RowPlanes#ROWS_MIN}, or their planes would be too long. Only for codecs of rows.
     */
    public final boolean compressRows(byte[] src, int off, int len, int words, ByteBuffer dst, int level) {
        if (len > Limits.ORIGINAL_BYTES_MAX - RowPlanes.HEAD_BYTES || !RowPlanes.possible(src, off, len)) {
            return false;
        }
        byte[] planes = ByteArrays.SHARED.take(len + RowPlanes.HEAD_BYTES);
        ofPlanes.compress(planes, 0, RowPlanes.turn(src, off, len, words, planes), dst, level);
        ByteArrays.SHARED.give(planes);
        return true;
    }

    /**
     * Put {@code len} bytes, compressed, at the position of {@code dst} (little endian, heap or direct), which has
     * {@link #bound} of them left, and return how many bytes that took; the position is behind them.
     *
     * @param level of zstd; the other codecs have none
     */
    public int compress(byte[] src, int off, int len, ByteBuffer dst, int level) {
        int at = dst.position();
        if (dst.order() != ByteOrder.LITTLE_ENDIAN || len > Limits.ORIGINAL_BYTES_MAX || dst.remaining() < bound(len)) {
            throw new IllegalArgumentException(len + " bytes do not surely fit into " + dst + ", or it is not little endian");
        }
        dst.putInt(at, len);
        int written = LENGTH_BYTES + block(src, off, len, dst, at + LENGTH_BYTES, dst.remaining() - LENGTH_BYTES, level);
        dst.position(at + written);
        return written;
    }

    /**
     * The length that the payload between position and limit has uncompressed; CORRUPT if it claims more than 64 MiB, or more than can be in so many
     * bytes: no memory is taken for that.
     */
    public int originalBytes(ByteBuffer payload) throws HoldfastException {
        if (ofPlanes != null) {
            return RowPlanes.rowBytes(ofPlanes.originalBytes(payload));
        }
        if (payload.remaining() < LENGTH_BYTES) {
            throw new HoldfastException(Status.CORRUPT, "a compressed payload without its length");
        }
        int size = payload.getInt(payload.position());
        if (payload.order() != ByteOrder.LITTLE_ENDIAN) {
            size = Integer.reverseBytes(size);
        }
        if (size < 0 || size > Limits.ORIGINAL_BYTES_MAX) {
            throw new HoldfastException(Status.CORRUPT, "a compressed payload claims " + Integer.toUnsignedString(size)
                    + " bytes, at most " + Limits.ORIGINAL_BYTES_MAX + " are possible");
        }
        if (!possible(payload, payload.position() + LENGTH_BYTES, size)) {
            throw new HoldfastException(Status.CORRUPT, "a compressed payload claims " + size + " bytes, which "
                    + (payload.remaining() - LENGTH_BYTES) + " bytes of " + name() + " cannot be");
        }
        return size;
    }

    /** Whether what is between {@code at} and the limit can be {@code size} bytes; only for codecs that compress. */
    boolean possible(ByteBuffer payload, int at, int size) {
        throw new UnsupportedOperationException(name());
    }

    /**
     * Undo {@link #compress} of the payload between position and limit; the original is in the first {@link #originalBytes} bytes
     * of the answer, which is {@code reuse} if that is long enough and a longer array otherwise. Throws CORRUPT.
     */
    public final byte[] decompress(ByteBuffer payload, byte[] reuse) throws HoldfastException {
        int size = originalBytes(payload);
        byte[] original = reuse != null && reuse.length >= size ? reuse : size == 0 ? EMPTY : new byte[roundUp(size)];
        undo(payload, original, size);
        return original;
    }

    /** One block or frame of compressed bytes, absolute; only for codecs that compress. */
    int block(byte[] src, int off, int len, ByteBuffer dst, int at, int bytesMax, int level) {
        throw new UnsupportedOperationException(name());
    }

    void undo(ByteBuffer payload, byte[] original, int size) throws HoldfastException {
        byte[] planes = ofPlanes.decompress(payload, ByteArrays.SHARED.take(size + RowPlanes.HEAD_BYTES));
        RowPlanes.back(planes, size, original);
        ByteArrays.SHARED.give(planes);
    }

    /** Arrays that are reused grow in steps, or each payload a little longer than the last would cost a new one. */
    private static int roundUp(int size) {
        return size <= 4096 ? 4096 : size + (size >> 2);
    }

    private static void checkSize(int got, int claimed) throws HoldfastException {
        if (got != claimed) {
            throw new HoldfastException(Status.CORRUPT, "a payload claims " + claimed + " bytes and holds " + got);
        }
    }
}
