package org.apache.spark.shuffle.holdfast;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.client.BlockReader;
import org.apache.spark.shuffle.holdfast.client.HoldfastClient;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.shuffle.sort.SortShuffleManager;

/**
 * {@code spark.shuffle.manager} of Holdfast.
 *
 * <p>Rules: it extends Spark's own manager, which serves whatever fell back; so a shuffle is Holdfast's or Spark's from its registration on,
 * distinguished by its handle. On executors {@link #unregisterShuffle} only clears local state, the driver calls the masters. Spark
 * makes one per JVM; in local mode that one is driver and executor. An engine extends it, or has one, to take
 * part in {@link #registerShuffle}, {@link #getWriter} and {@link #getReader}: its writers and readers are made over {@link #mapAttempt} and
 * {@link #blocks}, as those of this class.
 */
public class HoldfastShuffleManager extends SortShuffleManager {
    /** Where the masters did not answer, the next shuffles do not wait for them again for so long. */
    private static final long FALLBACK_PAUSE_NS = TimeUnit.SECONDS.toNanos(30);

    private final SparkConf sparkConf;
    private final HoldfastConf conf;
    private final HoldfastRuntime runtime;
    private final DriverShuffles driver;
    private final Fallbacks fallbacks = new Fallbacks();
    /** Shuffles that are Spark's own and that it still needs. */
    private final Set<Integer> fellBack = ConcurrentHashMap.newKeySet();
    /** Whether the masters are not asked for a while, and since when. */
    private volatile boolean pausing;
    private volatile long fellBackAtNs;
    private boolean listening;
    /** Whether Spark shows our metrics. */
    private final AtomicBoolean shown = new AtomicBoolean();
    /** Shuffles that tasks of this JVM met, as keys alone: a handle would keep the shuffle from ever being cleaned up. */
    private final Map<Integer, ShuffleKey> seen = new ConcurrentHashMap<>();

    /** Called by Spark, on the driver and in every executor. Makes no call; wrong settings are an IllegalArgumentException. */
    public HoldfastShuffleManager(SparkConf sparkConf, boolean isDriver) {
        super(sparkConf);
        this.sparkConf = sparkConf;
        conf = HoldfastConf.of(sparkConf);
        if (isDriver) {
            conf.security().read(); // so that what is wrong is said now
        }
        runtime = new HoldfastRuntime(conf, isDriver ? sparkConf.get("spark.app.name", "spark") : null);
        driver = isDriver ? new DriverShuffles(conf, runtime, runtime.application()) : null;
        if (isDriver) {
            Warnings.switchOff(sparkConf).forEach(reason -> LogEvent.SETTING_UNSUITABLE.log("reason", reason));
            Warnings.about(sparkConf, conf).forEach(reason -> LogEvent.SETTING_UNSUITABLE.log("reason", reason));
        }
    }

    @Override
    public <K, V, C> ShuffleHandle registerShuffle(int shuffle, ShuffleDependency<K, V, C> dependency) {
        int maps = dependency.rdd().getNumPartitions();
        if (maps == 0 || dependency.partitioner().numPartitions() == 0) {
            return super.registerShuffle(shuffle, dependency); // nothing will be written or read
        }
        show(fallbacks);
        if (conf.mayFallBack() && pausing && System.nanoTime() - fellBackAtNs < FALLBACK_PAUSE_NS) {
            fallbacks.addAnother(shuffle);
            fellBack.add(shuffle);
            return super.registerShuffle(shuffle, dependency);
        }
        try {
            var handle = driver.register(shuffle, dependency, maps, sparkConf.getBoolean("spark.io.encryption.enabled", false));
            listen(dependency);
            fallbacks.reached();
            driver.report(fallbacks);
            return handle;
        } catch (HoldfastException error) {
            return fallBack(shuffle, dependency, error);
        }
    }

    private <K, V, C> ShuffleHandle fallBack(int shuffle, ShuffleDependency<K, V, C> dependency, HoldfastException error) {
        if (!conf.mayFallBack()) {
            String advice = error.status() != Status.UNAVAILABLE ? "" : ". Try `holdfast status --masters " + conf.endpoints()
                    + "`. Masters are waited for as " + HoldfastConf.PREFIX + "register.timeout says for the first shuffle, "
                    + HoldfastConf.PREFIX + "no_room.grace for those after it";
            throw new IllegalStateException("shuffle " + shuffle + " could not be registered with Holdfast, and "
                    + conf.noFallback() + ": " + error.getMessage() + advice, error);
        }
        fallbacks.add(shuffle, error);
        fellBack.add(shuffle);
        driver.report(fallbacks);
        if (error.status() != Status.QUOTA_EXCEEDED) { // the masters said that at once, and may say otherwise of the next one
            fellBackAtNs = System.nanoTime();
            pausing = true;
        }
        return super.registerShuffle(shuffle, dependency);
    }

    /** The first shuffle brings the context, which is not there yet as the manager is made. */
    private synchronized void listen(ShuffleDependency<?, ?, ?> dependency) {
        if (!listening) {
            listening = true;
            dependency.rdd().context().listenerBus().addToQueue(new StageEnds(driver), "holdfast");
            if (conf.security().given() && !dependency.rdd().context().isLocal()) { // else tasks run here
                RpcEnv rpc = SparkEnv.get().rpcEnv();
                rpc.setupEndpoint(TokenEndpoint.NAME, new TokenEndpoint(rpc, runtime.credentials()));
            }
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        if (handle instanceof HoldfastShuffleHandle<?, ?, ?> ours) {
            see(ours, context);
            return new HoldfastShuffleWriter<>(runtime, (HoldfastShuffleHandle<K, V, ?>) ours, context, metrics);
        }
        return super.getWriter(handle, mapId, context, metrics);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, C> ShuffleReader<K, C> getReader(
            ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        if (handle instanceof HoldfastShuffleHandle<?, ?, ?> ours) {
            see(ours, context);
            ReadRange range = new ReadRange(startMap, endMap, startPartition, endPartition);
            return new HoldfastShuffleReader<>(runtime, (HoldfastShuffleHandle<K, ?, C>) ours, range, context, metrics);
        }
        return super.getReader(handle, startMap, endMap, startPartition, endPartition, context, metrics);
    }

    /** The client of this JVM; closed by {@link #stop}, and by nobody else. */
    public final HoldfastClient client() {
        return runtime;
    }

    /**
     * What a ShuffleWriter of an engine is made over, for one task. Makes no call.
     *
     * @param handle what {@link #registerShuffle} returned, which is none of ours where a shuffle fell back
     * @param metrics is told bytes, records and time
     * @param codec what blocks are; readers name the same
     */
    public final MapAttempt mapAttempt(
            HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context, ShuffleWriteMetricsReporter metrics, BlockCodec codec) {
        see(handle, context);
        return new MapAttempt(runtime, handle, context, metrics, runtime.compression(codec));
    }

    /**
     * What a ShuffleReader of an engine is made over: the blocks that Spark's statuses name of the partitions [startPartition, endPartition) of the
     * maps [startMap, endMap). Waits for the commit. Released at the end of the task, or by its reader before. {@code next} and this call throw errors
     * as Spark has to see them: lost data is a FetchFailedException, upon which maps run again.
     *
     * @param metrics is told all but the number of records
     * @param codec what the writers named
     */
    public final BlockReader blocks(
            HoldfastShuffleHandle<?, ?, ?> handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
            ShuffleReadMetricsReporter metrics, BlockCodec codec) {
        see(handle, context);
        ReadRange range = new ReadRange(startMap, endMap, startPartition, endPartition);
        TaskBlocks blocks = TaskBlocks.open(runtime, handle, range, context, new ReadMetrics(metrics, context), codec);
        context.addTaskCompletionListener(blocks);
        return blocks;
    }

    private void see(HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context) {
        if (driver == null) {
            haveToken(handle, context);
            show(null);
            runtime.tokens().began(handle.instance(), context);
        }
        seen.computeIfAbsent(handle.shuffleId(), shuffle -> handle.key(DriverShuffles.ALL_GENERATIONS));
    }

    /** There is a metric system by now. */
    private void show(Fallbacks ofDriver) {
        if (!shown.getAndSet(true)) {
            new HoldfastSource(runtime, ofDriver).register();
        }
    }

    private void haveToken(HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context) {
        if (!handle.secure()) {
            return;
        }
        try {
            runtime.executorTokens().have(handle.instance());
        } catch (HoldfastException error) {
            context.killTaskIfInterrupted();
            throw new IllegalStateException("shuffle " + handle.shuffleId() + ": " + error.getMessage(), error);
        }
    }

    @Override
    public boolean unregisterShuffle(int shuffle) {
        ShuffleKey last = seen.remove(shuffle);
        if (last != null) {
            runtime.forgetAll(last);
        }
        if (driver != null) {
            driver.unregister(shuffle);
        }
        fellBack.remove(shuffle);
        return super.unregisterShuffle(shuffle);
    }

    /** Whether all shuffle data outlives the executors that wrote it: while Spark needs none that fell back. */
    public boolean reliable() {
        return fellBack.isEmpty();
    }

    /** Shuffles that became Spark's own, so far. */
    public int fallbacks() {
        return fallbacks.count();
    }

    /** The application has ended: gives the lease back, upon which the masters drop its shuffles. */
    void endApplication() {
        if (driver != null) {
            driver.close();
        }
    }

    @Override
    public void stop() {
        endApplication();
        runtime.close();
        super.stop();
    }

    /** What tasks of this JVM share; for tests that look for leaks. */
    public HoldfastRuntime runtime() {
        return runtime;
    }
}
