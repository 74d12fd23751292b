package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * Worker to client: identity of the worker. A later incarnation than expected means that the worker restarted. {@code uid} is what the worker
 * is whatever number it has, as hex; masters compare it.
 */
public record HelloOk(int version, int worker, int incarnation, Instance uid) implements Message {
    public static HelloOk decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "HELLO answer");
        HelloOk ok = new HelloOk(meta.u16(), meta.u32(), meta.u32(), meta.sixteen());
        meta.end();
        return ok;
    }

    @Override
    public int encodedBytes() {
        return 10 + Instance.BYTES;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putShort((short) version).putInt(worker).putInt(incarnation);
        uid.put(to);
    }
}
