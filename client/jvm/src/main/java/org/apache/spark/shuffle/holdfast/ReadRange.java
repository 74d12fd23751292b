package org.apache.spark.shuffle.holdfast;

/** What is read: the partitions [startPartition, endPartition) of the maps [startMap, endMap). */
record ReadRange(int startMap, int endMap, int startPartition, int endPartition) {}
