package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Counts what became batches, to be compared with what Spark handed over before there is a status. One thread. Made by
 * {@link HoldfastShuffleWriter}.
 */
final class SentRecords implements BatchSink {
    private final BatchSink sink;
    private long records;
    private long bytes;

    SentRecords(BatchSink sink) {
        this.sink = sink;
    }

    @Override
    public void write(int partition, byte[] data, int offset, int length, int count, boolean last) throws IOException {
        sink.write(partition, data, offset, length, count, last);
        records += count;
        bytes += length;
    }

    /** Throws INTERNAL if that is not what was handed over; whatever lost or doubled it, wrong data is no answer. */
    void check(RecordWriter handedOver, Object attempt) throws HoldfastException {
        if (records != handedOver.records() || bytes != handedOver.bytes()) {
            throw new HoldfastException(Status.INTERNAL, attempt + ": Spark handed over " + handedOver.records() + " records of "
                    + handedOver.bytes() + " bytes, and " + records + " records of " + bytes + " bytes were sent");
        }
    }
}
