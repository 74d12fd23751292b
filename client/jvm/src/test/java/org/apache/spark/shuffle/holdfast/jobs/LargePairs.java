package org.apache.spark.shuffle.holdfast.jobs;

import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/** Large values of an RDD, a partition each, read by one task. Called by tests/spark/plugin_memory_job.py. */
public final class LargePairs {
    private static final int MAPS = 8;

    private LargePairs() {}

    /** How many came, and their bytes. */
    public static long[] coalesced(JavaSparkContext spark, int count, int bytes) {
        List<Integer> numbers = IntStream.range(0, count).boxed().toList();
        return spark.parallelize(numbers, MAPS)
                .mapToPair(number -> new Tuple2<>(number, new byte[bytes]))
                .partitionBy(new HashPartitioner(count))
                .coalesce(1, false)
                .map(pair -> new long[] {1, pair._2().length})
                .reduce((one, other) -> new long[] {one[0] + other[0], one[1] + other[1]});
    }
}
