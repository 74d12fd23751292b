package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.push.PushWriter;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The output of one map attempt, pushed to the workers.
 *
 * <p>Rules: {@link #write} returns when everything is acknowledged at the level asked for, so a status is only made of what is kept; an
 * attempt of a committed generation ends as killed, never with a status; nor does one after any error, or where other records and
 * bytes were sent than Spark handed over. Map-side combining is Spark's own
 * (Aggregator.combineValuesByKey, which spills as Spark does); order within a partition is the reader's work. An attempt is known by the task
 * attempt's number, which is unique in the application, also in the status: with {@code spark.shuffle.useOldFetchProtocol} the map id that Spark
 * gives is the same for all attempts of a map. Called by Spark, one thread.
 */
final class HoldfastShuffleWriter<K, V> extends ShuffleWriter<K, V> {
    private final HoldfastRuntime runtime;
    private final HoldfastShuffleHandle<K, V, ?> handle;
    private final long attempt;
    private final TaskContext context;
    private final ShuffleWriteMetricsReporter metrics;
    /** Null where records are not rows of SQL. */
    private final RowSerializers.Known rows;

    private PushWriter push;
    private PartitionBuffers buffers;
    private SentRecords sent;
    private RegisteredShuffle registered;
    private RowChecksums checksums;
    private long[] lengths;
    private boolean stopped;
    /** What ended the attempt; null while nothing has. */
    private Exception failure;

    HoldfastShuffleWriter(
            HoldfastRuntime runtime,
            HoldfastShuffleHandle<K, V, ?> handle,
            TaskContext context,
            ShuffleWriteMetricsReporter metrics) {
        this.runtime = runtime;
        this.handle = handle;
        attempt = context.taskAttemptId();
        this.context = context;
        this.metrics = metrics;
        rows = RowSerializers.of(handle.dependency().serializer());
    }

    @Override
    public void write(Iterator<Product2<K, V>> records) throws IOException {
        try {
            registered = runtime.generations().toWrite(handle, context);
            open();
            push(records);
        } catch (Exception error) {
            failure = error;
            // What failed as others wanted memory comes through operators of Spark, in whatever they made of it.
            HoldfastException ours = error instanceof HoldfastException known ? known : buffers == null ? null : buffers.failure();
            if (ours == null) {
                throw error;
            }
            throw ended(ours);
        }
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

    @Override
    public Option<MapStatus> stop(boolean success) {
        if (stopped) {
            return Option.empty();
        }
        stopped = true;
        if (!success) {
            end();
            return Option.empty();
        }
        if (lengths == null) {
            end();
            throw new WriteFailedException(
                    failure != null ? failure : new IllegalStateException("map attempt " + attempt + " has not written its output"));
        }
        return Option.apply(Shims.mapStatus(
                SyntheticLocation.of(registered.key().shuffle(), registered.key().generation(), registered.key().state()),
                lengths,
                attempt,
                checksums == null ? 0 : checksums.value()));
    }

    @Override
    public long[] getPartitionLengths() {
        return lengths;
    }

    private void open() throws HoldfastException {
        push = runtime.pushWriter(
                registered, context.partitionId(), attempt, rows, IoEncryption.of(SparkEnv.get(), handle.encrypted()));
        // An error in an iterator below us, or a kill, may end the task without stop().
        context.addTaskCompletionListener(task -> {
            end();
            return null;
        });
        sent = new SentRecords((partition, data, offset, length, count, last) -> push.write(partition, data, offset, length, last));
        buffers = new PartitionBuffers(
                context.taskMemoryManager(),
                handle.partitions(),
                runtime.conf().pushBuffer(),
                ByteArrays.SHARED,
                sent);
        checksums = Shims.rowChecksums(handle.dependency());
    }

    private void push(Iterator<Product2<K, V>> records) throws IOException {
        RecordWriter writer = recordWriter();
        ShuffleDependency<K, V, ?> dependency = handle.dependency();
        if (dependency.mapSideCombine()) {
            writer.write(combined(dependency, records));
        } else {
            writer.write(records);
        }
        buffers.finish();
        sent.check(writer, push);
        long from = System.nanoTime();
        long[] pushed = push.close();
        metrics.incWriteTime(buffers.nanosSending() + System.nanoTime() - from);
        metrics.incRecordsWritten(writer.records());
        long bytes = 0;
        for (long length : pushed) {
            bytes += length;
        }
        metrics.incBytesWritten(bytes);
        context.taskMetrics().incPeakExecutionMemory(buffers.peakBytes());
        lengths = pushed;
    }

    @SuppressWarnings("unchecked")
    private <C> Iterator<Product2<K, C>> combined(ShuffleDependency<K, V, C> dependency, Iterator<Product2<K, V>> records) {
        return (Iterator<Product2<K, C>>) (Iterator<?>) dependency.aggregator().get().combineValuesByKey(records, context);
    }

    private RecordWriter recordWriter() {
        ShuffleDependency<K, V, ?> dependency = handle.dependency();
        Serializer serializer = dependency.serializer();
        if (rows != null) {
            return new RowWriter(buffers, dependency.partitioner(), rows, checksums);
        }
        return serializer.supportsRelocationOfSerializedObjects()
                ? new SharedStreamWriter(buffers, dependency.partitioner(), serializer, checksums)
                : new OwnStreamsWriter(buffers, dependency.partitioner(), serializer, checksums);
    }

    /** Releases everything; aborts what was not finished. Allowed at any time. */
    private void end() {
        if (buffers != null) {
            buffers.close();
        }
        if (push != null && lengths == null) {
            push.abort();
        }
    }
}
