package org.apache.spark.shuffle.holdfast;

import java.nio.ByteBuffer;
import java.util.NoSuchElementException;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.Product2;
import scala.Tuple2;

/**
 * The rows of SQL: one UnsafeRow that is pointed at one row of the present batch after the other, nothing copied.
 *
 * <p>Rules: as with Spark's own reader, row and pair are the same objects every time, and good until the next {@code next()}.
 */
final class RowIterator extends BatchIterator {
    private static final Integer NO_KEY = 0;
    private static final byte[] NOTHING = new byte[0];

    private UnsafeRow row;
    private Tuple2<Object, Object> pair;
    private byte[] data = NOTHING;
    private int at;
    private int end;

    RowIterator(TaskBlocks blocks, int fields) {
        super(blocks);
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
        // Wrong only if a writer was: but a row beyond its array would be read from foreign memory.
        if (from > end) {
            throw damaged(end - at);
        }
        int size = PartitionBuffers.rowLength(data, at);
        if (size < 0 || size > end - from) {
            throw damaged(size);
        }
        row.pointTo(data, Platform.BYTE_ARRAY_OFFSET + (long) from, size);
        at = from + size;
        given();
        return pair;
    }

    @Override
    void begin(ByteBuffer block) {
        data = block.array();
        at = block.arrayOffset() + block.position();
        end = at + block.remaining();
    }

    @Override
    void drained() {
        data = NOTHING;
        at = 0;
        end = 0;
        row = null;
        pair = null;
    }

    private RuntimeException damaged(int size) {
        return failed(new HoldfastException(
                Status.CORRUPT, "a batch of " + end + " bytes names a row of " + size + " bytes at " + at + " although its checksum is right"));
    }
}
