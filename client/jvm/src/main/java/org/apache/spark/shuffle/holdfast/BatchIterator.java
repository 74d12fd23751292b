package org.apache.spark.shuffle.holdfast;

import java.nio.ByteBuffer;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.collection.AbstractIterator;

/**
 * What a reduce task iterates over, block by block.
 *
 * <p>Rules: records are counted once for each block. A task may end before the last record (a
 * LIMIT, an error, a kill), so it holds this as a listener; and it may read thousands of partitions one after the other (coalesce), so an iterator
 * that is drained holds nothing any more: neither blocks, nor the last row, nor what is known of the maps.
 */
abstract class BatchIterator extends AbstractIterator<Product2<Object, Object>> implements TaskCompletionListener {
    /** Null when it is drained. */
    private TaskBlocks blocks;
    /** Records returned since the last update of the metrics. */
    private int count;

    BatchIterator(TaskBlocks blocks) {
        this.blocks = blocks;
    }

    /** Records are now those of this block, which has an array. */
    abstract void begin(ByteBuffer block);

    /** Releases the last block. */
    abstract void drained();

    /** Moves to the next block; false at the end. */
    final boolean advance() {
        if (blocks == null) {
            return false;
        }
        blocks.used(count);
        count = 0;
        if (blocks.next()) {
            begin(blocks.block());
            return true;
        }
        blocks = null;
        drained();
        return false;
    }

    /** A record was given. */
    final void given() {
        count++;
    }

    /** Throws what an error in the present block means to Spark. */
    final RuntimeException failed(HoldfastException error) {
        return blocks.failed(error);
    }

    /** The task has ended; another thread may still be reading. */
    @Override
    public final void onTaskCompletion(TaskContext task) {
        TaskBlocks left = blocks;
        if (left != null) {
            left.end(count);
            count = 0;
        }
    }
}
