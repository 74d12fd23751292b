package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** REDUCE_LOCATIONS: the location of every partition, by index; what registering a shuffle answers. Kept in columns, since there may be a million. Immutable. */
public final class ReduceLocations {
    private final int[] epochs;
    /** By copy, {@link Limits#NO_WORKER} where there is none. */
    private final int[][] workers;
    private final short[] hints;

    private ReduceLocations(int partitions, int copies) {
        epochs = new int[partitions];
        workers = new int[copies][partitions];
        hints = new short[partitions];
    }

    public static ReduceLocations of(Location... locations) {
        int copies = Arrays.stream(locations).mapToInt(each -> each.workers().size()).max().orElse(1);
        ReduceLocations made = new ReduceLocations(locations.length, copies);
        for (int i = 0; i < locations.length; i++) {
            List<Integer> there = locations[i].workers();
            made.epochs[i] = locations[i].epoch();
            made.hints[i] = (short) locations[i].hint();
            for (int copy = 0; copy < copies; copy++) {
                made.workers[copy][i] = copy < there.size() ? there.get(copy) : Limits.NO_WORKER;
            }
        }
        return made;
    }

    public static ReduceLocations decode(byte[] data) throws HoldfastException {
        ArrayFormat.Head head = ArrayFormat.head(data, ArrayFormat.REDUCE_LOCATIONS);
        int count = head.first();
        if (count < 1 || count > Limits.PARTITIONS_MAX) {
            throw ArrayFormat.wrong(head.kind(), Integer.toUnsignedString(count) + " partitions");
        }
        int copies = ArrayFormat.copies(head);
        ByteBuffer rows = ArrayFormat.inflate(data, head, (long) count * rowBytes(copies));
        ReduceLocations made = new ReduceLocations(count, copies);
        for (int i = 0; i < count; i++) {
            made.epochs[i] = rows.getInt();
            for (int copy = 0; copy < copies; copy++) {
                made.workers[copy][i] = rows.getInt();
            }
            made.hints[i] = rows.getShort();
            ArrayFormat.placed(head.kind(), made.workers, i);
        }
        return made;
    }

    public byte[] encode() throws HoldfastException {
        ByteBuffer rows = ArrayFormat.rows(ArrayFormat.REDUCE_LOCATIONS, (long) partitions() * rowBytes(workers.length));
        for (int i = 0; i < partitions(); i++) {
            rows.putInt(epochs[i]);
            for (int[] column : workers) {
                rows.putInt(column[i]);
            }
            rows.putShort(hints[i]);
        }
        return ArrayFormat.encode(ArrayFormat.REDUCE_LOCATIONS, workers.length, partitions(), 0, rows);
    }

    public int partitions() {
        return epochs.length;
    }

    public Location get(int partition) {
        List<Integer> there = new ArrayList<>(workers.length);
        for (int[] column : workers) {
            if (column[partition] != Limits.NO_WORKER) {
                there.add(column[partition]);
            }
        }
        return new Location(epochs[partition], there, hints[partition] & 0xFFFF);
    }

    private static int rowBytes(int copies) {
        return 6 + 4 * copies;
    }
}
