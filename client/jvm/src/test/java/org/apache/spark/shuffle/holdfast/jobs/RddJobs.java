package org.apache.spark.shuffle.holdfast.jobs;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.Aggregator;
import org.apache.spark.HashPartitioner;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.KryoSerializer;
import org.apache.spark.serializer.Serializer;
import scala.Function1;
import scala.Function2;
import scala.Tuple2;
import scala.math.Ordering;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Shuffles that only the JVM's RDDs make: aggregated on the map side or not, ordered, with serialisers of both kinds, of records that are reused or very
 * long. Each answers with a text that is the same whoever shuffled. Called by tests/spark/plugin_io_job.py through py4j.
 */
public final class RddJobs {
    private static final int MAPS = 5;
    private static final int RECORDS = 20_000;
    private static final int KEYS = 3_000;

    private RddJobs() {}

    /** Runs a job; the serialiser is "kryo" or "java". */
    public static String run(JavaSparkContext context, String job, String serializer) {
        Serializer chosen = serializer.equals("kryo")
                ? new KryoSerializer(context.getConf().set("spark.kryoserializer.buffer.max", "256m"))
                : new JavaSerializer(context.getConf());
        JavaPairRDD<String, Long> pairs = pairs(context);
        return switch (job) {
            case "partitionBy" -> digest(shuffled(pairs, 7, chosen));
            case "manyPartitions" -> digest(shuffled(pairs, 3_000, chosen));
            case "reduceByKey" -> digest(pairs.combineByKey(one -> one, Long::sum, Long::sum, new HashPartitioner(6), true, chosen));
            case "combineByKey" -> digest(pairs.combineByKey(one -> one, Long::sum, Long::sum, new HashPartitioner(6), false, chosen));
            case "sortWithin" -> inOrder(ordered(pairs, false, false, chosen));
            case "sortedCombined" -> inOrder(ordered(pairs, true, true, chosen));
            case "sortedAggregated" -> inOrder(ordered(pairs, true, false, chosen));
            case "sortByKey" -> sorted(pairs.sortByKey(true, 4));
            case "cogroup" -> cogroup(pairs);
            case "groupByKey" -> digest(pairs.groupByKey(5).mapValues(RddJobs::sum));
            case "reused" -> reused(context, chosen);
            case "long" -> longRecords(context, chosen, 20);
            case "veryLong" -> longRecords(context, chosen, 70);
            case "arrow" -> ArrowShuffleManager.job(context);
            case "sparse" -> digest(shuffled(pairs.filter(pair -> pair._1().equals("key 7")), 50, chosen));
            default -> throw new IllegalArgumentException(job);
        };
    }

    private static JavaPairRDD<String, Long> pairs(JavaSparkContext context) {
        return context.parallelize(Collections.nCopies(MAPS, 0), MAPS).mapPartitionsWithIndex((map, none) -> {
            Random random = new Random(map);
            List<Tuple2<String, Long>> all = new ArrayList<>();
            for (int each = 0; each < (map == 3 ? 0 : RECORDS); each++) {
                all.add(new Tuple2<>("key " + random.nextInt(KEYS), random.nextLong() >> 20));
            }
            return all.iterator();
        }, true).mapToPair(pair -> pair);
    }

    private static ClassTag<Object> any() {
        return ClassTag$.MODULE$.Any();
    }

    private static <K, V> ShuffledRDD<Object, Object, Object> raw(JavaPairRDD<K, V> pairs, Partitioner partitioner, Serializer serializer) {
        @SuppressWarnings("unchecked")
        JavaPairRDD<Object, Object> untyped = (JavaPairRDD<Object, Object>) (JavaPairRDD<?, ?>) pairs;
        return new ShuffledRDD<Object, Object, Object>(untyped.rdd(), partitioner, any(), any(), any()).setSerializer(serializer);
    }

    @SuppressWarnings("unchecked")
    private static <K, V> JavaPairRDD<K, V> typed(ShuffledRDD<Object, Object, Object> shuffled) {
        return (JavaPairRDD<K, V>) (JavaPairRDD<?, ?>) new JavaPairRDD<>(shuffled, any(), any());
    }

    private static <K, V> JavaPairRDD<K, V> shuffled(JavaPairRDD<K, V> pairs, int partitions, Serializer serializer) {
        return typed(raw(pairs, new HashPartitioner(partitions), serializer));
    }

    @SuppressWarnings("unchecked")
    private static JavaPairRDD<String, Long> ordered(
            JavaPairRDD<String, Long> pairs, boolean aggregated, boolean onMapSide, Serializer serializer) {
        Ordering<Object> order = (Ordering<Object>) (Ordering<?>) Ordering.String$.MODULE$;
        ShuffledRDD<Object, Object, Object> shuffled = raw(pairs, new HashPartitioner(4), serializer).setKeyOrdering(order);
        if (aggregated) {
            Function1<Object, Object> first = new First();
            Function2<Object, Object, Object> add = new Add();
            shuffled = shuffled.setAggregator(new Aggregator<>(first, add, add)).setMapSideCombine(onMapSide);
        }
        return typed(shuffled);
    }

    private static final class First extends scala.runtime.AbstractFunction1<Object, Object> implements java.io.Serializable {
        @Override
        public Object apply(Object value) {
            return value;
        }
    }

    private static final class Add extends scala.runtime.AbstractFunction2<Object, Object, Object> implements java.io.Serializable {
        @Override
        public Object apply(Object left, Object right) {
            return (Long) left + (Long) right;
        }
    }

    private static String cogroup(JavaPairRDD<String, Long> pairs) {
        JavaPairRDD<String, Long> other = pairs.filter(pair -> pair._2() % 3 == 0).mapValues(value -> value * 2);
        return digest(pairs.cogroup(other, 5).mapValues(both -> sum(both._1()) * 31 + sum(both._2())));
    }

    private static long sum(Iterable<Long> values) {
        long sum = 0;
        for (long value : values) {
            sum += value;
        }
        return sum;
    }

    /** Iterators may hand out one object again and again: what they held at the time is what has to arrive. */
    private static String reused(JavaSparkContext context, Serializer serializer) {
        JavaPairRDD<Integer, byte[]> pairs = context.parallelize(Collections.nCopies(3, 0), 3).mapPartitionsToPair(none -> {
            byte[] same = new byte[100];
            return new Iterator<Tuple2<Integer, byte[]>>() {
                private int given;

                @Override
                public boolean hasNext() {
                    return given < 10_000;
                }

                @Override
                public Tuple2<Integer, byte[]> next() {
                    Arrays.fill(same, (byte) given);
                    return new Tuple2<>(given++, same);
                }
            };
        });
        return digest(shuffled(pairs, 9, serializer).mapToPair(pair -> new Tuple2<>("k" + pair._1(), (long) Arrays.hashCode(pair._2()))));
    }

    private static String longRecords(JavaSparkContext context, Serializer serializer, int mebibytes) {
        JavaPairRDD<Integer, byte[]> pairs = context.parallelize(List.of(1, 2, 3), 3).mapToPair(seed -> {
            byte[] bytes = new byte[(mebibytes << 20) + seed];
            new Random(seed).nextBytes(bytes);
            return new Tuple2<>(seed, bytes);
        });
        return digest(shuffled(pairs, 2, serializer).mapToPair(pair -> new Tuple2<>("k" + pair._1(), (long) Arrays.hashCode(pair._2()))));
    }

    /** Of each partition how many records came and what they add up to. */
    private static String digest(JavaPairRDD<String, Long> records) {
        return records.mapPartitionsWithIndex((partition, each) -> {
            long count = 0;
            long sum = 0;
            while (each.hasNext()) {
                Tuple2<String, Long> record = each.next();
                count++;
                sum += (record._2() + 1) * (record._1().hashCode() | 1L);
            }
            return List.of(count == 0 ? "" : partition + ":" + count + ":" + sum).iterator();
        }, true).filter(text -> !text.isEmpty()).collect().toString();
    }

    /** The same, with the order of keys. */
    private static String inOrder(JavaPairRDD<String, Long> records) {
        return records.mapPartitionsWithIndex((partition, each) -> {
            long keys = 0;
            TreeMap<String, Long> sums = new TreeMap<>();
            while (each.hasNext()) {
                Tuple2<String, Long> record = each.next();
                keys = keys * 31 + record._1().hashCode();
                sums.merge(record._1(), record._2(), Long::sum);
            }
            return List.of(partition + ":" + keys + ":" + sums.hashCode()).iterator();
        }, true).collect().toString();
    }

    /** The order of all keys and what each adds up to. Not by partitions: Spark draws their bounds by the number of the RDD in its session. */
    private static String sorted(JavaPairRDD<String, Long> records) {
        long keys = 0;
        TreeMap<String, Long> sums = new TreeMap<>();
        for (Tuple2<String, Long> record : records.collect()) {
            keys = keys * 31 + record._1().hashCode();
            sums.merge(record._1(), record._2(), Long::sum);
        }
        return keys + ":" + sums.hashCode();
    }
}
