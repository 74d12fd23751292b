package org.apache.spark.shuffle.holdfast.fetch;

import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/** What the cores want done; carried out in order by {@link FetchReader}. */
sealed interface Effect {
    /** Open a stream for these files, in this order. */
    record OpenStream(int stream, int worker, List<EpochFile> files) implements Effect {}

    /** Close the stream; what still comes of it is ignored. */
    record CloseStream(int stream) implements Effect {}

    /** Ask the masters, after so long, for live workers and their addresses. */
    record AskMasters(long afterNs) implements Effect {}

    /** Every file is complete, or is not needed any more. */
    record Complete() implements Effect {}

    /** The read is over. */
    record Failed(HoldfastException error) implements Effect {}
}
