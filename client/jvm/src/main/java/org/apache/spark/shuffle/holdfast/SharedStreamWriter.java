package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.Partitioner;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import scala.Product2;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** Serialisers whose records can be cut apart, such as Kryo: one stream for all, flushed after each record, whose bytes go to its partition. */
final class SharedStreamWriter implements RecordWriter {
    private static final ClassTag<Object> ANY = ClassTag$.MODULE$.Any();

    private final PartitionBuffers buffers;
    private final Partitioner partitioner;
    private final Serializer serializer;
    private final RowChecksums checksums;
    private long count;
    private long size;

    /** @param checksums null where none are wanted */
    SharedStreamWriter(PartitionBuffers buffers, Partitioner partitioner, Serializer serializer, RowChecksums checksums) {
        this.buffers = buffers;
        this.partitioner = partitioner;
        this.serializer = serializer;
        this.checksums = checksums;
    }

    @Override
    public <K, V> void write(Iterator<Product2<K, V>> records) throws IOException {
        if (!records.hasNext()) {
            return;
        }
        GrowingBytes bytes = new GrowingBytes();
        SerializationStream stream = serializer.newInstance().serializeStream(bytes);
        try {
            stream.flush();
            while (records.hasNext()) {
                Product2<K, V> record = records.next();
                Object key = record._1();
                Object value = record._2();
                int partition = partitioner.getPartition(key);
                stream.writeKey(key, ANY);
                stream.writeValue(value, ANY);
                stream.flush();
                count++;
                size += bytes.count();
                buffers.putBytes(partition, bytes.bytes(), 0, bytes.count());
                bytes.reset();
                if (checksums != null) {
                    checksums.add(partition, key, value);
                }
            }
        } finally {
            stream.close();
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
}
