package org.apache.spark.shuffle.holdfast;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.ShuffleManager;
import org.apache.spark.shuffle.api.ShuffleDataIO;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDriverComponents;

/**
 * {@code spark.shuffle.sort.io.plugin.class} of Holdfast: declares that shuffle data outlives executors.
 *
 * <p>Rules: reliable storage is claimed while Spark needs no shuffle that fell back, since the data of one that did lies on executors. Everything else is
 * Spark's own, which is what shuffles that fell back are written with. Made by Spark; the driver's part is used on the driver only.
 */
public final class HoldfastShuffleDataIO implements ShuffleDataIO {
    private final LocalDiskShuffleDataIO local;
    private final boolean ours;

    /** Called by Spark. */
    public HoldfastShuffleDataIO(SparkConf conf) {
        local = new LocalDiskShuffleDataIO(conf);
        ours = isOurs(conf.get("spark.shuffle.manager", "sort"));
    }

    /** Whether it is the class of Holdfast's manager, or of one that extends it; Spark's own have short names as well. */
    private static boolean isOurs(String manager) {
        if (manager.equals(HoldfastShuffleManager.class.getName())) {
            return true;
        }
        ClassLoader given = Thread.currentThread().getContextClassLoader();
        ClassLoader loader = given != null ? given : HoldfastShuffleDataIO.class.getClassLoader();
        try {
            return HoldfastShuffleManager.class.isAssignableFrom(Class.forName(manager, false, loader));
        } catch (ClassNotFoundException | LinkageError notLoaded) { // or a short name
            return false;
        }
    }

    @Override
    public ShuffleExecutorComponents executor() {
        return local.executor();
    }

    @Override
    public ShuffleDriverComponents driver() {
        return new Driver(ours);
    }

    private static final class Driver extends LocalDiskShuffleDriverComponents {
        private final boolean ours;

        Driver(boolean ours) {
            this.ours = ours;
        }

        @Override
        public boolean supportsReliableStorage() {
            HoldfastShuffleManager manager = manager();
            return manager == null ? ours : manager.reliable();
        }

        @Override
        public void cleanupApplication() {
            HoldfastShuffleManager manager = manager();
            if (manager != null) {
                manager.endApplication();
            }
            super.cleanupApplication();
        }

        /** Null before Spark has made it, and where another one is in use. */
        @SuppressWarnings("deprecation") // 4.3 names another way, which the lines before do not have
        private static HoldfastShuffleManager manager() {
            SparkEnv env = SparkEnv.get();
            ShuffleManager found = env == null ? null : env.shuffleManager();
            return found instanceof HoldfastShuffleManager ours ? ours : null;
        }
    }
}
