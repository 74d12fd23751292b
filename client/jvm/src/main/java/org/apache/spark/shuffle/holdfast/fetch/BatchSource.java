package org.apache.spark.shuffle.holdfast.fetch;

import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/** Where the batches of a read come from: a {@link FetchReader}, or what a test has instead. */
public interface BatchSource extends AutoCloseable {
    /** Returns the next payload, good until the next call, or null if all of them were returned and nothing is missing. */
    FetchedBatch next() throws HoldfastException;

    /** Ends a {@link #next} that waits on another thread, or the next one, soon and with UNAVAILABLE. Waits for nothing. */
    void stop();

    /** Gives connections and memory back; harmless at any time, but not beside {@link #next}. */
    @Override
    void close();
}
