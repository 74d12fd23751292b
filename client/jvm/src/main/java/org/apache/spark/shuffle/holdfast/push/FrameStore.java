package org.apache.spark.shuffle.holdfast.push;

import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;

/** Where a session takes frames from, and gives them back to: memory is the edge's concern. Called by {@link PushSession}. */
interface FrameStore {
    /** Returns an empty frame with room for at least {@code bytes}. Throws {@link NoDirectMemoryException}. */
    PushFrame take(Destination destination, int bytes);

    /** The frame is not needed any more. */
    void release(PushFrame frame);
}
