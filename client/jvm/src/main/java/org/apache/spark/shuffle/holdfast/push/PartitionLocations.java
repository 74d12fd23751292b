package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;

/**
 * Where the partitions of one generation of a shuffle take batches now, in the view of this JVM.
 *
 * <p>Rules: epochs only grow, so what is learnt twice or late changes nothing. A place carries the incarnations it was
 * given with: a worker that restarted is another place, whose own epochs it never appends to. One object per JVM and
 * generation, shared by all its attempts: the answer to one of them serves the others. Thread-safe. Called by
 * {@link PushWriter} and {@link PushSession}.
 */
public final class PartitionLocations {
    /** Who takes a push; batches of one destination share frames. One object each, known by its slot. */
    record Destination(int slot, int primary, int incarnation, List<Replica> replicas) {
        /** The replicas of an answer's {@code failed}. */
        List<Integer> failed(int mask) {
            List<Integer> found = new ArrayList<>(replicas.size());
            for (int each = 0; each < replicas.size(); each++) {
                if ((mask >> each & 1) != 0) {
                    found.add(replicas.get(each).worker());
                }
            }
            return found;
        }
    }

    /** A worker that the primary sends what it takes to. */
    record Replica(int worker, int incarnation) {}

    /** The newest epoch of a partition, where it is, and the directory that the masters advise. */
    record CurrentEpoch(int epoch, Destination destination, int hint) {}

    private record Members(int primary, int incarnation, List<Replica> replicas) {}

    private final AtomicReferenceArray<CurrentEpoch> locations;
    private final Map<Members, Destination> destinations = new HashMap<>();
    private final Map<Integer, String> addresses = new HashMap<>();
    private volatile int destinationCount;
    private volatile long raftIndex;

    /** Throws CORRUPT or BAD_FRAME if the array in it is not one of locations. */
    public PartitionLocations(RegisteredShuffle registered) throws HoldfastException {
        this(ReduceLocations.decode(registered.locationsArray()), registered.workers(), registered.raftIndex());
    }

    PartitionLocations(ReduceLocations found, Collection<WorkerAddress> workers, long raftIndex) {
        locations = new AtomicReferenceArray<>(found.partitions());
        this.raftIndex = raftIndex;
        learnAddresses(workers);
        Map<Integer, Integer> starts = incarnations(workers);
        // One object for equal ones: a million places take little memory.
        Map<Location, CurrentEpoch> shared = new HashMap<>();
        for (int each = 0; each < found.partitions(); each++) {
            locations.set(each, shared.computeIfAbsent(found.get(each), location -> place(location, starts)));
        }
    }

    /** How many partitions there are. */
    public int partitions() {
        return locations.length();
    }

    /** How many destinations were seen; their slots are below that. */
    int destinations() {
        return destinationCount;
    }

    /** The workers that clients push to now, each once, and so many at most. */
    Set<Integer> primaries(int most) {
        Set<Integer> found = new LinkedHashSet<>();
        for (int each = 0; each < partitions() && found.size() < most; each++) {
            found.add(at(each).destination().primary());
        }
        return found;
    }

    /** The place of now. */
    CurrentEpoch at(int partition) {
        return locations.getAcquire(partition);
    }

    /** The highest Raft index that an answer of the masters named. */
    long raftIndex() {
        return raftIndex;
    }

    /** "host:port" of a worker's data plane, null if it was never named. */
    synchronized String address(int worker) {
        return addresses.get(worker);
    }

    /** Takes note of where workers are now: places stay with the incarnations that they were given with. */
    synchronized void learnAddresses(Collection<WorkerAddress> workers) {
        for (WorkerAddress each : workers) {
            addresses.put(each.worker(), each.address());
        }
    }

    /** Takes note of a new location; returns whether it is newer than the one known. */
    synchronized boolean learn(int partition, Location location, Map<Integer, Integer> incarnations) {
        if (Integer.compareUnsigned(location.epoch(), locations.get(partition).epoch()) <= 0) {
            return false;
        }
        locations.setRelease(partition, place(location, incarnations));
        return true;
    }

    /** Which start of each worker an answer of the masters means. */
    static Map<Integer, Integer> incarnations(Collection<WorkerAddress> workers) {
        Map<Integer, Integer> found = new HashMap<>();
        for (WorkerAddress each : workers) {
            found.put(each.worker(), each.incarnation());
        }
        return found;
    }

    /** Takes note of how far the masters are. */
    synchronized void saw(long index) {
        raftIndex = Math.max(raftIndex, index);
    }

    private synchronized CurrentEpoch place(Location location, Map<Integer, Integer> incarnations) {
        int primary = location.primary();
        List<Replica> replicas = new ArrayList<>();
        for (int each : location.workers().subList(1, location.workers().size())) {
            replicas.add(new Replica(each, incarnations.getOrDefault(each, 0)));
        }
        Members members = new Members(primary, incarnations.getOrDefault(primary, 0), replicas);
        Destination destination = destinations.get(members);
        if (destination == null) {
            destination = new Destination(destinations.size(), primary, members.incarnation(), replicas);
            destinations.put(members, destination);
            destinationCount = destinations.size();
        }
        return new CurrentEpoch(location.epoch(), destination, location.hint());
    }
}
