package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.client.BlockReader;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The blocks of a reduce task: of the maps and the generation that Spark's statuses name, with errors as Spark has to see them.
 *
 * <p>Rules: the maps to insist on, and the generation to ask for, are those of the statuses; no status with data, no call to anybody. Whether the task was
 * killed is looked at once for each block. A task may end before the last one, and may read thousands of partitions one after the other, so a read that
 * is drained holds nothing any more. Made by {@link #open} for Holdfast's own reader, which is told of it by {@link BatchIterator}, and for those of
 * engines.
 */
final class TaskBlocks implements BlockReader, TaskCompletionListener {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    /** All of these are null when it is drained. */
    private BlockReader blocks;
    private ReadMetrics metrics;
    private FetchFailures failures;
    private TaskContext context;

    private TaskBlocks(BlockReader blocks, ReadMetrics metrics, FetchFailures failures, TaskContext context) {
        this.blocks = blocks;
        this.metrics = metrics;
        this.failures = failures;
        this.context = context;
    }

    /** Waits for the commit; throws what Spark has to see of an error. */
    static TaskBlocks open(
            HoldfastRuntime runtime, HoldfastShuffleHandle<?, ?, ?> handle, ReadRange range, TaskContext context, ReadMetrics metrics,
            BlockCodec codec) {
        MapBlocks written = MapBlocks.of(
                handle.shuffleId(),
                SparkEnv.get().mapOutputTracker().getMapSizesByExecutorId(
                        handle.shuffleId(), range.startMap(), range.endMap(), range.startPartition(), range.endPartition()));
        if (written.count() == 0) {
            metrics.finish();
            return new TaskBlocks(null, null, null, null);
        }
        FetchFailures failures = new FetchFailures(
                context,
                handle.shuffleId(),
                written,
                (generation, reason) -> runtime.generations().failed(handle, generation, reason));
        if (written.mixed() || written.named() == null) {
            settle(runtime, handle, written);
            throw failures.raiseMixed();
        }
        try {
            long from = System.nanoTime();
            ShuffleKey key = handle.key(written.named());
            Manifest manifest = runtime.manifests().get(key, () -> Winners.of(key, handle.shape().partitions()));
            BlockReader blocks = runtime.reader(
                    manifest, range, written.expected(manifest.winners()), metrics, IoEncryption.of(SparkEnv.get(), handle.encrypted()), codec);
            metrics.waited(System.nanoTime() - from);
            metrics.blocks(written.count());
            return new TaskBlocks(blocks, metrics, failures, context);
        } catch (IOException error) {
            throw failures.raise(error);
        }
    }

    /**
     * Of two generations with one number, as a restore of the masters between the maps of a stage leaves them, the one to go is that
     * which is unknown to the masters.
     */
    private static void settle(HoldfastRuntime runtime, HoldfastShuffleHandle<?, ?, ?> handle, MapBlocks written) {
        if (written.named() == null || written.rival() == null) {
            return;
        }
        try {
            runtime.masters().getManifest(handle.key(written.rival()), 0, false);
        } catch (HoldfastException error) {
            if (FetchFailures.unheard(error.status())) {
                written.blameRival();
            }
        }
    }

    /** Whether there is nothing, or nothing more. */
    boolean drained() {
        return blocks == null;
    }

    @Override
    public boolean next() {
        if (blocks == null) {
            return false;
        }
        context.killTaskIfInterrupted();
        try {
            if (blocks.next()) {
                return true;
            }
        } catch (IOException error) {
            throw failures.raise(error);
        }
        metrics.finish();
        blocks = null;
        metrics = null;
        failures = null;
        context = null;
        return false;
    }

    @Override
    public int partition() {
        return blocks.partition();
    }

    @Override
    public int map() {
        return blocks.map();
    }

    @Override
    public ByteBuffer block() {
        return blocks == null ? NOTHING : blocks.block();
    }

    /** Records of the blocks before this call were used. */
    void used(long records) {
        if (metrics != null) {
            metrics.records(records);
        }
    }

    /** Throws what an error in the present block means to Spark. */
    RuntimeException failed(HoldfastException error) {
        return failures.raise(error);
    }

    /** The task has ended, with so many records used since {@link #used}; another thread may still be reading. */
    void end(long records) {
        BlockReader left = blocks;
        ReadMetrics started = metrics;
        if (left != null && started != null) {
            left.close();
            started.records(records);
            started.finish();
        }
    }

    @Override
    public void close() {
        end(0);
    }

    @Override
    public void onTaskCompletion(TaskContext task) {
        close();
    }
}
