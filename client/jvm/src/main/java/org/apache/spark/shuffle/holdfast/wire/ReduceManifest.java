package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/**
 * REDUCE_MANIFEST: the final word on every epoch of a generation, sorted by (partition, epoch). Kept in columns, since there may be
 * millions: {@link #first} says where a partition's epochs begin, {@link #get} makes a record of a row. Immutable.
 */
public final class ReduceManifest {
    private static final int ROW_BYTES = 36;
    private final int partitions;
    /** Row of the first epoch of every partition, and the number of rows. */
    private final int[] firsts;
    private final int[] rowPartitions;
    private final int[] epochs;
    private final int[][] workers;
    private final short[][] statuses;
    private final long[][] sizes;

    private ReduceManifest(int partitions, int rows) {
        this.partitions = partitions;
        firsts = new int[partitions + 1];
        rowPartitions = new int[rows];
        epochs = new int[rows];
        workers = new int[2][rows];
        statuses = new short[2][rows];
        sizes = new long[2][rows];
    }

    /** From epochs in the order of the format. BAD_FRAME if they are not. */
    public static ReduceManifest of(int partitions, EpochResult... epochs) throws HoldfastException {
        ReduceManifest made = new ReduceManifest(partitions, epochs.length);
        for (int row = 0; row < epochs.length; row++) {
            EpochResult one = epochs[row];
            made.begin(row, one.partition(), one.epoch());
            made.set(0, row, one.primary().worker(), one.primary().status(), one.primary().sizeBytes());
            made.set(1, row, one.replica().worker(), one.replica().status(), one.replica().sizeBytes());
        }
        made.index();
        return made;
    }

    public static ReduceManifest decode(byte[] data) throws HoldfastException {
        ArrayFormat.Head head = ArrayFormat.head(data, ArrayFormat.REDUCE_MANIFEST);
        int count = head.first();
        int partitions = head.second();
        if (count < 0 || count > Limits.EPOCHS_MAX || partitions < 0 || partitions > Limits.PARTITIONS_MAX) {
            throw ArrayFormat.wrong(head.kind(), Integer.toUnsignedString(count) + " epochs of "
                    + Integer.toUnsignedString(partitions) + " partitions");
        }
        ByteBuffer rows = ArrayFormat.inflate(data, head, (long) count * ROW_BYTES);
        ReduceManifest made = new ReduceManifest(partitions, count);
        for (int row = 0; row < count; row++) {
            made.begin(row, rows.getInt(), rows.getInt());
            made.set(0, row, rows.getInt(), rows.getShort() & 0xFFFF, rows.getLong());
            made.set(1, row, rows.getInt(), rows.getShort() & 0xFFFF, rows.getLong());
        }
        made.index();
        return made;
    }

    public byte[] encode() throws HoldfastException {
        ByteBuffer rows = ArrayFormat.rows(ArrayFormat.REDUCE_MANIFEST, (long) size() * ROW_BYTES);
        for (int row = 0; row < size(); row++) {
            rows.putInt(rowPartitions[row]).putInt(epochs[row]);
            for (int copy = 0; copy < 2; copy++) {
                rows.putInt(workers[copy][row]).putShort(statuses[copy][row]).putLong(sizes[copy][row]);
            }
        }
        return ArrayFormat.encode(ArrayFormat.REDUCE_MANIFEST, 0, size(), partitions, rows);
    }

    public int partitions() {
        return partitions;
    }

    /** How many epochs there are, of all partitions. */
    public int size() {
        return epochs.length;
    }

    /** Row of the first epoch of a partition; those behind it, up to {@code first(partition + 1)}, are its others. */
    public int first(int partition) {
        return firsts[partition];
    }

    public EpochResult get(int row) {
        return new EpochResult(rowPartitions[row], epochs[row], copy(0, row), copy(1, row));
    }

    private CopyResult copy(int copy, int row) {
        return new CopyResult(workers[copy][row], statuses[copy][row] & 0xFFFF, sizes[copy][row]);
    }

    private void begin(int row, int partition, int epoch) throws HoldfastException {
        boolean ordered = row == 0 || partition > rowPartitions[row - 1]
                || partition == rowPartitions[row - 1] && Integer.compareUnsigned(epoch, epochs[row - 1]) > 0;
        if (partition < 0 || partition >= partitions || !ordered) {
            throw ArrayFormat.wrong(ArrayFormat.REDUCE_MANIFEST, "partition " + Integer.toUnsignedString(partition) + " epoch "
                    + Integer.toUnsignedString(epoch) + " of " + partitions + " partitions is out of order");
        }
        rowPartitions[row] = partition;
        epochs[row] = epoch;
    }

    private void set(int copy, int row, int worker, int status, long size) throws HoldfastException {
        if (!Status.known(status)) {
            throw ArrayFormat.wrong(ArrayFormat.REDUCE_MANIFEST, Status.name(status));
        }
        workers[copy][row] = worker;
        statuses[copy][row] = (short) status;
        sizes[copy][row] = size;
    }

    private void index() {
        int row = 0;
        for (int partition = 0; partition <= partitions; partition++) {
            while (row < rowPartitions.length && rowPartitions[row] < partition) {
                row++;
            }
            firsts[partition] = row;
        }
    }
}
