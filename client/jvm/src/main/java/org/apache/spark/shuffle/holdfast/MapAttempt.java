package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.holdfast.client.BlockWriter;
import org.apache.spark.shuffle.holdfast.client.MapOutput;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.push.Compression;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import scala.Option;

/**
 * What a ShuffleWriter of Spark is beside records: where an attempt of a map writes its blocks, and the status that Spark gets of it. For Holdfast's
 * own writer and for those of engines, see {@link HoldfastShuffleManager#mapAttempt}.
 *
 * <p>Rules: {@link #write} returns when everything is acknowledged at the level asked for, so a status is only made of what is kept; an
 * attempt of a committed generation ends as killed, never with a status; nor does one after any error. An attempt is known by the task
 * attempt's number, which is unique in the application, also in the status: with {@code spark.shuffle.useOldFetchProtocol} the map id that Spark
 * gives is the same for all attempts of a map. Encrypts blocks where {@code spark.io.encryption} is on. Everything is released when the task ends. One
 * thread, that of the task.
 */
public final class MapAttempt {
    private final HoldfastRuntime runtime;
    private final HoldfastShuffleHandle<?, ?, ?> handle;
    private final TaskContext context;
    private final ShuffleWriteMetricsReporter metrics;
    private final Compression compression;
    private final long attempt;

    private PushedBlocks blocks;
    private RegisteredShuffle registered;
    private long[] lengths;
    private boolean stopped;
    /** What ended the attempt; null while nothing has. */
    private Exception failure;

    MapAttempt(
            HoldfastRuntime runtime, HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context, ShuffleWriteMetricsReporter metrics,
            Compression compression) {
        this.runtime = runtime;
        this.handle = handle;
        this.context = context;
        this.metrics = metrics;
        this.compression = compression;
        attempt = context.taskAttemptId();
    }

    /** Writes the records of a map as blocks. */
    public interface Output {
        /** Writes all of them; errors of {@code blocks} are passed on. The caller finishes and closes. */
        void write(BlockWriter blocks) throws IOException;
    }

    /** Has the whole output of the attempt written, once; adds bytes, records and time to the task's metrics. Throws what Spark has to see of an error. */
    public void write(Output output) throws IOException {
        try {
            registered = runtime.generations().toWrite(handle, context);
            blocks = runtime.writer(
                    registered, context.partitionId(), attempt, compression, IoEncryption.of(SparkEnv.get(), handle.encrypted()));
            // An error in an iterator below us, or a kill, may end the task without stop().
            context.addTaskCompletionListener(task -> {
                blocks.close();
                return null;
            });
            output.write(blocks);
            finish();
        } catch (Exception error) {
            failure = error;
            if (error instanceof HoldfastException ours) {
                throw ended(ours);
            }
            throw error;
        }
    }

    private void finish() throws HoldfastException {
        MapOutput made = blocks.finish();
        long bytes = 0;
        for (long length : made.partitionBytes()) {
            bytes += length;
        }
        metrics.incWriteTime(blocks.nanos());
        metrics.incRecordsWritten(made.records());
        metrics.incBytesWritten(bytes);
        lengths = made.partitionBytes();
    }

    /** The error for Spark of an attempt that Holdfast ended. */
    private HoldfastException ended(HoldfastException reason) {
        context.killTaskIfInterrupted();
        switch (reason.status()) {
            case Status.COMMITTED -> {
                runtime.generations().closed(handle, context);
                throw new TaskKilledException("another attempt of this map won: " + reason.getMessage());
            }
            // Workers answer APPLICATION_GONE for a dropped shuffle; the masters inform the next attempt whether the application was dropped, too.
            case Status.APPLICATION_GONE, Status.UNKNOWN_SHUFFLE, Status.UNKNOWN_GENERATION ->
                    runtime.generations().closed(handle, context);
            default -> { }
        }
        return reason;
    }

    /** For {@code ShuffleWriter.stop}: the status of what was written, none if {@code success} is false or when repeated. */
    public Option<MapStatus> stop(boolean success) {
        return stop(success, 0);
    }

    /** The same with what {@link RowChecksums#value} says. */
    Option<MapStatus> stop(boolean success, long checksum) {
        if (stopped) {
            return Option.empty();
        }
        stopped = true;
        if (blocks != null) {
            blocks.close();
        }
        if (!success) {
            return Option.empty();
        }
        if (lengths == null) {
            throw new WriteFailedException(
                    failure != null ? failure : new IllegalStateException("map attempt " + attempt + " has not written its output"));
        }
        return Option.apply(Shims.mapStatus(
                SyntheticLocation.of(registered.key().shuffle(), registered.key().generation(), registered.key().state()),
                lengths,
                attempt,
                checksum));
    }

    /** For {@code ShuffleWriter.getPartitionLengths}: bytes by partition, null before everything is written. */
    public long[] partitionLengths() {
        return lengths;
    }
}
