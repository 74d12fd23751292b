package org.apache.spark.shuffle.holdfast.control;

import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The driver's lease on its application instance: registered once, renewed by a daemon thread three times per lease, given back by
 * {@link #close}. Shuffles go when no lease is left on the instance.
 */
public final class ApplicationLease implements AutoCloseable {
    private ApplicationLease() {}

    /** Draw an instance and a holder and register them; {@code leaseMs} 0 is the cluster's setting. */
    public static ApplicationLease register(Masters masters, String name, long leaseMs) throws HoldfastException {
        throw new HoldfastException(Status.INTERNAL, "not here yet");
    }

    public Instance instance() {
        return null;
    }

    /** 16 bytes; for {@link Masters#setHolder} elsewhere. */
    public byte[] holder() {
        return null;
    }

    /** As granted. */
    public long leaseMs() {
        return 0;
    }

    /** Why the application is gone (APPLICATION_GONE), or null while it lives. */
    public HoldfastException gone() {
        return null;
    }

    /** Stop renewing and give the lease back. The masters are not waited for long: the lease ends by itself. */
    @Override
    public void close() {}
}
