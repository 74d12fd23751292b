package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.collection.AbstractIterator;

/**
 * What a reduce task iterates over, batch by batch.
 *
 * <p>Rules: whether the task was killed is looked at once for each batch, and records are counted as often. A task may end before the last record (a
 * LIMIT, an error, a kill), so it holds this as a listener; and it may read thousands of partitions one after the other (coalesce), so an iterator
 * that is drained holds nothing any more: neither batches, nor the last row, nor what is known of the maps.
 */
abstract class BatchIterator extends AbstractIterator<Product2<Object, Object>> implements TaskCompletionListener {
    /** All of these are null when it is drained. */
    private DecodedBatches batches;
    private ReadMetrics metrics;
    private FetchFailures failures;
    private TaskContext context;
    /** Records returned since the last update of the metrics. */
    private int count;

    BatchIterator(DecodedBatches batches, ReadMetrics metrics, FetchFailures failures, TaskContext context) {
        this.batches = batches;
        this.metrics = metrics;
        this.failures = failures;
        this.context = context;
    }

    /** Records are now those of the first {@code length} bytes of {@code data}. */
    abstract void begin(byte[] data, int length);

    /** Releases the last batch. */
    abstract void drained();

    /** Moves to the next batch; false at the end. */
    final boolean advance() {
        if (batches == null) {
            return false;
        }
        context.killTaskIfInterrupted();
        tell(metrics);
        try {
            if (batches.next()) {
                begin(batches.data(), batches.length());
                return true;
            }
        } catch (IOException error) {
            throw failures.raise(error);
        }
        metrics.finish();
        batches = null;
        metrics = null;
        failures = null;
        context = null;
        drained();
        return false;
    }

    /** A record was given. */
    final void given() {
        count++;
    }

    /** Throws what an error in the present batch means to Spark. */
    final RuntimeException failed(HoldfastException error) {
        return failures.raise(error);
    }

    /** The task has ended; another thread may still be reading. */
    @Override
    public final void onTaskCompletion(TaskContext task) {
        DecodedBatches left = batches;
        ReadMetrics started = metrics;
        if (left != null && started != null) {
            left.close();
            tell(started);
            started.finish();
        }
    }

    private void tell(ReadMetrics started) {
        started.records(count);
        count = 0;
    }
}
