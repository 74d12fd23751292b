package org.apache.spark.shuffle.holdfast.wire;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;

/** 16 random bytes drawn by the driver: one run of an application. {@code high} and {@code low} are its bytes read big-endian, as hex shows them. */
public record Instance(long high, long low) implements Serializable {
    public static final int BYTES = 16;

    /** Draw a new one. */
    public static Instance random() {
        SecureRandom random = new SecureRandom();
        return new Instance(random.nextLong(), random.nextLong());
    }

    public static Instance of(byte[] bytes) {
        if (bytes.length != BYTES) {
            throw new IllegalArgumentException("an application instance has " + BYTES + " bytes, not " + bytes.length);
        }
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        return new Instance(buffer.getLong(), buffer.getLong());
    }

    public static Instance ofHex(String hex) {
        if (!hex.matches("[0-9a-fA-F]{32}")) {
            throw new IllegalArgumentException("an application instance has 32 hex digits, not \"" + hex + "\"");
        }
        return new Instance(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    /** 32 hex digits. */
    public String hex() {
        return String.format("%016x%016x", high, low);
    }

    public byte[] bytes() {
        return ByteBuffer.allocate(BYTES).putLong(high).putLong(low).array();
    }

    /** Take the 16 bytes at the position of a buffer of either byte order. */
    static Instance take(ByteBuffer from) {
        boolean little = from.order() == ByteOrder.LITTLE_ENDIAN;
        long high = from.getLong();
        long low = from.getLong();
        return little ? new Instance(Long.reverseBytes(high), Long.reverseBytes(low)) : new Instance(high, low);
    }

    /** Put the 16 bytes at the position of a buffer of either byte order. */
    void put(ByteBuffer to) {
        boolean little = to.order() == ByteOrder.LITTLE_ENDIAN;
        to.putLong(little ? Long.reverseBytes(high) : high);
        to.putLong(little ? Long.reverseBytes(low) : low);
    }

    @Override
    public String toString() {
        return hex();
    }
}
