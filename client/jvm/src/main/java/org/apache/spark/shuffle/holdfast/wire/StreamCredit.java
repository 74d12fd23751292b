package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** Client to worker: room for that many more body bytes; answered only if refused. STREAM_CLOSE has the same layout with credit 0. */
public record StreamCredit(long stream, int creditBytes) implements Message {
    public static StreamCredit decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "STREAM_CREDIT");
        StreamCredit credit = new StreamCredit(meta.u64(), meta.u32());
        meta.end();
        return credit;
    }

    @Override
    public int encodedBytes() {
        return 12;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putLong(stream).putInt(creditBytes);
    }
}
