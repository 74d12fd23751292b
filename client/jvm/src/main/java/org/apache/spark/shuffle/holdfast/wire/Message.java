package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The meta section of a frame. Every message has a static {@code decode(ByteBuffer)} beside: it takes what is between position and
 * limit (the buffer stays as it is), checks lengths before it allocates, refuses trailing bytes, and throws BAD_FRAME.
 */
public interface Message {
    /** How many bytes {@link #encode(ByteBuffer)} puts. */
    int encodedBytes();

    /** Put the bytes at the position of a little-endian buffer. BAD_FRAME for what no message can hold. */
    void encode(ByteBuffer to) throws HoldfastException;

    /** The bytes in a heap buffer of their own, from 0 to the limit. */
    default ByteBuffer encode() throws HoldfastException {
        ByteBuffer to = ByteBuffer.allocate(encodedBytes()).order(ByteOrder.LITTLE_ENDIAN);
        encode(to);
        return to.flip();
    }
}
