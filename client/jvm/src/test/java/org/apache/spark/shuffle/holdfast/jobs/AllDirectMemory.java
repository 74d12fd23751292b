package org.apache.spark.shuffle.holdfast.jobs;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.HoldfastShuffleManager;
import org.apache.spark.sql.api.java.UDF3;

/**
 * A function of SQL that gives back its first argument. At the row that the second one names, a task's first attempt takes all the direct memory that
 * the JVM has left, as other tasks might; at the row that the third one names, or when the attempt ends, it is free again. Used by
 * tests/spark/plugin_memory_job.py.
 */
public final class AllDirectMemory implements UDF3<Long, Long, Long, Long> {
    private static final long serialVersionUID = 1L;
    private static final int LARGEST = 1 << 20;
    private static final int SMALLEST = 1 << 12;
    private static final List<ByteBuffer> TAKEN = new ArrayList<>();

    @Override
    public Long call(Long row, Long first, Long last) {
        if (row.equals(first) && TaskContext.get().attemptNumber() == 0) {
            TaskContext.get().addTaskCompletionListener(task -> {
                release();
                return null;
            });
            take();
        }
        if (row.equals(last)) {
            release();
        }
        return row;
    }

    /** Spark 4.3 has a second kind of shuffle manager and a new name for this one. */
    @SuppressWarnings("deprecation")
    private static synchronized void take() {
        ((HoldfastShuffleManager) SparkEnv.get().shuffleManager()).runtime().buffers().trim();
        for (int size = LARGEST; size >= SMALLEST; size /= 16) {
            boolean more = true;
            while (more) {
                try {
                    TAKEN.add(ByteBuffer.allocateDirect(size));
                } catch (OutOfMemoryError full) {
                    more = false;
                }
            }
        }
        System.err.println("all direct memory is taken, in buffers: " + TAKEN.size());
    }

    /** The JVM frees what nobody refers to when it runs out. */
    private static synchronized void release() {
        TAKEN.clear();
    }
}
