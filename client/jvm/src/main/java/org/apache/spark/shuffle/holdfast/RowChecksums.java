package org.apache.spark.shuffle.holdfast;

/**
 * Checksums over the records of each partition, independent of their order, that newer lines of Spark compare between attempts of a map.
 *
 * <p>Made by {@link Shims}; the writers add every record that they send.
 */
interface RowChecksums {
    /** Adds one record of a partition. */
    void add(int partition, Object key, Object value);

    /** For the map's status. */
    long value();
}
