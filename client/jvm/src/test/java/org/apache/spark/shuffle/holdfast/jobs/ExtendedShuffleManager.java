package org.apache.spark.shuffle.holdfast.jobs;

import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.HoldfastShuffleHandle;
import org.apache.spark.shuffle.holdfast.HoldfastShuffleManager;

/** What an engine does to Holdfast's manager: handles of its own, by which it knows its shuffles in tasks. */
public final class ExtendedShuffleManager extends HoldfastShuffleManager {
    /** Called by Spark. */
    public ExtendedShuffleManager(SparkConf conf, boolean isDriver) {
        super(conf, isDriver);
    }

    @Override
    public <K, V, C> ShuffleHandle registerShuffle(int shuffle, ShuffleDependency<K, V, C> dependency) {
        ShuffleHandle made = super.registerShuffle(shuffle, dependency);
        return made instanceof HoldfastShuffleHandle<?, ?, ?> ours ? new Handle<>(ours) : made;
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        if (!(handle instanceof Handle<?, ?, ?>)) {
            throw new IllegalStateException("a task got " + handle);
        }
        return super.getWriter(handle, mapId, context, metrics);
    }

    private static final class Handle<K, V, C> extends HoldfastShuffleHandle<K, V, C> {
        private static final long serialVersionUID = 1L;

        Handle(HoldfastShuffleHandle<K, V, C> made) {
            super(made);
        }
    }
}
