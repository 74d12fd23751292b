package org.apache.spark.shuffle.holdfast;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.holdfast.control.ApplicationLease;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/**
 * The driver's part: registering and forgetting shuffles, and the early commit.
 *
 * <p>Rules: nothing here has to happen for data to be safe: readers commit
 * what was not committed, and the end of the lease drops the rest. Thread-safe. Made by the manager on the driver only.
 */
final class DriverShuffles implements AutoCloseable {
    /** Commits under way or waiting; one more is left to the readers. */
    private static final int COMMITS_MAX = 64;

    private static final int COMMITTERS = 4;
    /** Dropped shuffles that are remembered. */
    private static final int DROPPED_MAX = 10_000;

    /** Generations are dropped up to this one when the whole shuffle is dropped. */
    static final int ALL_GENERATIONS = Integer.MAX_VALUE;

    private record Registered(ShuffleKey first, int partitions, FirstPlaces places) {}

    private final HoldfastConf conf;
    private final HoldfastRuntime runtime;
    private final Application application;
    /** By shuffle; without the dependency, since a handle here would keep Spark's cleaner from ever letting go of the shuffle. */
    private final Map<Integer, Registered> registered = new ConcurrentHashMap<>();
    /**
     * Those that were dropped and of which Spark keeps the statuses: plans may outlive them, and then their maps run again. Forgetting one costs an
     * early commit and end.
     */
    private final Map<Integer, Registered> dropped = Collections.synchronizedMap(new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, Registered> eldest) {
            return size() > DROPPED_MAX;
        }
    });
    /** Calls that the masters have not accepted yet. */
    private final Set<ShuffleKey> unforgotten = new LinkedHashSet<>();
    /** Somebody is telling them. */
    private boolean forgetting;
    private final ThreadPoolExecutor committers;

    DriverShuffles(HoldfastConf conf, HoldfastRuntime runtime, Application application) {
        this.conf = conf;
        this.runtime = runtime;
        this.application = application;
        committers = new ThreadPoolExecutor(COMMITTERS, COMMITTERS, 10, TimeUnit.SECONDS, new ArrayBlockingQueue<>(COMMITS_MAX), work -> {
            Thread thread = new Thread(work, "holdfast-commit");
            thread.setDaemon(true);
            return thread;
        }, new ThreadPoolExecutor.DiscardPolicy());
        committers.allowCoreThreadTimeOut(true);
    }

    /** Registers generation 0 of a shuffle. Throws the reason against it; then the caller decides whether it falls back. */
    <K, V, C> HoldfastShuffleHandle<K, V, C> register(int shuffle, ShuffleDependency<K, V, C> dependency, int maps, boolean encrypted)
            throws HoldfastException {
        SparkContext context = dependency.rdd().context();
        application.describe(context.sparkUser(), context.applicationId(), uiUrl(context));
        Placed placed = runtime.register(shuffle, maps, dependency.partitioner().numPartitions());
        var handle = new HoldfastShuffleHandle<>(
                shuffle, dependency, placed.key().instance(), runtime.credentials().secure(), placed.shape(), encrypted, new FirstPlaces());
        handle.places().are(placed);
        registered.put(shuffle, new Registered(handle.key(0), placed.partitions(), handle.places()));
        name(dependency, handle.key(0));
        return handle;
    }

    /**
     * Spark's UI shows it in the stage that writes the shuffle: what {@code holdfast shuffles} calls it. SQL makes an RDD for each shuffle; one of anybody
     * else may be written into several, be cached, or be asked for its name.
     */
    private static void name(ShuffleDependency<?, ?, ?> dependency, ShuffleKey key) {
        if (dependency.rdd().name() == null && RowSerializers.of(dependency.serializer()) != null) {
            dependency.rdd().setName("Holdfast shuffle " + key);
        }
    }

    /**
     * Spark needs a shuffle no more: drops all generations. Spark's cleaner brings many at once, each on its own thread: the first informs the masters of
     * all, the others return. Failures are tried again with the next one; the lease is the last resort.
     */
    void unregister(int shuffle) {
        dropped.keySet().removeIf(each -> !Winners.known(each)); // no caller can ask for these any more
        Registered known = registered.remove(shuffle);
        if (known == null) {
            return;
        }
        known.places().over();
        dropped.put(shuffle, known);
        synchronized (unforgotten) {
            unforgotten.add(known.first().withGeneration(ALL_GENERATIONS));
            if (forgetting) {
                return;
            }
            forgetting = true;
        }
        try {
            ShuffleKey next = nextUnforgotten(null);
            while (next != null) {
                try {
                    runtime.masters().unregister(next);
                } catch (HoldfastException error) {
                    if (error.again() || !error.fromServer()) {
                        LogEvent.SHUFFLE_UNREGISTER_FAILED.log("shuffle", next, "reason", error);
                        leaveTheRest();
                        return;
                    }
                }
                next = nextUnforgotten(next);
            }
        } catch (RuntimeException | Error mistake) {
            leaveTheRest();
            throw mistake;
        }
    }

    private void leaveTheRest() {
        synchronized (unforgotten) {
            forgetting = false;
        }
    }

    /** The next call to the masters, null if none; {@code done} was accepted. */
    private ShuffleKey nextUnforgotten(ShuffleKey done) {
        synchronized (unforgotten) {
            unforgotten.remove(done);
            Iterator<ShuffleKey> left = unforgotten.iterator();
            if (left.hasNext()) {
                return left.next();
            }
            forgetting = false; // at once: a caller that adds one from here on has to send it
            return null;
        }
    }

    /** A stage that wrote this shuffle has ended: commits its generation, if it is whole, and drops the ones before. Returns at once. */
    void stageEnded(int shuffle) {
        // Spark may clean after each query, and its maps run again if the plan is asked again: then it is to be dropped once more. Without
        // statuses it is a late call of a stage whose shuffle was dropped.
        Registered again = Winners.statuses(shuffle) == null ? null : dropped.remove(shuffle);
        if (again != null) {
            registered.put(shuffle, again);
        }
        Registered known = registered.get(shuffle);
        if (known != null) {
            known.places().over();
            committers.execute(() -> commit(known));
        }
    }

    private void commit(Registered known) {
        int shuffle = known.first().shuffle();
        MapStatus[] statuses = Winners.statuses(shuffle);
        SyntheticLocation.Named named = statuses == null ? null : Winners.generation(statuses, shuffle);
        if (named == null) {
            return; // the stage runs again for what is missing
        }
        ShuffleKey key = known.first().withGeneration(named.generation()).withState(named.state());
        try {
            runtime.masters().commit(key, Winners.array(statuses, known.partitions()));
            if (key.generation() > 0) {
                ShuffleKey before = key.withGeneration(key.generation() - 1);
                int dropped = runtime.masters().unregister(before);
                runtime.forget(before);
                LogEvent.GENERATIONS_DROPPED.log("shuffle", key, "count", dropped);
            }
        } catch (HoldfastException error) {
            LogEvent.COMMIT_LATE.log("shuffle", key, "reason", error);
        }
    }

    /** Tells the masters of shuffles that fell back, if they can be reached now. Returns at once. */
    void report(Fallbacks fallbacks) {
        if (fallbacks.due()) {
            committers.execute(() -> tell(fallbacks));
        }
    }

    private void tell(Fallbacks fallbacks) {
        String name = application.name();
        try (Masters quick = new Masters(conf.endpoints(), conf.registerMs(), application.credential())) {
            fallbacks.report(each -> quick.reportFallback(ApplicationLease.label(name), each.reason().name(), each.shuffles(), each.text()));
        } catch (HoldfastException error) {
            LogEvent.SHUFFLE_FALLBACK_UNREPORTED.log("application", name, "reason", error);
        }
    }

    /** Where people find Spark's UI of this application; empty without one. */
    private static String uiUrl(SparkContext context) {
        if (context.uiWebUrl().isEmpty()) {
            return "";
        }
        String proxy = context.conf().get("spark.ui.reverseProxyUrl", "");
        boolean proxied = !proxy.isEmpty() && context.conf().getBoolean("spark.ui.reverseProxy", false);
        return proxied ? proxy.replaceAll("/+$", "") + "/proxy/" + context.applicationId() + "/" : context.uiWebUrl().get();
    }

    /** Ends the application: its shuffles are dropped with the lease. */
    @Override
    public void close() {
        committers.shutdownNow();
        application.close();
    }
}
