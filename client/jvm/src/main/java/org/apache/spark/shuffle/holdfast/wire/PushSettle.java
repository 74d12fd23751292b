package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Client to the primary of these epochs: which replicas lack what was acknowledged? The answer is a {@link PushSettled}; it comes when everything
 * of this attempt that was acknowledged before is on all replicas, or has failed there.
 */
public record PushSettle(ShuffleKey shuffle, int incarnation, int map, long attempt, List<EpochName> epochs) implements Message {
    public static PushSettle decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "PUSH_SETTLE");
        ShuffleKey shuffle = meta.shuffle();
        int incarnation = meta.u32();
        int map = meta.u32();
        long attempt = meta.u64();
        int count = meta.count(EpochName.BYTES, Limits.SETTLE_EPOCHS_MAX);
        List<EpochName> epochs = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            epochs.add(new EpochName(meta.u32(), meta.u32()));
        }
        meta.end();
        return new PushSettle(shuffle, incarnation, map, attempt, epochs);
    }

    @Override
    public int encodedBytes() {
        return ShuffleKey.BYTES + 20 + epochs.size() * EpochName.BYTES;
    }

    @Override
    public void encode(ByteBuffer to) {
        shuffle.put(to);
        to.putInt(incarnation).putInt(map).putLong(attempt).putInt(epochs.size());
        for (EpochName each : epochs) {
            to.putInt(each.partition()).putInt(each.epoch());
        }
    }
}
