package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * What a frame of zstd says of itself, looked at before any memory is taken for what it claims to hold. The twin of client/core/read/compressed.py. Pure.
 */
final class ZstdFrame {
    private static final int MAGIC = 0xFD2F_B528;
    private static final int BLOCK_BYTES_MAX = 128 * Limits.KIB;
    private static final int SINGLE_SEGMENT = 0x20;
    private static final int CHECKSUM = 0x04;
    private static final int RAW = 0;
    private static final int RLE = 1;
    private static final int RESERVED = 3;
    private static final int[] DICTIONARY_BYTES = {0, 1, 2, 4};
    private static final int[] SIZE_BYTES = {0, 2, 4, 8};

    private ZstdFrame() {}

    /** Whether what is between {@code from} and the limit is one frame and nothing else, which says that it holds {@code size} bytes and may do so. */
    static boolean possible(ByteBuffer payload, int from, int size) {
        int end = payload.limit();
        if (end - from < 6 || little(payload, from, 4) != (MAGIC & 0xFFFF_FFFFL)) {
            return false;
        }
        int descriptor = payload.get(from + 4) & 0xFF;
        boolean single = (descriptor & SINGLE_SEGMENT) != 0;
        long at = from + 5L + (single ? 0 : 1) + DICTIONARY_BYTES[descriptor & 3];
        int width = descriptor >> 6 == 0 && single ? 1 : SIZE_BYTES[descriptor >> 6];
        if (width == 0 || at + width > end || little(payload, (int) at, width) + (width == 2 ? 256 : 0) != size) {
            return false;
        }
        at += width;
        long most = 0;
        for (boolean last = false; !last;) {
            if (at + 3 > end) {
                return false;
            }
            int head = (int) little(payload, (int) at, 3);
            last = (head & 1) != 0;
            int kind = head >> 1 & 3;
            int length = head >> 3;
            if (kind == RESERVED || length > BLOCK_BYTES_MAX) {
                return false;
            }
            at += 3 + (kind == RLE ? 1 : length);
            most += kind == RAW || kind == RLE ? length : BLOCK_BYTES_MAX;
        }
        return at + ((descriptor & CHECKSUM) != 0 ? 4 : 0) == end && most >= size;
    }

    /** Negative where the highest bit of eight bytes is set, which no size is. */
    private static long little(ByteBuffer from, int at, int bytes) {
        long value = 0;
        for (int each = bytes - 1; each >= 0; each--) {
            value = value << 8 | from.get(at + each) & 0xFF;
        }
        return value;
    }
}
