package org.apache.spark.shuffle.holdfast;

import java.io.OutputStream;
import java.util.Arrays;

/** An unsynchronised stream into an array that can be looked at and begun again. */
final class GrowingBytes extends OutputStream {
    private static final int KEPT_BYTES_MAX = 1 << 20;
    private static final int FIRST_BYTES = 4096;

    private byte[] bytes = new byte[FIRST_BYTES];
    private int count;

    @Override
    public void write(int value) {
        ensure(1);
        bytes[count++] = (byte) value;
    }

    @Override
    public void write(byte[] source, int offset, int length) {
        ensure(length);
        System.arraycopy(source, offset, bytes, count, length);
        count += length;
    }

    byte[] bytes() {
        return bytes;
    }

    int count() {
        return count;
    }

    /** Begins again; the array of an unusually long record is not kept. */
    void reset() {
        count = 0;
        if (bytes.length > KEPT_BYTES_MAX) {
            bytes = new byte[FIRST_BYTES];
        }
    }

    private void ensure(int more) {
        int needed = Math.addExact(count, more);
        if (needed > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(needed, (int) Math.min(Integer.MAX_VALUE - 8L, bytes.length * 2L)));
        }
    }
}
