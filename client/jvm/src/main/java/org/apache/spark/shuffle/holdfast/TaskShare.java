package org.apache.spark.shuffle.holdfast;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.holdfast.push.PushLimits;

/**
 * How much direct memory a task may take where no setting says so: the tasks that run at once in a JVM together, and what lies idle for the
 * next ones, a share of the executor's overhead, and half of what the JVM allows at most.
 *
 * <p>Direct memory lies beside the heap: it counts as overhead ({@code spark.executor.memoryOverhead}), beyond which YARN and Kubernetes kill
 * the executor, and the JVM itself, Spark's network layer and Python workers live on that, too. The JVM allows as much as heap unless it
 * is set otherwise. A driver that runs the tasks itself has no such bound of its own. Half of a task's share is for pushing, half for reading.
 *
 * @param bytes for pushing, and again for reading
 * @param idle what may lie idle in the JVM for the next task
 */
record TaskShare(long bytes, long idle) {
    private static final long MIB = 1L << 20;
    /** Two of the smallest frames. */
    static final long LEAST = 2 * PushLimits.FRAME_BYTES_MIN;
    private static final long FETCH_MOST = 48 * MIB;
    private static final long IDLE_MOST = 64 * MIB;
    /** The part of it all that may lie idle. */
    private static final int IDLE_PART = 8;
    /** What Spark asks for beside the heap where no setting says so. */
    private static final double OVERHEAD_PART = 0.1;
    private static final String OVERHEAD_LEAST = "384m";
    private static final Pattern LOCAL = Pattern.compile("local(?:\\[(\\d+|\\*)(?:\\s*,.*)?])?");

    /** For this JVM. @param part of the executor's overhead that may be taken */
    static TaskShare of(SparkConf conf, double part) {
        return of(conf, part, directMemory(), Runtime.getRuntime().availableProcessors());
    }

    /** The same where the JVM allows so much direct memory, on so many processors. */
    static TaskShare of(SparkConf conf, double part, long direct, int processors) {
        long all = direct / 2 + Math.min(direct / IDLE_PART, IDLE_MOST);
        if (!isLocal(conf)) {
            all = Math.min(all, (long) (overhead(conf) * part));
        }
        long idle = Math.min(all / IDLE_PART, IDLE_MOST);
        return new TaskShare((all - idle) / 2 / tasks(conf, processors), idle);
    }

    /** What the container of an executor has beside the heap, as Spark asks for it. */
    static long overhead(SparkConf conf) {
        String key = "spark.executor.memoryOverhead";
        if (conf.contains(key)) {
            return conf.getSizeAsMb(key, OVERHEAD_LEAST) * MIB;
        }
        double part = conf.getDouble("spark.executor.memoryOverheadFactor", OVERHEAD_PART);
        long least = conf.getSizeAsMb("spark.executor.minMemoryOverhead", OVERHEAD_LEAST);
        return Math.max(least, (long) (conf.getSizeAsMb("spark.executor.memory", "1g") * part)) * MIB;
    }

    private static boolean isLocal(SparkConf conf) {
        return LOCAL.matcher(conf.get("spark.master", "")).matches();
    }

    /** A frame: the usual size, or the smallest where few of those would fit. Buffers come in these sizes. */
    int frame() {
        return open() / 4 >= PushLimits.USUAL.frameBytes() ? PushLimits.USUAL.frameBytes() : PushLimits.FRAME_BYTES_MIN;
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
        long limit = machine == null ? 0 : Long.parseLong(machine.getVMOption("MaxDirectMemorySize").getValue());
        return limit > 0 ? Math.min(limit, heap) : heap;
    }
}
