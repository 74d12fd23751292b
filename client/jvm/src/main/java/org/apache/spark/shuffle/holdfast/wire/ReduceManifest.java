package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * REDUCE_MANIFEST: the final word on every epoch of a generation, sorted by (partition, epoch). Kept in columns, since there may be
 * millions: {@link #first} says where a partition's epochs begin, {@link #get} makes a record of a row. Immutable.
 */
public final class ReduceManifest {
    /** In place of a copy that was not placed. */
    private static final CopyResult NONE = new CopyResult(Limits.NO_WORKER, Status.UNKNOWN_FILE, 0);
    private final int partitions;
    /** Row of the first epoch of every partition, and the number of rows. */
    private final int[] firsts;
    private final int[] rowPartitions;
    private final int[] epochs;
    /** By copy, {@link Limits#NO_WORKER} where there is none. */
    private final int[][] workers;
    private final short[][] statuses;
    private final long[][] sizes;

    private ReduceManifest(int partitions, int rows, int copies) {
        this.partitions = partitions;
        firsts = new int[partitions + 1];
        rowPartitions = new int[rows];
        epochs = new int[rows];
        workers = new int[copies][rows];
        statuses = new short[copies][rows];
        sizes = new long[copies][rows];
    }

    /** From epochs in the order of the format. BAD_FRAME if they are not. */
    public static ReduceManifest of(int partitions, EpochResult... epochs) throws HoldfastException {
        int copies = Arrays.stream(epochs).mapToInt(each -> each.copies().size()).max().orElse(1);
        ReduceManifest made = new ReduceManifest(partitions, epochs.length, copies);
        for (int row = 0; row < epochs.length; row++) {
            EpochResult one = epochs[row];
            made.begin(row, one.partition(), one.epoch());
            for (int copy = 0; copy < copies; copy++) {
                CopyResult there = copy < one.copies().size() ? one.copies().get(copy) : NONE;
                made.set(copy, row, there.worker(), there.status(), there.sizeBytes());
            }
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
        int copies = ArrayFormat.copies(head);
        ByteBuffer rows = ArrayFormat.inflate(data, head, (long) count * rowBytes(copies));
        ReduceManifest made = new ReduceManifest(partitions, count, copies);
        for (int row = 0; row < count; row++) {
            made.begin(row, rows.getInt(), rows.getInt());
            for (int copy = 0; copy < copies; copy++) {
                made.set(copy, row, rows.getInt(), rows.getShort() & 0xFFFF, rows.getLong());
            }
            ArrayFormat.placed(head.kind(), made.workers, row);
        }
        made.index();
        return made;
    }

    public byte[] encode() throws HoldfastException {
        ByteBuffer rows = ArrayFormat.rows(ArrayFormat.REDUCE_MANIFEST, (long) size() * rowBytes(workers.length));
        for (int row = 0; row < size(); row++) {
            rows.putInt(rowPartitions[row]).putInt(epochs[row]);
            for (int copy = 0; copy < workers.length; copy++) {
                rows.putInt(workers[copy][row]).putShort(statuses[copy][row]).putLong(sizes[copy][row]);
            }
        }
        return ArrayFormat.encode(ArrayFormat.REDUCE_MANIFEST, workers.length, size(), partitions, rows);
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
        List<CopyResult> copies = new ArrayList<>(workers.length);
        for (int copy = 0; copy < workers.length; copy++) {
            if (workers[copy][row] != Limits.NO_WORKER) {
                copies.add(new CopyResult(workers[copy][row], statuses[copy][row] & 0xFFFF, sizes[copy][row]));
            }
        }
        return new EpochResult(rowPartitions[row], epochs[row], copies);
    }

    private static int rowBytes(int copies) {
        return 8 + 14 * copies;
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
        if (worker != Limits.NO_WORKER && !Status.known(status)) {
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
