package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Takes numbers, strings and arrays off a meta section, checking lengths first, and puts strings; {@code common/formats/meta.py}. */
final class Meta {
    private final ByteBuffer data;
    private final String what;

    Meta(ByteBuffer data, String what) {
        this.data = data.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        this.what = what;
    }

    HoldfastException wrong(String reason) {
        return new HoldfastException(Status.BAD_FRAME, what + ": " + reason);
    }

    /** Make sure that so many bytes are there. */
    void need(long bytes) throws HoldfastException {
        if (data.remaining() < bytes) {
            throw wrong(data.limit() + " bytes are too few");
        }
    }

    int u8() throws HoldfastException {
        need(1);
        return data.get() & 0xFF;
    }

    int u16() throws HoldfastException {
        need(2);
        return data.getShort() & 0xFFFF;
    }

    int u32() throws HoldfastException {
        need(4);
        return data.getInt();
    }

    long u64() throws HoldfastException {
        need(8);
        return data.getLong();
    }

    /** 16 bytes that are compared with others. */
    Instance sixteen() throws HoldfastException {
        need(Instance.BYTES);
        return Instance.take(data);
    }

    ShuffleKey shuffle() throws HoldfastException {
        need(ShuffleKey.BYTES);
        return new ShuffleKey(Instance.take(data), data.getInt(), data.getInt(), data.getLong());
    }

    byte[] blob(int bytesMax) throws HoldfastException {
        int size = u16();
        if (size > bytesMax) {
            throw wrong("a field of " + size + " bytes, at most " + bytesMax + " are allowed");
        }
        need(size);
        byte[] value = new byte[size];
        data.get(value);
        return value;
    }

    String text() throws HoldfastException {
        try {
            CharBuffer text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(blob(Limits.NAME_BYTES_MAX)));
            return text.toString();
        } catch (CharacterCodingException error) {
            throw wrong("text is not UTF-8");
        }
    }

    /** The count of an array whose items, all of them there, have {@code itemBytes} each. */
    int count(int itemBytes, int countMax) throws HoldfastException {
        int count = u32();
        if (count < 0 || count > countMax) {
            throw wrong("an array of " + Integer.toUnsignedString(count) + ", at most " + countMax + " are allowed");
        }
        need((long) count * itemBytes);
        return count;
    }

    void end() throws HoldfastException {
        if (data.hasRemaining()) {
            throw wrong(data.remaining() + " bytes too many");
        }
    }

    /** The bytes of a string field; BAD_FRAME if it is too long. */
    static byte[] textBytes(String text) throws HoldfastException {
        return checkBlob(text.getBytes(StandardCharsets.UTF_8), Limits.NAME_BYTES_MAX);
    }

    static byte[] checkBlob(byte[] value, int bytesMax) throws HoldfastException {
        if (value.length > bytesMax) {
            throw new HoldfastException(
                    Status.BAD_FRAME, "a field of " + value.length + " bytes, at most " + bytesMax + " are allowed");
        }
        return value;
    }

    static void putBlob(ByteBuffer to, byte[] value) {
        to.putShort((short) value.length).put(value);
    }
}
