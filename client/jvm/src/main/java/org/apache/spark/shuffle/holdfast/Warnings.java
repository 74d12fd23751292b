package org.apache.spark.shuffle.holdfast;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.SparkConf;

/**
 * Settings of Spark that Holdfast does not do, or that cost time or safety with it, each with a sentence that says what to do.
 * docs/use/spark.md has them all. What cannot be undone here is refused by {@link HoldfastConf}.
 */
final class Warnings {
    private static final String PUSH = "spark.shuffle.push.enabled";

    private Warnings() {}

    /**
     * Switches off what would only do harm, in the settings that Spark itself uses and passes to its executors. On the driver, while the
     * manager is made: before Spark's scheduler looks. Returns what there is to say about it.
     */
    static List<String> switchOff(SparkConf conf) {
        if (!conf.getBoolean(PUSH, false)) {
            return List.of();
        }
        conf.set(PUSH, "false");
        return List.of(PUSH + " is switched off: Spark would push map files that do not exist, and wait for that in every stage");
    }

    /** What there is to say about these settings, on the driver as it starts; {@code ours} is what was made of them. */
    static List<String> about(SparkConf conf, HoldfastConf ours) {
        List<String> found = new ArrayList<>();
        boolean service = conf.getBoolean("spark.shuffle.service.enabled", false);
        if (!ours.mayFallBack() && !conf.get(HoldfastConf.PREFIX + "fallback", "auto").trim().equalsIgnoreCase("never")) {
            found.add(ours.noFallback());
        }
        if (service && !ours.mayFallBack()) {
            found.add("spark.shuffle.service.enabled is true: executors end where Spark's shuffle service does not run, and it has nothing"
                    + " to serve where no shuffle falls back; set it to false");
        }
        boolean zstd = conf.get("spark.io.compression.codec", "").toLowerCase(Locale.ROOT).contains("zstd");
        for (String key : List.of("spark.io.compression.zstd.strategy", "spark.io.compression.zstd.workers")) {
            if (zstd && !conf.get(key, "0").equals("0")) {
                found.add(key + " does not apply to shuffles: Holdfast compresses a batch at once, by spark.io.compression.zstd.level");
            }
        }
        if (conf.getBoolean("spark.sql.adaptive.localShuffleReader.enabled", true)) {
            found.add("spark.sql.adaptive.localShuffleReader.enabled is true: local readers save nothing here and read every partition"
                    + " in many small pieces; set it to false");
        }
        if (conf.getBoolean("spark.dynamicAllocation.enabled", false) && !service
                && conf.getBoolean("spark.dynamicAllocation.shuffleTracking.enabled", true)) { // as Spark's default is
            found.add("spark.dynamicAllocation.shuffleTracking.enabled is true: executors would be kept for shuffle data that they do"
                    + " not hold; set it to false, unless shuffles shall be able to fall back");
        }
        if (!conf.get("spark.serializer", "").contains("KryoSerializer")) {
            found.add("spark.serializer is not org.apache.spark.serializer.KryoSerializer: RDD shuffles are serialised record by record"
                    + " in a slow form (DataFrames are not concerned)");
        }
        if (conf.getBoolean("spark.shuffle.reduceLocality.enabled", true)) {
            found.add("spark.shuffle.reduceLocality.enabled is true: the driver computes places for reduce tasks that have none;"
                    + " set it to false");
        }
        if (!conf.get("spark.shuffle.sort.io.plugin.class", "").equals(HoldfastShuffleDataIO.class.getName())) {
            found.add("spark.shuffle.sort.io.plugin.class is not " + HoldfastShuffleDataIO.class.getName()
                    + ": Spark will run maps again that lost nothing when executors go; set it");
        }
        return found;
    }
}
