package org.apache.spark.shuffle.holdfast.fetch;

import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;

/**
 * What the readers of a JVM share.
 *
 * @param limits what each may take
 * @param book what is known of the workers
 */
public record ReadContext(Masters masters, ConnectionPool connections, FetchLimits limits, ReadBook book) {}
