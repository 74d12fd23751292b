package org.apache.spark.shuffle.holdfast;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/**
 * The plug-in's numbers in Spark's metric system, as {@code <application>.<executor>.holdfast.<name>}; docs/use/spark.md lists them.
 *
 * <p>Rules: one per JVM. Gauges read what is there. Registered by the manager when the first shuffle or task comes, since there is no metric system
 * as the manager is made.
 */
final class HoldfastSource implements Source {
    private final MetricRegistry registry;

    /** @param fallbacks null but on the driver */
    HoldfastSource(HoldfastRuntime runtime, Fallbacks fallbacks) {
        registry = runtime.pushContext().metrics().registry();
        gauge("memory.directTakenBytes", runtime.buffers()::takenBytes);
        gauge("memory.directIdleBytes", runtime.buffers()::keptBytes);
        gauge("connections.borrowed", runtime.connections()::borrowed);
        gauge("connections.idle", runtime.connections()::idle);
        for (Fallbacks.Reason each : fallbacks == null ? new Fallbacks.Reason[0] : Fallbacks.Reason.values()) {
            gauge("fallbacks." + each.word(), () -> fallbacks.count(each));
        }
    }

    /** Shows them from now on. */
    void register() {
        SparkEnv.get().metricsSystem().registerSource(this);
    }

    private void gauge(String name, Gauge<? extends Number> value) {
        registry.register(name, value);
    }

    @Override
    public String sourceName() {
        return "holdfast";
    }

    @Override
    public MetricRegistry metricRegistry() {
        return registry;
    }
}
