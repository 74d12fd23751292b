package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;

/**
 * The rows of SQL: one UnsafeRow that is pointed at one row of the present batch after the other, nothing copied.
 *
 * <p>Rules: as with Spark's own reader, row and pair are the same objects every time, and good until the next {@code next()}. Whether the task was
 * killed is looked at once for each batch.
 */
final class RowIterator extends AbstractIterator<Product2<Object, Object>> {
    private static final Integer NO_KEY = 0;

    private final DecodedBatches batches;
    private final ReadMetrics metrics;
    private final FetchFailures failures;
    private final TaskContext context;
    private final UnsafeRow row;
    private final Tuple2<Object, Object> pair;
    private byte[] data = new byte[0];
    private int at;
    private int end;
    private int rows;
    private boolean done;

    RowIterator(DecodedBatches batches, int fields, ReadMetrics metrics, FetchFailures failures, TaskContext context) {
        this.batches = batches;
        this.metrics = metrics;
        this.failures = failures;
        this.context = context;
        row = new UnsafeRow(fields);
        pair = new Tuple2<>(NO_KEY, row);
    }

    @Override
    public boolean hasNext() {
        return at < end || advance();
    }

    @Override
    public Product2<Object, Object> next() {
        if (at >= end && !advance()) {
            throw new NoSuchElementException("the shuffle's rows are at their end");
        }
        int from = at + PartitionBuffers.PREFIX_BYTES;
        // Wrong only if a writer was: but a row beyond its array would be read from somebody else's memory.
        if (from > end) {
            throw damaged(end - at);
        }
        int size = PartitionBuffers.rowLength(data, at);
        if (size < 0 || size > end - from) {
            throw damaged(size);
        }
        row.pointTo(data, Platform.BYTE_ARRAY_OFFSET + (long) from, size);
        at = from + size;
        rows++;
        return pair;
    }

    /** Tells the metrics of the rows given since it was last asked. */
    void count() {
        metrics.records(rows);
        rows = 0;
    }

    private boolean advance() {
        if (done) {
            return false;
        }
        context.killTaskIfInterrupted();
        count();
        try {
            if (batches.next()) {
                data = batches.data();
                end = batches.length();
                at = 0;
                return true;
            }
        } catch (IOException error) {
            throw failures.raise(error);
        }
        done = true;
        at = end;
        metrics.finish();
        return false;
    }

    private RuntimeException damaged(int size) {
        return failures.raise(new HoldfastException(
                Status.CORRUPT, "a batch of " + end + " bytes names a row of " + size + " bytes at " + at + " although its checksum is right"));
    }
}
