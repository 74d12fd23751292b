package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * Worker to client: all batches of a push are kept at the level asked for, except those named here. {@code creditBytes} is from now
 * on how many body bytes this connection may have unanswered; 0 says ask (PUSH_CREDIT). {@code indices} and {@code statuses} run in
 * parallel, ascending; SOFT_SPLIT and SLOW_DOWN are kept all the same. {@code failed} has bit r set if replica r of the push did not keep
 * a batch that is REPLICA_FAILED, {@code behind} if it lacks something that is acknowledged: ask with PUSH_SETTLE.
 */
public record PushAnswer(int creditBytes, int failed, int behind, int[] indices, int[] statuses) implements Message {
    private static final int[] NONE = {};

    public static PushAnswer decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "PUSH answer");
        int credit = meta.u32();
        int failed = meta.u8();
        int behind = meta.u8();
        int count = meta.count(4, Limits.PUSH_BATCHES_MAX);
        int[] indices = count == 0 ? NONE : new int[count];
        int[] statuses = count == 0 ? NONE : new int[count];
        for (int i = 0; i < count; i++) {
            indices[i] = meta.u16();
            statuses[i] = meta.u16();
        }
        meta.end();
        if (credit < 0) {
            throw meta.wrong("a window of " + Integer.toUnsignedString(credit) + " bytes");
        }
        return new PushAnswer(credit, failed, behind, indices, statuses);
    }

    @Override
    public int encodedBytes() {
        return 10 + 4 * indices.length;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putInt(creditBytes).put((byte) failed).put((byte) behind).putInt(indices.length);
        for (int i = 0; i < indices.length; i++) {
            to.putShort((short) indices[i]).putShort((short) statuses[i]);
        }
    }
}
