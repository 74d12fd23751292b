package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.client.BlockWriter;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The records of one map attempt, gathered into blocks that {@link MapAttempt} pushes.
 *
 * <p>Rules: an attempt ends with an error where other records and bytes were sent than Spark handed over. Map-side combining is Spark's own
 * (Aggregator.combineValuesByKey, which spills as Spark does); order within a partition is the reader's work. Called by Spark, one thread.
 */
final class HoldfastShuffleWriter<K, V> extends ShuffleWriter<K, V> {
    private final HoldfastShuffleHandle<K, V, ?> handle;
    private final TaskContext context;
    private final int bufferBytes;
    /** Null where records are not rows of SQL. */
    private final RowSerializers.Known rows;
    private final MapAttempt attempt;

    private PartitionBuffers buffers;
    private RowChecksums checksums;

    HoldfastShuffleWriter(
            HoldfastRuntime runtime,
            HoldfastShuffleHandle<K, V, ?> handle,
            TaskContext context,
            ShuffleWriteMetricsReporter metrics) {
        this.handle = handle;
        this.context = context;
        bufferBytes = runtime.conf().pushBuffer();
        rows = RowSerializers.of(handle.dependency().serializer());
        attempt = new MapAttempt(runtime, handle, context, metrics, runtime.compression(rows));
    }

    @Override
    public void write(Iterator<Product2<K, V>> records) throws IOException {
        attempt.write(blocks -> {
            try {
                push(records, blocks);
            } catch (Exception error) {
                // What failed as others wanted memory comes through operators of Spark, in whatever they made of it.
                HoldfastException ours = error instanceof HoldfastException || buffers == null ? null : buffers.failure();
                if (ours != null) {
                    throw ours;
                }
                throw error;
            }
        });
    }

    @Override
    public Option<MapStatus> stop(boolean success) {
        end();
        return attempt.stop(success, checksums == null ? 0 : checksums.value());
    }

    @Override
    public long[] getPartitionLengths() {
        return attempt.partitionLengths();
    }

    private void push(Iterator<Product2<K, V>> records, BlockWriter blocks) throws IOException {
        context.addTaskCompletionListener(task -> {
            end();
            return null;
        });
        SentRecords sent = new SentRecords((partition, data, offset, length, count, last) -> {
            ByteBuffer block = ByteBuffer.wrap(data, offset, length);
            if (last) {
                blocks.writeLast(partition, block, count);
            } else {
                blocks.write(partition, block, count);
            }
        });
        buffers = new PartitionBuffers(context.taskMemoryManager(), handle.shape().partitions(), bufferBytes, ByteArrays.SHARED, sent);
        checksums = Shims.rowChecksums(handle.dependency());
        RecordWriter writer = recordWriter();
        ShuffleDependency<K, V, ?> dependency = handle.dependency();
        if (dependency.mapSideCombine()) {
            writer.write(combined(dependency, records));
        } else {
            writer.write(records);
        }
        buffers.finish();
        sent.check(writer, blocks);
        context.taskMetrics().incPeakExecutionMemory(buffers.peakBytes());
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

    /** Releases the buffers. Allowed at any time. */
    private void end() {
        if (buffers != null) {
            buffers.close();
        }
    }
}
