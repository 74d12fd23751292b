package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** Worker to client: of the epochs that were named these copies are incomplete, and all others have everything that was acknowledged to the attempt. */
public record PushSettled(List<IncompleteCopy> incomplete) implements Message {
    public static PushSettled decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "PUSH_SETTLE answer");
        int count = meta.count(IncompleteCopy.BYTES, Limits.SETTLE_EPOCHS_MAX * (Limits.COPIES_MAX - 1));
        List<IncompleteCopy> found = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            found.add(new IncompleteCopy(meta.u32(), meta.u32(), meta.u32()));
        }
        meta.end();
        return new PushSettled(found);
    }

    @Override
    public int encodedBytes() {
        return 4 + incomplete.size() * IncompleteCopy.BYTES;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putInt(incomplete.size());
        for (IncompleteCopy each : incomplete) {
            to.putInt(each.partition()).putInt(each.epoch()).putInt(each.worker());
        }
    }
}
