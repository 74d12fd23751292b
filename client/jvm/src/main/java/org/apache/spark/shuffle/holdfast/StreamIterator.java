package org.apache.spark.shuffle.holdfast;

import java.io.ByteArrayInputStream;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.SerializerInstance;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;

/** Records of any serialiser: each batch is read as a stream of its own. */
final class StreamIterator extends BatchIterator {
    private SerializerInstance serializer;
    private Iterator<Tuple2<Object, Object>> records;

    StreamIterator(
            DecodedBatches batches, SerializerInstance serializer, ReadMetrics metrics, FetchFailures failures, TaskContext context) {
        super(batches, metrics, failures, context);
        this.serializer = serializer;
    }

    @Override
    public boolean hasNext() {
        while (records == null || !records.hasNext()) {
            if (!advance()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public Product2<Object, Object> next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the shuffle's records are at their end");
        }
        given();
        return records.next();
    }

    @Override
    void begin(byte[] data, int length) {
        records = serializer.deserializeStream(new ByteArrayInputStream(data, 0, length)).asKeyValueIterator();
    }

    @Override
    void drained() {
        records = null;
        serializer = null;
    }
}
