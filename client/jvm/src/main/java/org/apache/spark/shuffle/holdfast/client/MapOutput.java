package org.apache.spark.shuffle.holdfast.client;

import java.io.Serializable;

/**
 * What an attempt of a map wrote, for the driver to commit. Sent there by Java serialization. Arrays are not copied: do not change them.
 *
 * @param map the number of the map
 * @param attempt the attempt
 * @param partitionBytes by partition: bytes as they were sent, at least 1 where there was a block
 * @param records the sum of what the writer was told
 */
public record MapOutput(int map, long attempt, long[] partitionBytes, long records) implements Serializable {}
