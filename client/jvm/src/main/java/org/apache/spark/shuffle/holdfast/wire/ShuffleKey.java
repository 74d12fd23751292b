package org.apache.spark.shuffle.holdfast.wire;

import java.io.Serializable;
import java.nio.ByteBuffer;

/**
 * One generation of one shuffle of one application instance, as the state of the masters with this id registered it: after a
 * restore of the masters the same numbers may be given to other data. State 0, in calls to the masters: whichever they have.
 */
public record ShuffleKey(Instance instance, int shuffle, int generation, long state) implements Serializable {
    /** instance 16 bytes, shuffle u32, generation u32, state u64. */
    public static final int BYTES = Instance.BYTES + 16;

    /** The key for callers that do not know the state. */
    public ShuffleKey(Instance instance, int shuffle, int generation) {
        this(instance, shuffle, generation, 0);
    }

    /** The same shuffle in another generation, of whatever state. */
    public ShuffleKey withGeneration(int other) {
        return new ShuffleKey(instance, shuffle, other);
    }

    /** The same numbers, as that state gave them. */
    public ShuffleKey withState(long other) {
        return new ShuffleKey(instance, shuffle, generation, other);
    }

    void put(ByteBuffer to) {
        instance.put(to);
        to.putInt(shuffle).putInt(generation).putLong(state);
    }

    /** Its name, with how the instance begins: as Python writes it ({@code common/ids.py}). */
    @Override
    public String toString() {
        String name = instance.hex().substring(0, 8) + "/" + Integer.toUnsignedString(shuffle);
        return generation == 0 ? name : name + "/" + Integer.toUnsignedString(generation);
    }
}
