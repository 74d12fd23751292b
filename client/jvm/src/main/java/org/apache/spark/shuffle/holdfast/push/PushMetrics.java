package org.apache.spark.shuffle.holdfast.push;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import com.codahale.metrics.Timer;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.holdfast.wire.Codec;

/** What all push writers of a JVM count, under the names that Spark's metric system shows. Thread-safe. Belongs to {@link PushContext}. */
public final class PushMetrics {
    private final MetricRegistry registry = new MetricRegistry();
    private final Timer latency = registry.timer("push.latency");
    private final Timer creditWait = registry.timer("push.creditWait");
    private final Counter retries = registry.counter("push.retries");
    private final Counter revives = registry.counter("push.revives");
    /** By the codec's place. */
    private final Counter[] bytes = new Counter[Codec.values().length];

    PushMetrics() {
        for (Codec each : Codec.values()) {
            bytes[each.ordinal()] = registry.counter("push.bytes." + each.name().toLowerCase(Locale.ROOT));
        }
    }

    /** Where the numbers are, for Spark, and for more of them. */
    public MetricRegistry registry() {
        return registry;
    }

    /** A frame was sent; {@code again}: not for the first time. */
    void sent(boolean again) {
        if (again) {
            retries.inc();
        }
    }

    /** A frame was answered so long after it was sent. */
    void answered(long nanos) {
        latency.update(nanos, TimeUnit.NANOSECONDS);
    }

    /** A worker gave room so long after it was asked. */
    void granted(long nanos) {
        creditWait.update(nanos, TimeUnit.NANOSECONDS);
    }

    /** The masters were asked for new places. */
    void revived() {
        revives.inc();
    }

    /** A batch was made, whose payload has so many bytes as sent. */
    void made(Codec codec, int size) {
        bytes[codec.ordinal()].inc(size);
    }
}
