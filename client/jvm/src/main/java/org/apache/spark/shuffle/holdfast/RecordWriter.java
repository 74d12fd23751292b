package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import scala.Product2;
import scala.collection.Iterator;

/**
 * Serialises the records of a map into {@link PartitionBuffers}, in the way that suits the dependency's serialiser.
 *
 * <p>Rules: every record is serialised at once and not kept, so iterators may hand out the same object again and again. What one batch
 * holds can be read without any other. What Spark handed over is counted here, where it comes from, and from nothing that the buffers say. Made by
 * {@link HoldfastShuffleWriter}, which compares.
 */
sealed interface RecordWriter permits RowWriter, SharedStreamWriter, OwnStreamsWriter {
    /** Writes all records into the buffers; what is left there is the caller's to send. */
    <K, V> void write(Iterator<Product2<K, V>> records) throws IOException;

    /** How many records were handed over. */
    long records();

    /** Their bytes as serialised, with what each needs to be found again. Final once the buffers are sent: streams may be ended as late as that. */
    long bytes();
}
