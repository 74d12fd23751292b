package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** Worker to client: who answers. A later incarnation than expected means that the worker restarted. */
public record HelloOk(int version, int worker, int incarnation) implements Message {
    public static HelloOk decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "HELLO answer");
        HelloOk ok = new HelloOk(meta.u16(), meta.u32(), meta.u32());
        meta.end();
        return ok;
    }

    @Override
    public int encodedBytes() {
        return 10;
    }

    @Override
    public void encode(ByteBuffer to) {
        to.putShort((short) version).putInt(worker).putInt(incarnation);
    }
}
