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
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The output of one map attempt, pushed to the workers.
 *
 * <p>Rules: {@link #write} returns when everything is acknowledged at the level asked for, so a status is only made of what is kept; an
 * attempt that hears that the generation is committed ends killed, never with a status. Map-side combining is Spark's own
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

    private PushWriter push;
    private PartitionBuffers buffers;
    private RegisteredShuffle registered;
    private RowChecksums checksums;
    private long[] lengths;
    private boolean stopped;

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
    }

    @Override
    public void write(Iterator<Product2<K, V>> records) throws IOException {
        try {
            registered = runtime.generations().toWrite(handle, context);
            open();
            push(records);
        } catch (HoldfastException error) {
            context.killTaskIfInterrupted();
            switch (error.status()) {
                case Status.COMMITTED -> {
                    runtime.generations().closed(handle, context);
                    throw new TaskKilledException("another attempt of this map won: " + error.getMessage());
                }
                // Workers say APPLICATION_GONE of a shuffle that was dropped; the next attempt hears from the masters whether it is more than that.
                case Status.APPLICATION_GONE, Status.UNKNOWN_SHUFFLE, Status.UNKNOWN_GENERATION -> {
                    runtime.generations().closed(handle, context);
                    throw error;
                }
                default -> throw error;
            }
        }
    }

    @Override
    public Option<MapStatus> stop(boolean success) {
        if (stopped) {
            return Option.empty();
        }
        stopped = true;
        if (!success || lengths == null) {
            end();
            return Option.empty();
        }
        return Option.apply(Shims.mapStatus(
                SyntheticLocation.of(registered.key().shuffle(), registered.key().generation()),
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
                handle, registered, context.partitionId(), attempt, IoEncryption.of(SparkEnv.get(), handle.encrypted()));
        // An error in an iterator below us, or a kill, may end the task without stop().
        context.addTaskCompletionListener(task -> {
            end();
            return null;
        });
        buffers = new PartitionBuffers(
                context.taskMemoryManager(),
                handle.partitions(),
                runtime.conf().pushBuffer(),
                ByteArrays.SHARED,
                new Pushed(push));
        checksums = Shims.rowChecksums(handle.dependency());
    }

    private void push(Iterator<Product2<K, V>> records) throws IOException {
        RecordWriter writer = recordWriter();
        ShuffleDependency<K, V, ?> dependency = handle.dependency();
        long count = dependency.mapSideCombine() ? writer.write(combined(dependency, records)) : writer.write(records);
        buffers.finish();
        long from = System.nanoTime();
        long[] sent = push.close();
        metrics.incWriteTime(buffers.nanosSending() + System.nanoTime() - from);
        metrics.incRecordsWritten(count);
        long bytes = 0;
        for (long length : sent) {
            bytes += length;
        }
        metrics.incBytesWritten(bytes);
        context.taskMetrics().incPeakExecutionMemory(buffers.peakBytes());
        lengths = sent;
    }

    @SuppressWarnings("unchecked")
    private <C> Iterator<Product2<K, C>> combined(ShuffleDependency<K, V, C> dependency, Iterator<Product2<K, V>> records) {
        return (Iterator<Product2<K, C>>) (Iterator<?>) dependency.aggregator().get().combineValuesByKey(records, context);
    }

    private RecordWriter recordWriter() {
        ShuffleDependency<K, V, ?> dependency = handle.dependency();
        Serializer serializer = dependency.serializer();
        RowSerializers.Known rows = RowSerializers.of(serializer);
        if (rows != null) {
            return new RowWriter(buffers, dependency.partitioner(), rows, checksums);
        }
        return serializer.supportsRelocationOfSerializedObjects()
                ? new SharedStreamWriter(buffers, dependency.partitioner(), serializer, checksums)
                : new OwnStreamsWriter(buffers, dependency.partitioner(), serializer, checksums);
    }

    /** Gives everything back; what was not finished is given up. Harmless at any time. */
    private void end() {
        if (buffers != null) {
            buffers.close();
        }
        if (push != null && lengths == null) {
            push.abort();
        }
    }

    /** Full buffers are batches of the push. */
    private record Pushed(PushWriter push) implements BatchSink {
        @Override
        public void write(int partition, byte[] data, int offset, int length, boolean last) throws IOException {
            push.write(partition, data, offset, length, last);
        }
    }
}
