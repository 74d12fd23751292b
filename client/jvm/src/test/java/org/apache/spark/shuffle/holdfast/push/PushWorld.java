package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.push.PushEffect.AskCredit;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Connect;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Send;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** A session, its places, and what it asked for that was not connections and credit; shared by the stories of this folder. */
final class PushWorld {
    static final int MIB = 1 << 20;

    /** Heap memory; knows what is out. */
    static final class Heap implements FrameStore {
        final Set<PushFrame> out = new HashSet<>();
        /** Whether there is none for the session now. */
        BooleanSupplier full = () -> false;

        @Override
        public PushFrame take(Destination destination, int bytes) {
            if (full.getAsBoolean()) {
                throw new NoDirectMemoryException(bytes, out.size(), bytes(), "none");
            }
            return make(destination, bytes);
        }

        /** For the writer, which has its own way to wait. */
        PushFrame make(Destination destination, int bytes) {
            PushFrame made = new PushFrame();
            made.reset(destination, ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN));
            out.add(made);
            return made;
        }

        /** Memory of all that is out. */
        long bytes() {
            return out.stream().mapToLong(each -> each.body.capacity()).sum();
        }

        @Override
        public void release(PushFrame frame) {
            that(out.remove(frame), "a frame is released once");
            frame.body = null;
        }
    }

    final PartitionLocations locations;
    final Heap heap = new Heap();
    final PushSession core;
    final List<PushEffect> rest = new ArrayList<>();
    final int[] next = new int[64];

    PushWorld(Location... at) {
        this(PushSession.UNANSWERED_BYTES_MAX, Revivals.REVIVES_MAX, at);
    }

    PushWorld(long unansweredMax, int revivesMax, Location... at) {
        this(unansweredMax, revivesMax, PushLimits.USUAL.noRoomNs(), at);
    }

    PushWorld(long unansweredMax, int revivesMax, long noRoomNs, Location... at) {
        locations = new PartitionLocations(ReduceLocations.of(at), starts(1, at), 0);
        core = new PushSession(locations, "shuffle s map 3 attempt 9", heap, MIB, unansweredMax, revivesMax, noRoomNs);
    }

    /** Adds batches of (partition, size), in one frame per destination, as the writer does. */
    PushWorld add(int... partitionsAndSizes) {
        Map<Destination, PushFrame> frames = new LinkedHashMap<>();
        int bytes = 0;
        for (int each = 1; each < partitionsAndSizes.length; each += 2) {
            bytes += partitionsAndSizes[each];
        }
        int limitsMet = bytes;
        for (int each = 0; each < partitionsAndSizes.length; each += 2) {
            int partition = partitionsAndSizes[each];
            int size = partitionsAndSizes[each + 1];
            Destination to = locations.at(partition).destination();
            PushFrame frame = frames.computeIfAbsent(to, any -> heap.make(to, limitsMet));
            put(frame, partition, next[partition]++, size);
        }
        frames.values().forEach(core::added);
        return this;
    }

    /** Gives connections and all the credit that is asked for; returns what is sent. */
    List<PushFrame> sent() {
        List<PushFrame> found = new ArrayList<>();
        PushEffect effect;
        while ((effect = core.poll()) != null) {
            if (effect instanceof Connect connect) {
                core.connected(connect.worker(), new Credit());
            } else if (effect instanceof AskCredit ask) {
                core.granted(ask.worker(), 64 * MIB);
            } else if (effect instanceof Send send) {
                found.add(send.frame());
            } else {
                rest.add(effect);
            }
            core.check();
        }
        return found;
    }

    PushFrame one() {
        List<PushFrame> found = sent();
        that(found.size() == 1, "one frame, not " + found.size());
        return found.get(0);
    }

    /** The attempt has no more batches. */
    void finish() {
        core.finished(Arrays.stream(next).sum());
    }

    /** The frames of an attempt that has only these batches. */
    List<PushFrame> pushed(int... partitionsAndSizes) {
        add(partitionsAndSizes);
        finish();
        return sent();
    }

    /** What is answered as failed replicas. */
    int failed;
    /** What is answered as replicas that are behind. */
    int behind;

    void answer(PushFrame frame, int... indicesAndStatuses) {
        int count = indicesAndStatuses.length / 2;
        int[] indices = new int[count];
        int[] statuses = new int[count];
        for (int each = 0; each < count; each++) {
            indices[each] = indicesAndStatuses[2 * each];
            statuses[each] = indicesAndStatuses[2 * each + 1];
        }
        core.answered(frame, 64 * MIB, failed, behind, indices, statuses);
        core.check();
    }

    void revive(int partition, Location at) {
        locations.learn(partition, at, PartitionLocations.incarnations(starts(1, at)));
    }

    /** The effects of a kind since the last call of anything here, others than those of that kind stay. */
    <T extends PushEffect> List<T> of(Class<T> kind) {
        List<T> found = new ArrayList<>();
        for (PushEffect each : List.copyOf(rest)) {
            if (kind.isInstance(each)) {
                found.add(kind.cast(each));
                rest.remove(each);
            }
        }
        return found;
    }

    <T extends PushEffect> T only(Class<T> kind) {
        List<T> found = of(kind);
        that(found.size() == 1, "one " + kind.getSimpleName() + ", not " + found);
        return found.get(0);
    }

    static List<WorkerAddress> starts(int incarnation, Location... at) {
        Set<Integer> workers = new TreeSet<>();
        for (Location each : at) {
            workers.addAll(each.workers());
        }
        return workers.stream().map(each -> new WorkerAddress(each, incarnation, "h", "h:1", true, "", false)).toList();
    }

    static void put(PushFrame frame, int partition, int number, int size) {
        int at = frame.body.position();
        if (size >= 8) {
            frame.body.putInt(at, partition).putInt(at + 4, number);
        }
        frame.body.position(at + size);
        frame.added(partition, number);
    }

    static Location at(int worker) {
        return new Location(0, List.of(worker), 0);
    }

    static Location at(int worker, int epoch) {
        return new Location(epoch, List.of(worker), 0);
    }

    static Location copied(Integer... workers) {
        return new Location(0, List.of(workers), 0);
    }

    static HoldfastException error(int status) {
        return new HoldfastException(status, "it was " + Status.name(status));
    }

    /** "partition/epoch/number" of a frame's batches; checks that their bytes are theirs. */
    static List<String> numbers(PushFrame frame) {
        List<String> found = new ArrayList<>();
        for (int each = 0; each < frame.count(); each++) {
            found.add(frame.partition(each) + "/" + frame.epoch(each) + "/" + frame.number(each));
            if (frame.length(each) >= 8) {
                that(frame.body.getInt(frame.start(each)) == frame.partition(each), "bytes of the partition");
                that(frame.body.getInt(frame.start(each) + 4) == frame.number(each), "bytes of the number");
            }
        }
        return found;
    }

    static List<List<String>> sorted(List<PushFrame> frames) {
        return frames.stream().map(PushWorld::numbers).sorted((a, b) -> a.toString().compareTo(b.toString())).toList();
    }

    static void that(boolean holds, String what) {
        Checks.that(holds, what);
    }

    static void same(Object found, Object wanted) {
        that(found.equals(wanted), "found " + found + ", wanted " + wanted);
    }
}
