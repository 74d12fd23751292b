package org.apache.spark.shuffle.holdfast;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.holdfast.fetch.ReadCosts;

/**
 * Tells Spark what a task read, once for each batch and not for each row.
 *
 * <p>Rules: all of it is remote, on whatever host the worker is: executors hold nothing. One thread; {@link #finish} may be called more than once, and is called when the task ends, so that a reader that is not read to its end
 * (a LIMIT) is counted too.
 */
final class ReadMetrics implements ReadCosts {
    private static final long NANOS_PER_MS = 1_000_000;

    private final ShuffleReadMetricsReporter reporter;
    private final TaskContext context;
    private final Nanos waited = new Nanos();
    private final Nanos streamed = new Nanos();

    ReadMetrics(ShuffleReadMetricsReporter reporter, TaskContext context) {
        this.reporter = reporter;
        this.context = context;
    }

    /** Blocks in Spark's sense: what one map wrote for one partition. */
    void blocks(long count) {
        reporter.incRemoteBlocksFetched(count);
    }

    @Override
    public void received(int bytes) {
        reporter.incRemoteBytesRead(bytes);
    }

    @Override
    public void waited(long nanos) {
        long ms = waited.wholeMs(nanos);
        if (ms > 0) {
            reporter.incFetchWaitTime(ms);
        }
    }

    @Override
    public void streamed(long nanos) {
        long ms = streamed.wholeMs(nanos);
        if (ms > 0) {
            reporter.incRemoteReqsDuration(ms);
        }
    }

    /** Spark counts such chunks of its own merged files; nothing else of its metrics is meant for it. */
    @Override
    public void damaged() {
        reporter.incCorruptMergedBlockChunks(1);
    }

    void records(long count) {
        if (count > 0) {
            reporter.incRecordsRead(count);
        }
    }

    void finish() {
        context.taskMetrics().mergeShuffleReadMetrics();
    }

    /** Many short times, of which Spark counts whole milliseconds. */
    private static final class Nanos {
        private long rest;

        /** Adds to what was left, and takes the whole milliseconds of it. */
        long wholeMs(long nanos) {
            rest += nanos;
            long ms = rest / NANOS_PER_MS;
            rest %= NANOS_PER_MS;
            return ms;
        }
    }
}
