package org.apache.spark.shuffle.holdfast;

import java.util.List;
import java.util.Set;
import org.apache.spark.shuffle.holdfast.control.ApplicationLease;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The application that shuffles are registered in: registered itself with the first of them, and anew where its lease was lost.
 *
 * <p>Thread-safe. Made by {@link HoldfastRuntime} where a driver is; called by it and by {@link DriverShuffles}.
 */
final class Application implements AutoCloseable {
    private final HoldfastConf conf;
    private final Masters masters;
    private final Registrations registrations;
    private final String name;
    private volatile ApplicationLease.Description description;
    private ApplicationLease lease;
    private boolean closed;

    /** Makes no call. */
    Application(HoldfastConf conf, Masters masters, String name) {
        this.conf = conf;
        this.masters = masters;
        registrations = Registrations.ofDriver(conf);
        this.name = name;
        describe(System.getProperty("user.name", ""), "", "");
    }

    /** What people know it by. */
    String name() {
        return name;
    }

    /** Says who runs it, before it is registered; see {@link ApplicationLease.Description}. */
    void describe(String user, String sparkId, String uiUrl) {
        description = new ApplicationLease.Description(name, user, sparkId, uiUrl, conf.tags());
    }

    /** Registers generation 0 of a shuffle. Throws the reason against it. */
    Placed register(int shuffle, ShuffleShape shape) throws HoldfastException {
        Instance instance = instance();
        try {
            return register(instance, shuffle, shape);
        } catch (HoldfastException error) {
            if (!isOver(instance, error)) {
                throw error;
            }
        }
        // The application was dropped since the last call. A new shuffle needs none of its data.
        return register(instance(), shuffle, shape);
    }

    private Placed register(Instance instance, int shuffle, ShuffleShape shape) throws HoldfastException {
        RegisteredShuffle first =
                registrations.register(masters, new ShuffleKey(instance, shuffle, 0), shape, false, false, Set.of());
        return new Placed(masters.clusterId(), first, shape);
    }

    /** The instance, registered with the masters when it is first wanted, and anew where its lease was lost. */
    private synchronized Instance instance() throws HoldfastException {
        if (closed) {
            throw new HoldfastException(Status.UNAVAILABLE, "the application has ended");
        }
        if (lease != null && lease.gone() != null) {
            LogEvent.APPLICATION_REPLACED.log("application", name, "reason", lease.gone());
            lease.close();
            lease = null;
        }
        if (lease == null) {
            CredentialsProvider credential = credential();
            try (Masters quick = new Masters(conf.endpoints(), conf.registerMs(), credential)) {
                List<WorkerAddress> workers = quick.workers();
                checkCluster(quick.clusterId());
                if (conf.mayFallBack() && workers.stream().noneMatch(WorkerAddress::alive)) {
                    throw new HoldfastException(Status.NO_ROOM, "no worker is alive (masters at " + conf.endpoints() + ")");
                }
            }
            lease = ApplicationLease.register(masters, this::credential, description, conf.leaseMs(), conf.registerMs());
            LogEvent.APPLICATION_REGISTERED.log("application", name, "instance", lease.instance().hex(), "masters", conf.endpoints());
        }
        return lease.instance();
    }

    /** Whether this error of a master means that the instance was dropped; then the next call of {@link #instance} makes another one. */
    private synchronized boolean isOver(Instance instance, HoldfastException error) {
        if (!error.fromServer() || !Status.endsLease(error.status())) {
            return false;
        }
        if (lease != null && lease.instance().equals(instance)) {
            lease.over(error);
        }
        return true;
    }

    /** What the driver shows where it registers. Read each time: what is in the files may have been replaced. */
    CredentialsProvider credential() throws HoldfastException {
        try {
            return conf.security().read();
        } catch (IllegalArgumentException wrong) {
            throw new HoldfastException(Status.BAD_REQUEST, wrong.getMessage(), wrong);
        }
    }

    private void checkCluster(String clusterId) throws HoldfastException {
        if (!conf.clusterId().isEmpty() && !conf.clusterId().equals(clusterId)) {
            throw new HoldfastException(Status.CONFLICT, "the masters at " + conf.endpoints() + " are of cluster " + clusterId
                    + ", " + HoldfastConf.PREFIX + "cluster.id is " + conf.clusterId());
        }
    }

    /** Ends the application: its shuffles are dropped with the lease. */
    @Override
    public synchronized void close() {
        closed = true;
        if (lease != null) {
            lease.close();
            lease = null;
        }
    }
}
