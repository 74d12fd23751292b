package org.apache.spark.shuffle.holdfast;

import java.io.Serializable;

/**
 * What a shuffle is registered with, the same in each generation.
 *
 * @param partitions at least 1
 * @param maps at least 1
 * @param copies how many are asked for
 * @param ack a level of {@link org.apache.spark.shuffle.holdfast.wire.Ack}
 * @param ackCopies how many copies hold a batch before it is acknowledged
 */
record ShuffleShape(int partitions, int maps, int copies, int ack, int ackCopies) implements Serializable {}
