package org.apache.spark.shuffle.holdfast;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;

/**
 * Tells Spark what a task read, once for each batch and not for each row.
 *
 * <p>Rules: one thread; {@link #finish} may be called more than once, and is called when the task ends, so that a reader that is not read to its end
 * (a LIMIT) is counted too.
 */
final class ReadMetrics {
    private static final long NANOS_PER_MS = 1_000_000;

    private final ShuffleReadMetricsReporter reporter;
    private final TaskContext context;
    private long nanosWaited;

    ReadMetrics(ShuffleReadMetricsReporter reporter, TaskContext context) {
        this.reporter = reporter;
        this.context = context;
    }

    /** Blocks in Spark's sense: what one map wrote for one partition. */
    void blocks(long count) {
        reporter.incRemoteBlocksFetched(count);
    }

    void batch(int bytes, long nanos) {
        reporter.incRemoteBytesRead(bytes);
        waited(nanos);
    }

    void waited(long nanos) {
        nanosWaited += nanos;
        if (nanosWaited >= NANOS_PER_MS) {
            reporter.incFetchWaitTime(nanosWaited / NANOS_PER_MS);
            nanosWaited %= NANOS_PER_MS;
        }
    }

    void records(long count) {
        if (count > 0) {
            reporter.incRecordsRead(count);
        }
    }

    void finish() {
        context.taskMetrics().mergeShuffleReadMetrics();
    }
}
