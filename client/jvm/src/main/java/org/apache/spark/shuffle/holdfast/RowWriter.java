package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.Partitioner;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.Product2;
import scala.collection.Iterator;

/**
 * The rows of SQL: already bytes, so each is copied once, behind its length as u32, into its partition's buffer.
 *
 * <p>The loop is the hot path of most jobs: one call of the partitioner and one copy a row; everything else happens a batch at a time.
 */
final class RowWriter implements RecordWriter {
    private final PartitionBuffers buffers;
    private final Partitioner partitioner;
    private final RowSerializers.Known serializer;
    private final RowChecksums checksums;
    private long rows;
    private long bytes;

    /** @param checksums null where none are wanted */
    RowWriter(PartitionBuffers buffers, Partitioner partitioner, RowSerializers.Known serializer, RowChecksums checksums) {
        this.buffers = buffers;
        this.partitioner = partitioner;
        this.serializer = serializer;
        this.checksums = checksums;
    }

    @Override
    public <K, V> void write(Iterator<Product2<K, V>> records) throws IOException {
        long count = 0;
        long size = 0;
        while (records.hasNext()) {
            Product2<K, V> record = records.next();
            int partition = partitioner.getPartition(record._1());
            UnsafeRow row = (UnsafeRow) record._2();
            int length = row.getSizeInBytes();
            size += length;
            count++;
            buffers.putRow(partition, row.getBaseObject(), row.getBaseOffset(), length);
            if (checksums != null) {
                checksums.add(partition, record._1(), row);
            }
        }
        rows = count;
        bytes = size + count * PartitionBuffers.PREFIX_BYTES;
        if (serializer.dataSize() != null) {
            serializer.dataSize().add(size);
        }
    }

    @Override
    public long records() {
        return rows;
    }

    @Override
    public long bytes() {
        return bytes;
    }
}
