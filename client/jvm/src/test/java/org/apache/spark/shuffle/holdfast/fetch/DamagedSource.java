package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.spark.shuffle.holdfast.wire.Codec;

/** A payload that cannot be undone although its checksum was right, and good ones behind it. */
public final class DamagedSource implements BatchSource {
    private static final int BYTES = 2_000;

    /** How often it was closed. */
    public int closed;

    private boolean begun;

    @Override
    public FetchedBatch next() {
        FetchedBatch made = new FetchedBatch();
        made.codec = (begun ? Codec.NONE : Codec.LZ4_ROWS).number();
        made.payload = ByteBuffer.wrap(new byte[BYTES]).order(ByteOrder.LITTLE_ENDIAN);
        begun = true;
        return made;
    }

    @Override
    public void stop() {
        throw new AssertionError("nobody else reads");
    }

    @Override
    public void close() {
        closed++;
    }
}
