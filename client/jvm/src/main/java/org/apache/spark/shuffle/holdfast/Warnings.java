package org.apache.spark.shuffle.holdfast;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;

/** Settings of Spark that work with Holdfast but cost time or safety, each with a sentence that says what to do. Pure. */
final class Warnings {
    private Warnings() {}

    /** What there is to say about these settings, on the driver as it starts. */
    static List<String> about(SparkConf conf) {
        List<String> found = new ArrayList<>();
        if (conf.getBoolean("spark.sql.adaptive.localShuffleReader.enabled", true)) {
            found.add("spark.sql.adaptive.localShuffleReader.enabled is true: local readers save nothing here and read every partition"
                    + " in many small pieces; set it to false");
        }
        if (conf.getBoolean("spark.dynamicAllocation.shuffleTracking.enabled", false)) {
            found.add("spark.dynamicAllocation.shuffleTracking.enabled is true: executors would be kept for shuffle data that they do"
                    + " not hold; set it to false");
        }
        if (!conf.get("spark.serializer", "").contains("KryoSerializer")) {
            found.add("spark.serializer is not org.apache.spark.serializer.KryoSerializer: RDD shuffles are serialised record by record"
                    + " in a slow form (DataFrames are not concerned)");
        }
        if (conf.getBoolean("spark.shuffle.reduceLocality.enabled", true)) {
            found.add("spark.shuffle.reduceLocality.enabled is true: the driver computes places for reduce tasks that have none;"
                    + " set it to false");
        }
        if (conf.getBoolean("spark.shuffle.push.enabled", false)) {
            found.add("spark.shuffle.push.enabled is true: Spark's own pushing has nothing to push here; set it to false");
        }
        if (!conf.get("spark.shuffle.sort.io.plugin.class", "").equals(HoldfastShuffleDataIO.class.getName())) {
            found.add("spark.shuffle.sort.io.plugin.class is not " + HoldfastShuffleDataIO.class.getName()
                    + ": Spark will run maps again that lost nothing when executors go; set it");
        }
        return found;
    }
}
