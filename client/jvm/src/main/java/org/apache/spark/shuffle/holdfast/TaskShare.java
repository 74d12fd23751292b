package org.apache.spark.shuffle.holdfast;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.holdfast.push.PushLimits;

/**
 * How much direct memory a task may take where no setting says so: the tasks that run at once in a JVM together a quarter of it for what
 * they push, and as much for what they read.
 *
 * <p>The JVM allows as much direct memory as heap unless it is told otherwise, and Spark's own network layer lives on that, too. Executors
 * with 2 GiB for each core have the usual limits.
 *
 * @param bytes for pushing, and again for reading
 */
record TaskShare(long bytes) {
    private static final long MIB = 1L << 20;
    private static final int PARTS = 4;
    private static final long LEAST = 4 * MIB;
    private static final long FETCH_MOST = 48 * MIB;
    private static final long IDLE_MOST = 64 * MIB;
    private static final Pattern LOCAL = Pattern.compile("local(?:\\[(\\d+|\\*)(?:\\s*,.*)?])?");

    /** For this JVM. */
    static TaskShare of(SparkConf conf) {
        return new TaskShare(directMemory() / PARTS / tasks(conf, Runtime.getRuntime().availableProcessors()));
    }

    /** Memory of frames being filled: a third, at most the usual. */
    long open() {
        return within(bytes / 3, PushLimits.USUAL.openBytes());
    }

    /** Memory of frames not acknowledged: the rest. */
    long held() {
        return within(bytes - bytes / 3, PushLimits.USUAL.heldBytes());
    }

    /** What is on the way to a reader. */
    long fetch() {
        return within(bytes, FETCH_MOST);
    }

    /** What may lie idle in the JVM for the next task. */
    static long idle() {
        return within(directMemory() / PARTS / 2, IDLE_MOST);
    }

    /** How many tasks a JVM of this application runs at once, at most. */
    static int tasks(SparkConf conf, int processors) {
        Matcher local = LOCAL.matcher(conf.get("spark.master", ""));
        String cores = local.matches() ? local.group(1) == null ? "1" : local.group(1) : conf.get("spark.executor.cores", "*");
        int slots = cores.equals("*") ? processors : Integer.parseInt(cores);
        return Math.max(1, slots / Math.max(1, conf.getInt("spark.task.cpus", 1)));
    }

    private static long within(long bytes, long most) {
        return Math.max(LEAST, Math.min(most, bytes));
    }

    private static long directMemory() {
        long heap = Runtime.getRuntime().maxMemory();
        HotSpotDiagnosticMXBean machine = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        long told = machine == null ? 0 : Long.parseLong(machine.getVMOption("MaxDirectMemorySize").getValue());
        return told > 0 ? Math.min(told, heap) : heap;
    }
}
