package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** REDUCE_LOCATIONS: the location of every partition, by index; what registering a shuffle answers. Kept in columns, since there may be a million. Immutable. */
public final class ReduceLocations {
    private static final int ROW_BYTES = 14;
    private final int[] epochs;
    private final int[] primaries;
    private final int[] replicas;
    private final short[] hints;

    private ReduceLocations(int partitions) {
        epochs = new int[partitions];
        primaries = new int[partitions];
        replicas = new int[partitions];
        hints = new short[partitions];
    }

    public static ReduceLocations of(Location... locations) {
        ReduceLocations made = new ReduceLocations(locations.length);
        for (int i = 0; i < locations.length; i++) {
            made.set(i, locations[i].epoch(), locations[i].primary(), locations[i].replica(), locations[i].hint());
        }
        return made;
    }

    public static ReduceLocations decode(byte[] data) throws HoldfastException {
        ArrayFormat.Head head = ArrayFormat.head(data, ArrayFormat.REDUCE_LOCATIONS);
        int count = head.first();
        if (count < 1 || count > Limits.PARTITIONS_MAX) {
            throw ArrayFormat.wrong(head.kind(), Integer.toUnsignedString(count) + " partitions");
        }
        ByteBuffer rows = ArrayFormat.inflate(data, head, (long) count * ROW_BYTES);
        ReduceLocations made = new ReduceLocations(count);
        for (int i = 0; i < count; i++) {
            made.set(i, rows.getInt(), rows.getInt(), rows.getInt(), rows.getShort());
        }
        return made;
    }

    public byte[] encode() throws HoldfastException {
        ByteBuffer rows = ArrayFormat.rows(ArrayFormat.REDUCE_LOCATIONS, (long) partitions() * ROW_BYTES);
        for (int i = 0; i < partitions(); i++) {
            rows.putInt(epochs[i]).putInt(primaries[i]).putInt(replicas[i]).putShort(hints[i]);
        }
        return ArrayFormat.encode(ArrayFormat.REDUCE_LOCATIONS, 0, partitions(), 0, rows);
    }

    public int partitions() {
        return epochs.length;
    }

    public Location get(int partition) {
        return new Location(epoch(partition), primary(partition), replica(partition), hint(partition));
    }

    public int epoch(int partition) {
        return epochs[partition];
    }

    public int primary(int partition) {
        return primaries[partition];
    }

    /** {@link Limits#NO_WORKER} where there is one copy. */
    public int replica(int partition) {
        return replicas[partition];
    }

    public int hint(int partition) {
        return hints[partition] & 0xFFFF;
    }

    private void set(int partition, int epoch, int primary, int replica, int hint) {
        epochs[partition] = epoch;
        primaries[partition] = primary;
        replicas[partition] = replica;
        hints[partition] = (short) hint;
    }
}
