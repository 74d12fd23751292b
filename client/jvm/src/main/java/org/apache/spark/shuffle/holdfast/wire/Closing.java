package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Either side, request id 0, status in the frame header: why the connection is about to be closed. Also the text of any refusal. */
public record Closing(String reason) implements Message {
    /** Never fails: the text is for people. */
    public static Closing decode(ByteBuffer data) {
        return new Closing(StandardCharsets.UTF_8.decode(data.duplicate()).toString());
    }

    @Override
    public int encodedBytes() {
        return bytes().length;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.put(bytes());
    }

    private byte[] bytes() {
        byte[] all = reason.getBytes(StandardCharsets.UTF_8);
        return all.length <= Limits.NAME_BYTES_MAX ? all : Arrays.copyOf(all, Limits.NAME_BYTES_MAX);
    }
}
