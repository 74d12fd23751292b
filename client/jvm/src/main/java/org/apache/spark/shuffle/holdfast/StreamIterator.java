package org.apache.spark.shuffle.holdfast;

import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.util.NoSuchElementException;
import org.apache.spark.serializer.SerializerInstance;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;

/** Records of any serialiser: each batch is read as a stream of its own. */
final class StreamIterator extends BatchIterator {
    private SerializerInstance serializer;
    private Iterator<Tuple2<Object, Object>> records;

    StreamIterator(TaskBlocks blocks, SerializerInstance serializer) {
        super(blocks);
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
    void begin(ByteBuffer block) {
        var bytes = new ByteArrayInputStream(block.array(), block.arrayOffset() + block.position(), block.remaining());
        records = serializer.deserializeStream(bytes).asKeyValueIterator();
    }

    @Override
    void drained() {
        records = null;
        serializer = null;
    }
}
