package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import scala.Product2;
import scala.collection.Iterator;

/**
 * Serialises the records of a map into {@link PartitionBuffers}, in the way that suits the dependency's serialiser.
 *
 * <p>Rules: every record is serialised at once and not kept, so iterators may hand out the same object again and again. What one batch
 * holds can be read without any other. Made by {@link HoldfastShuffleWriter}.
 */
sealed interface RecordWriter permits RowWriter, SharedStreamWriter, OwnStreamsWriter {
    /** Writes all records into the buffers and returns their number; what is left in the buffers is the caller's to send. */
    <K, V> long write(Iterator<Product2<K, V>> records) throws IOException;
}
