package org.apache.spark.shuffle.holdfast;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.SerializerInstance;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Records of any serialiser: each batch is read as a stream of its own. */
final class StreamIterator extends AbstractIterator<Product2<Object, Object>> {
    private final DecodedBatches batches;
    private final SerializerInstance serializer;
    private final ReadMetrics metrics;
    private final FetchFailures failures;
    private final TaskContext context;
    private Iterator<Tuple2<Object, Object>> records;
    private int count;
    private boolean done;

    StreamIterator(
            DecodedBatches batches, SerializerInstance serializer, ReadMetrics metrics, FetchFailures failures, TaskContext context) {
        this.batches = batches;
        this.serializer = serializer;
        this.metrics = metrics;
        this.failures = failures;
        this.context = context;
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
        count++;
        return records.next();
    }

    /** Tells the metrics of the records given since it was last asked. */
    void count() {
        metrics.records(count);
        count = 0;
    }

    private boolean advance() {
        if (done) {
            return false;
        }
        context.killTaskIfInterrupted();
        count();
        try {
            if (batches.next()) {
                records = serializer
                        .deserializeStream(new ByteArrayInputStream(batches.data(), 0, batches.length()))
                        .asKeyValueIterator();
                return true;
            }
        } catch (IOException error) {
            throw failures.raise(error);
        }
        done = true;
        records = null;
        metrics.finish();
        return false;
    }
}
