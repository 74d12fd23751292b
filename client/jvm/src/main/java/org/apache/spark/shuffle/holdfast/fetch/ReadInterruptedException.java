package org.apache.spark.shuffle.holdfast.fetch;

import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** The thread was interrupted while it waited for data: nothing is wrong with the data. The interrupt is still set. */
public final class ReadInterruptedException extends HoldfastException {
    private static final long serialVersionUID = 1L;

    ReadInterruptedException(String where) {
        super(Status.UNAVAILABLE, where + ": the reading thread was interrupted");
    }
}
