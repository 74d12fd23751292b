package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.spark.Partitioner;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.serializer.SerializerInstance;
import scala.Product2;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Serialisers whose streams are one whole, such as Java's: a stream of its own for each partition, ended with each batch.
 *
 * <p>What an open stream holds beside the buffer is estimated and asked of the memory manager, so with very many partitions streams are ended
 * early instead of growing beyond bounds.
 */
final class OwnStreamsWriter implements RecordWriter {
    /** An ObjectOutputStream with its tables, measured at 3 to 6 KiB. */
    private static final int STREAM_BYTES = 6 << 10;

    private static final ClassTag<Object> ANY = ClassTag$.MODULE$.Any();

    private final PartitionBuffers buffers;
    private final Partitioner partitioner;
    private final SerializerInstance serializer;
    private final SerializationStream[] open;
    private final RowChecksums checksums;
    private long count;
    private long size;

    /** @param checksums null where none are wanted */
    OwnStreamsWriter(PartitionBuffers buffers, Partitioner partitioner, Serializer serializer, RowChecksums checksums) {
        this.buffers = buffers;
        this.partitioner = partitioner;
        this.serializer = serializer.newInstance();
        this.checksums = checksums;
        open = new SerializationStream[partitioner.numPartitions()];
        buffers.beforeSend(this::end);
    }

    @Override
    public <K, V> void write(Iterator<Product2<K, V>> records) throws IOException {
        while (records.hasNext()) {
            Product2<K, V> record = records.next();
            Object key = record._1();
            Object value = record._2();
            int partition = partitioner.getPartition(key);
            count++;
            buffers.pin(partition);
            if (open[partition] == null) {
                buffers.hold(STREAM_BYTES);
                open[partition] = serializer.serializeStream(new PartitionStream(partition));
                // The stream's own header now, so that every open stream has a buffer, by which it is found at the end.
                open[partition].flush();
            }
            open[partition].writeKey(key, ANY);
            open[partition].writeValue(value, ANY);
            buffers.endRecord(partition);
            buffers.unpin();
            if (buffers.used(partition) >= buffers.limit()) {
                buffers.send(partition, false);
            }
            if (checksums != null) {
                checksums.add(partition, key, value);
            }
        }
    }

    @Override
    public long records() {
        return count;
    }

    @Override
    public long bytes() {
        return size;
    }

    /** Ends the stream of a partition, which writes the rest of it into the buffer. */
    private void end(int partition) {
        SerializationStream stream = open[partition];
        if (stream == null) {
            return;
        }
        open[partition] = null;
        stream.close();
        buffers.letGo(STREAM_BYTES);
    }

    private final class PartitionStream extends OutputStream {
        private final int partition;
        private final byte[] one = new byte[1];

        PartitionStream(int partition) {
            this.partition = partition;
        }

        @Override
        public void write(int value) throws IOException {
            one[0] = (byte) value;
            size++;
            buffers.putStream(partition, one, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            size += length;
            buffers.putStream(partition, bytes, offset, length);
        }
    }
}
