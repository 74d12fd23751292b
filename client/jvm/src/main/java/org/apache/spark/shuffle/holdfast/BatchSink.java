package org.apache.spark.shuffle.holdfast;

import java.io.IOException;

/**
 * Where full buffers go: the push of one map attempt. {@link PartitionBuffers} is the only caller; tests give one that collects.
 */
interface BatchSink {
    /**
     * Takes {@code length} bytes of whole records, to be read back in one piece, however long. The array is the caller's again when this returns.
     *
     * @param records how many records these are
     * @param last nothing follows for this partition
     */
    void write(int partition, byte[] data, int offset, int length, int records, boolean last) throws IOException;
}
