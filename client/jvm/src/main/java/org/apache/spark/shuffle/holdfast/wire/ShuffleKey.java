package org.apache.spark.shuffle.holdfast.wire;

import java.io.Serializable;
import java.nio.ByteBuffer;

/** One generation of one shuffle of one application instance. */
public record ShuffleKey(Instance instance, int shuffle, int generation) implements Serializable {
    /** instance 16 bytes, shuffle u32, generation u32. */
    public static final int BYTES = Instance.BYTES + 8;

    /** The same shuffle in another generation. */
    public ShuffleKey withGeneration(int other) {
        return new ShuffleKey(instance, shuffle, other);
    }

    void put(ByteBuffer to) {
        instance.put(to);
        to.putInt(shuffle).putInt(generation);
    }

    /** Short, for messages: as Python writes it. */
    @Override
    public String toString() {
        return instance.hex().substring(0, 8) + "/" + Integer.toUnsignedString(shuffle) + "."
                + Integer.toUnsignedString(generation);
    }
}
