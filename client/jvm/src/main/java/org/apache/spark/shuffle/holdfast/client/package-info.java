/**
 * The public API of Holdfast for Java: shuffles of byte blocks, for engines that bring their own rows.
 *
 * <p>Stable: what is in this package, {@link org.apache.spark.shuffle.holdfast.wire.HoldfastException} with the numbers of
 * {@link org.apache.spark.shuffle.holdfast.wire.Status}, and, for engines inside of Spark, the public methods of
 * {@link org.apache.spark.shuffle.holdfast.HoldfastShuffleManager}, {@link org.apache.spark.shuffle.holdfast.MapAttempt} and the constructor of
 * {@link org.apache.spark.shuffle.holdfast.HoldfastShuffleHandle} that takes another handle. Methods may be added, none is changed or removed within a major
 * version; so call these interfaces, and do not implement them. All other packages are Holdfast's own and change at any time.
 *
 * <p>No type of Spark is part of this package; at run time it needs the jars of a Spark from 3.5 on. Holdfast's own shuffle manager writes and
 * reads through it. docs/use/spark.md, "For engines", says where to begin.
 */
package org.apache.spark.shuffle.holdfast.client;
