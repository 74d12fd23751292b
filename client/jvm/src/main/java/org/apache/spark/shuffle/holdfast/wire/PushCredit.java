package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** Client to worker: room for that many unanswered body bytes, please (0 gives it back). The answer, of the same layout, says how many were granted. */
public record PushCredit(int sizeBytes) implements Message {
    public static PushCredit decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "PUSH_CREDIT");
        int size = meta.u32();
        meta.end();
        if (size < 0) {
            throw meta.wrong("a window of " + Integer.toUnsignedString(size) + " bytes");
        }
        return new PushCredit(size);
    }

    @Override
    public int encodedBytes() {
        return 4;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putInt(sizeBytes);
    }
}
