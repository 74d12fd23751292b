package org.apache.spark.shuffle.holdfast.push;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.push.Places.Destination;
import org.apache.spark.shuffle.holdfast.push.PushEffect.AskCredit;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Connect;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Send;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The push session's core as stories, and as long random ones: the cases of tests/unit/client/test_push.py and
 * test_credit.py. Run by tests/jvm/test_push.py; prints "ok" and the number of stories.
 */
public final class PushCoreMain {
    private static final int MIB = 1 << 20;
    private static int stories;

    /** Heap memory; knows what is out. */
    private static final class Heap implements FrameStore {
        final Set<PushFrame> out = new HashSet<>();

        @Override
        public PushFrame take(Destination destination, int bytes) {
            PushFrame made = new PushFrame();
            made.reset(destination, ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN));
            out.add(made);
            return made;
        }

        @Override
        public void release(PushFrame frame) {
            that(out.remove(frame), "a frame is released once");
            frame.body = null;
        }
    }

    /** A session, its places, and what it asked for that was not connections and credit. */
    private static final class World {
        final Places places;
        final Heap heap = new Heap();
        final PushSession core;
        final List<PushEffect> rest = new ArrayList<>();
        private final int[] next = new int[64];

        World(Location... at) {
            this(PushSession.UNANSWERED_BYTES_MAX, Revivals.REVIVES_MAX, at);
        }

        World(long unansweredMax, int revivesMax, Location... at) {
            places = new Places(ReduceLocations.of(at), starts(1, at), 0);
            core = new PushSession(places, "shuffle s map 3 attempt 9", heap, MIB, unansweredMax, revivesMax);
        }

        /** Adds batches of (partition, size), in one frame per destination, as the writer does. */
        World add(int... partitionsAndSizes) {
            Map<Destination, PushFrame> frames = new LinkedHashMap<>();
            int bytes = 0;
            for (int each = 1; each < partitionsAndSizes.length; each += 2) {
                bytes += partitionsAndSizes[each];
            }
            int room = bytes;
            for (int each = 0; each < partitionsAndSizes.length; each += 2) {
                int partition = partitionsAndSizes[each];
                int size = partitionsAndSizes[each + 1];
                Destination to = places.at(partition).destination();
                PushFrame frame = frames.computeIfAbsent(to, any -> heap.take(to, room));
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

        /** The frames of an attempt that has only these batches. */
        List<PushFrame> pushed(int... partitionsAndSizes) {
            add(partitionsAndSizes);
            core.finished();
            return sent();
        }

        void answer(PushFrame frame, int... indicesAndStatuses) {
            int count = indicesAndStatuses.length / 2;
            int[] indices = new int[count];
            int[] statuses = new int[count];
            for (int each = 0; each < count; each++) {
                indices[each] = indicesAndStatuses[2 * each];
                statuses[each] = indicesAndStatuses[2 * each + 1];
            }
            core.answered(frame, 64 * MIB, indices, statuses);
            core.check();
        }

        void revive(int partition, Location at) {
            places.learn(partition, at, Places.incarnations(starts(1, at)));
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
    }

    private static List<WorkerAddress> starts(int incarnation, Location... at) {
        Set<Integer> workers = new TreeSet<>();
        for (Location each : at) {
            workers.add(each.primary());
            workers.add(each.replica());
        }
        return workers.stream().map(each -> new WorkerAddress(each, incarnation, "h", "h:1", true)).toList();
    }

    private static void put(PushFrame frame, int partition, int number, int size) {
        int at = frame.body.position();
        if (size >= 8) {
            frame.body.putInt(at, partition).putInt(at + 4, number);
        }
        frame.body.position(at + size);
        frame.added(partition, number);
    }

    private static Location at(int worker) {
        return new Location(0, worker, Limits.NO_WORKER, 0);
    }

    private static Location at(int worker, int epoch) {
        return new Location(epoch, worker, Limits.NO_WORKER, 0);
    }

    private static Location two(int worker, int replica) {
        return new Location(0, worker, replica, 0);
    }

    private static HoldfastException error(int status) {
        return new HoldfastException(status, "it was " + Status.name(status));
    }

    /** "partition/epoch/number" of a frame's batches; checks that their bytes are theirs. */
    private static List<String> numbers(PushFrame frame) {
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

    private static List<List<String>> sorted(List<PushFrame> frames) {
        return frames.stream().map(PushCoreMain::numbers).sorted((a, b) -> a.toString().compareTo(b.toString())).toList();
    }

    private static void that(boolean holds, String what) {
        Checks.that(holds, what);
    }

    private static void same(Object found, Object wanted) {
        that(found.equals(wanted), "found " + found + ", wanted " + wanted);
    }

    // Stories.

    private static void anAttemptWithoutBatchesIsDone() {
        World world = new World(at(1));
        same(world.pushed(), List.of());
        world.only(Done.class);
    }

    private static void batchesOfAWorkerShareAFrame() {
        World world = new World(at(1), at(2), at(1));
        List<PushFrame> frames = world.pushed(0, 10, 1, 20, 2, 30, 0, 40);
        same(sorted(frames), List.of(List.of("0/0/0", "2/0/0", "0/0/1"), List.of("1/0/0")));
        same(frames.get(0).size(), 80);
        world.answer(frames.get(0));
        same(world.rest, List.of());
        world.answer(frames.get(1));
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void framesHaveOneReplica() {
        World world = new World(two(1, 2), two(1, 3), two(1, 2));
        same(sorted(world.pushed(0, 10, 1, 10, 2, 10)), List.of(List.of("0/0/0", "2/0/0"), List.of("1/0/0")));
    }

    private static void theWindowIsKept() {
        World world = new World(at(1));
        for (int each = 0; each < 10; each++) {
            world.add(0, MIB);
        }
        List<PushFrame> frames = world.sent();
        same(frames.size(), Window.BYTES_FIRST / MIB);
        world.answer(frames.get(0));
        that(world.sent().size() + 3 > Window.BYTES_FIRST / MIB, "an answer lets more go");
    }

    private static void allWorkersTogetherHaveABound() {
        Location[] ten = new Location[10];
        Arrays.setAll(ten, PushCoreMain::at);
        World world = new World(8 * MIB, 32, ten);
        for (int each = 0; each < 40; each++) {
            world.add(each % 10, MIB);
        }
        that(world.sent().size() <= 18, "every worker may have one frame beyond the bound");
    }

    private static void aFrameLargerThanTheWindowGoesAlone() {
        World world = new World(at(1));
        same(world.pushed(0, 16 * MIB).get(0).size(), 16 * MIB);
    }

    private static void refusedBatchesKeepTheirNumbers() {
        World world = new World(at(1), at(1), at(1));
        PushFrame frame = world.pushed(0, 10, 1, 10, 2, 10, 0, 10).get(0);
        world.answer(frame, 0, Status.HARD_SPLIT, 2, Status.SEALED, 3, Status.HARD_SPLIT);
        same(world.sent(), List.of());
        Revive revive = world.only(Revive.class);
        same(new HashSet<>(revive.failed()), Set.of(
                new Revivals.Row(0, 0, Status.HARD_SPLIT), new Revivals.Row(2, 0, Status.SEALED)));
        world.revive(0, at(2, 1));
        world.revive(2, at(3, 1));
        world.core.revived();
        List<PushFrame> frames = world.sent();
        same(sorted(frames), List.of(List.of("0/1/0", "0/1/1"), List.of("2/1/0")));
        that(!world.heap.out.contains(frame), "the first frame is released");
        frames.forEach(each -> world.answer(each));
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void laterBatchesOfAMovedPartitionWaitToo() {
        World world = new World(at(1), at(1));
        world.answer(world.add(0, 300).one(), 0, Status.HARD_SPLIT);
        same(numbers(world.pushed(0, 10, 1, 10).get(0)), List.of("1/0/0"));
        world.only(Revive.class);
        world.revive(0, at(2, 1));
        world.core.revived();
        same(numbers(world.one()), List.of("0/1/0", "0/1/1"));
    }

    private static void oneReviveAtATime() {
        World world = new World(at(1), at(2), at(3));
        List<PushFrame> frames = world.pushed(0, 10, 1, 10, 2, 10);
        world.answer(frames.get(0), 0, Status.HARD_SPLIT);
        world.answer(frames.get(1), 0, Status.HARD_SPLIT);
        world.answer(frames.get(2), 0, Status.FAILED_COPY);
        world.sent();
        same(world.only(Revive.class).failed().size(), 1);
        world.revive(0, at(4, 1));
        world.core.revived();
        world.sent();
        Revive both = world.only(Revive.class);
        same(new TreeSet<>(both.failed().stream().map(Revivals.Row::partition).toList()), new TreeSet<>(List.of(1, 2)));
    }

    private static void whatAnotherAttemptLearntIsUsed() {
        World world = new World(at(1), at(2));
        PushFrame stale = world.heap.take(world.places.at(0).destination(), 100);
        put(stale, 0, 0, 10);
        world.revive(0, at(2, 1));
        world.core.added(stale);
        same(numbers(world.pushed(1, 10).get(0)), List.of("0/1/0"));
        same(world.rest, List.of());
    }

    private static void aSoftSplitIsNoRefusal() {
        World world = new World(at(1));
        world.answer(world.add(0, 10).one(), 0, Status.SOFT_SPLIT);
        same(numbers(world.add(0, 10).one()), List.of("0/0/1"));
        same(world.only(Revive.class).failed(), List.of(new Revivals.Row(0, 0, Status.SOFT_SPLIT)));
        world.revive(0, at(2, 1));
        world.core.revived();
        same(numbers(world.add(0, 10).one()), List.of("0/1/2"));
    }

    private static void aSoftSplitThatCannotBePlacedDoesNoHarm() {
        World world = new World(at(1));
        world.answer(world.add(0, 10).one(), 0, Status.SOFT_SPLIT);
        world.sent();
        world.only(Revive.class);
        world.core.reviveFailed(error(Status.NO_ROOM));
        world.core.finished();
        world.sent();
        world.only(Done.class);
    }

    private static void aLostConnectionMeansTheSamePlaceAgain() {
        World world = new World(at(1));
        List<String> first = numbers(world.pushed(0, 10, 0, 20).get(0));
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        same(world.sent(), List.of());
        same(world.only(Wake.class).worker(), 1);
        world.core.woken(1);
        PushFrame again = world.one();
        same(numbers(again), first);
        world.answer(again);
        world.sent();
        world.only(Done.class);
    }

    private static void anIdleConnectionMayGo() {
        World world = new World(at(1));
        world.answer(world.add(0, 10).one());
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        same(numbers(world.add(0, 10).one()), List.of("0/0/1"));
        same(world.rest, List.of());
    }

    private static void whatWasDecidedForALostConnectionIsVoid() {
        World world = new World(at(1));
        world.add(0, MIB).add(0, MIB);
        that(world.core.poll() instanceof Connect, "a connection first");
        world.core.connected(1, new Credit());
        AskCredit ask = (AskCredit) world.core.poll();
        world.core.granted(1, 4 * ask.size());
        that(world.core.poll() instanceof Send, "the first of two");
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        same(world.sent(), List.of());
        world.only(Wake.class);
        world.core.woken(1);
        same(sorted(world.sent()).toString().length() > 0, true);
    }

    private static void severalFramesOnALostConnectionAreOneLoss() {
        World world = new World(at(1));
        world.add(0, MIB).add(0, MIB).add(0, MIB).sent();
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        world.core.check();
        world.sent();
        world.only(Wake.class);
        same(world.of(Revive.class), List.of());
        world.core.woken(1);
        List<PushFrame> again = world.sent();
        same(again.stream().map(each -> each.number(0)).toList(), List.of(0, 1, 2));
    }

    private static void aWorkerThatStaysAwayIsLeft() {
        World world = new World(at(1), at(2));
        List<PushFrame> frames = world.pushed(0, 10, 1, 10);
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        world.sent();
        world.core.woken(1);
        that(world.core.poll() instanceof Connect, "tried again");
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        same(world.sent(), List.of());
        Revive revive = world.only(Revive.class);
        same(revive.failed(), List.of(new Revivals.Row(0, 0, Status.UNAVAILABLE)));
        same(revive.unusable(), new TreeSet<>(List.of(1)));
        world.revive(0, at(2, 1));
        world.core.revived();
        PushFrame again = world.one();
        same(numbers(again), List.of("0/1/0"));
        world.answer(frames.get(1));
        world.answer(again);
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void aWorkerThatCameBackAsAnotherIsUsed() {
        World world = new World(at(1));
        world.add(0, 10).one();
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        world.sent();
        world.core.woken(1);
        world.core.poll();
        world.places.learn(0, at(1, 1), Map.of(1, 2));
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        PushFrame again = world.one();
        same(numbers(again), List.of("0/1/0"));
        same(again.destination.incarnation(), 2);
    }

    private static void aSilentWorkerIsLeftAtOnce() {
        World world = new World(at(1));
        world.pushed(0, 10);
        world.core.disconnected(1, error(Status.OUTCOME_UNKNOWN));
        world.sent();
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(1)));
    }

    private static void aFailedReplicaIsNamed() {
        World world = new World(two(1, 2));
        world.answer(world.pushed(0, 10).get(0), 0, Status.REPLICA_FAILED);
        world.sent();
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(2)));
    }

    private static void aBusyWorkerIsLeftAloneForAMoment() {
        World world = new World(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        world.core.failed(frame, error(Status.BUSY));
        same(world.sent(), List.of());
        Wake wake = world.only(Wake.class);
        world.core.woken(1);
        PushFrame again = world.one();
        same(numbers(again), List.of("0/0/0"));
        world.core.failed(again, error(Status.BUSY));
        world.sent();
        that(world.only(Wake.class).afterNs() > wake.afterNs() && wake.afterNs() > 0, "pauses grow");
    }

    private static void aBatchThatIsRefusedForTheMomentIsSentAgain() {
        World world = new World(at(1));
        PushFrame frame = world.pushed(0, 10, 0, 10, 0, 10).get(0);
        world.answer(frame, 1, Status.BUSY, 2, Status.SLOW_DOWN);
        same(world.sent(), List.of());
        world.only(Wake.class);
        world.core.woken(1);
        PushFrame again = world.one();
        same(numbers(again), List.of("0/0/1"));
        world.answer(again);
        world.sent();
        world.only(Done.class);
    }

    private static void aWorkerThatStaysBusyIsLeft() {
        World world = new World(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        for (int each = 0; each < Lane.BUSY_MAX; each++) {
            world.core.failed(frame, error(Status.BUSY));
            world.sent();
            if (each < Lane.BUSY_MAX - 1) {
                world.core.woken(1);
                frame = world.one();
            }
        }
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(1)));
        world.revive(0, at(2, 1));
        world.core.revived();
        world.answer(world.one());
        world.sent();
        world.only(Done.class);
    }

    private static void damageOnTheWayIsSentAgain() {
        World world = new World(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        for (int each = 1; each < Lane.DAMAGES_MAX; each++) {
            world.core.failed(frame, error(Status.CORRUPT));
            frame = world.one();
        }
        world.core.failed(frame, error(Status.CORRUPT));
        world.sent();
        same(world.only(Failed.class).error().status(), Status.CORRUPT);
        world.core.end();
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void aSiblingWon() {
        World whole = new World(at(1));
        whole.core.failed(whole.pushed(0, 10).get(0), error(Status.COMMITTED));
        whole.sent();
        same(whole.only(Failed.class).error().status(), Status.COMMITTED);
        World one = new World(at(1));
        one.answer(one.pushed(0, 10, 0, 10).get(0), 1, Status.COMMITTED);
        one.sent();
        Failed failed = one.only(Failed.class);
        same(failed.error().status(), Status.COMMITTED);
        that(failed.error().getMessage().contains("map 3 attempt 9: partition 0 epoch 0"), failed.error().getMessage());
        that(one.core.over(), "over");
    }

    private static void mastersThatCommittedEndTheAttempt() {
        for (int status : new int[] {Status.COMMITTED, Status.APPLICATION_GONE}) {
            World world = new World(at(1));
            world.answer(world.pushed(0, 10).get(0), 0, Status.SEALED);
            world.core.reviveFailed(error(status));
            world.sent();
            same(world.only(Failed.class).error().status(), status);
        }
        World world = new World(at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.SEALED);
        world.sent();
        world.only(Revive.class);
        world.core.reviveFailed(error(Status.NO_ROOM));
        world.sent();
        world.only(Revive.class);
    }

    private static void revivesWithoutProgressAreBudgeted() {
        World world = new World(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        List<Long> pauses = new ArrayList<>();
        List<Failed> ends = List.of();
        for (int round = 1; round <= Revivals.REVIVES_MAX + 1; round++) {
            world.answer(frame, 0, Status.DISK_FULL);
            world.sent();
            ends = world.of(Failed.class);
            if (!ends.isEmpty()) {
                break;
            }
            for (Wake wake : world.of(Wake.class)) {
                pauses.add(wake.afterNs());
                world.core.woken(wake.worker());
                world.sent();
            }
            world.only(Revive.class);
            world.revive(0, at(1, round));
            world.core.revived();
            frame = world.one();
        }
        same(ends.size(), 1);
        same(ends.get(0).error().status(), Status.NO_ROOM);
        String text = ends.get(0).error().getMessage();
        that(text.contains("partition 0 was moved 32 times") && text.contains("DISK_FULL"), text);
        same(pauses, pauses.stream().sorted().toList());
        that(pauses.size() > 20, "pauses");
    }

    private static void anAcceptedBatchRenewsTheBudget() {
        World world = new World(PushSession.UNANSWERED_BYTES_MAX, 2, at(1));
        for (int round = 0; round < 10; round++) {
            world.answer(world.add(0, 10).one(), 0, Status.HARD_SPLIT);
            world.sent();
            world.revive(0, at(1, round + 1));
            world.core.revived();
            world.answer(world.one());
            same(world.of(Failed.class), List.of());
        }
        world.core.finished();
        world.sent();
        world.only(Done.class);
    }

    private static void aStatusForABatchThatWasNotSentIsAnError() {
        World world = new World(at(1));
        world.answer(world.pushed(0, 10).get(0), 5, Status.HARD_SPLIT);
        world.sent();
        same(world.only(Failed.class).error().status(), Status.BAD_FRAME);
    }

    private static void slowStart() {
        Window window = new Window();
        window.sent(Window.BYTES_FIRST);
        window.answered(Window.BYTES_FIRST, true);
        same(window.size(), 2L * Window.BYTES_FIRST);
        window.congested();
        window.sent(Window.BYTES_FIRST);
        window.answered(Window.BYTES_FIRST, true);
        same(window.size(), (long) Window.BYTES_FIRST + Window.BYTES_MIN);
        for (int each = 0; each < 20; each++) {
            window.congested();
        }
        same(window.size(), (long) Window.BYTES_MIN);
        for (int each = 0; each < 3000; each++) {
            window.sent(MIB);
            window.answered(MIB, true);
        }
        same(window.size(), (long) Window.BYTES_MAX);
        window.check();
    }

    private static void theWorkerIsAskedOnceForRoom() {
        Credit credit = new Credit();
        that(!credit.take(10), "nothing without asking");
        same(credit.ask(10), Credit.ASK_BYTES_MIN);
        same(credit.ask(10), 0);
        credit.granted(100);
        that(credit.take(60) && credit.take(40) && !credit.take(1), "as far as the window reaches");
        same(credit.ask(1), 0);
        credit.answered(60, 0);
        credit.answered(40, 0);
        that(!credit.take(10), "a window of nothing");
        same(credit.ask(10), Credit.ASK_BYTES_MIN);
        credit.granted(5);
        that(credit.take(10), "what is not granted is sent all the same, and the answer says why");
    }

    private static void whatIsAskedForDoublesInCalmAndHalvesWhereOthersWait() {
        Credit credit = new Credit();
        int size = Credit.ASK_BYTES_MIN;
        credit.take(size);
        same(credit.ask(size), size);
        while (size < Credit.ASK_BYTES) {
            credit.granted(size);
            that(credit.take(size), "granted");
            credit.answered(size, size);
            that(credit.take(size), "the window stands");
            int larger = Math.min(2 * size, Credit.ASK_BYTES);
            that(!credit.take(10), "all is taken");
            same(credit.ask(10), larger);
            credit.answered(size, size);
            size = larger;
        }
        credit.granted(size);
        for (int turn = 1; turn < 6; turn++) {
            that(credit.take(100), "granted");
            credit.answered(100, 0);
            that(!credit.take(100), "taken back");
            int least = Math.max(Credit.ASK_BYTES >> turn, Credit.ASK_BYTES_MIN);
            same(credit.ask(100), least);
            credit.granted(least);
        }
    }

    private static void aWindowThatLayIdleIsForgotten() {
        Credit credit = new Credit();
        credit.take(1);
        credit.ask(1);
        credit.granted(100);
        credit.rests(5);
        credit.wakes(6);
        that(credit.take(10), "a moment does not matter");
        credit.answered(10, 100);
        credit.rests(5);
        credit.wakes(6 + Credit.IDLE_NS_MAX);
        that(!credit.take(10), "the worker may have given it to others");
    }

    // Long random stories.

    private static void whateverHappensEveryBatchIsKeptUnderItsNumber(int seed) {
        Random random = new Random(seed);
        Location[] at = new Location[6];
        Arrays.setAll(at, any -> new Location(
                0, random.nextInt(4), random.nextInt(3) == 0 ? 5 + random.nextInt(2) : Limits.NO_WORKER, 0));
        World world = new World(PushSession.UNANSWERED_BYTES_MAX, 1_000, at);
        int wanted = 1 + random.nextInt(200);
        int added = 0;
        boolean finished = false;
        Map<String, Integer> kept = new HashMap<>();
        List<PushEffect> pending = new ArrayList<>();
        List<PushEffect> ends = new ArrayList<>();
        for (int step = 0; step < 200_000 && ends.isEmpty(); step++) {
            if (added < wanted && random.nextInt(10) < 3) {
                int[] rows = new int[2 * (1 + random.nextInt(5))];
                for (int each = 0; each < rows.length; each += 2) {
                    rows[each] = random.nextInt(6);
                    rows[each + 1] = new int[] {8, 100, 5_000, 300_000}[random.nextInt(4)];
                }
                added += rows.length / 2;
                world.add(rows);
            } else if (added >= wanted && !finished) {
                finished = true;
                world.core.finished();
            } else if (!pending.isEmpty()) {
                happen(world, random, pending, kept);
            }
            PushEffect effect;
            while ((effect = world.core.poll()) != null) {
                (effect instanceof Done || effect instanceof Failed ? ends : pending).add(effect);
            }
            world.core.check();
        }
        same(ends.size(), 1);
        that(ends.get(0) instanceof Done, "it ends well, not with " + ends.get(0));
        for (int partition = 0; partition < 6; partition++) {
            for (int number = 0; number < world.next[partition]; number++) {
                that(kept.containsKey(partition + "/" + number), "kept by somebody: " + partition + "/" + number);
            }
        }
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void happen(World world, Random random, List<PushEffect> pending, Map<String, Integer> kept) {
        PushEffect effect = pending.remove(random.nextInt(pending.size()));
        PushSession core = world.core;
        if (effect instanceof Connect connect) {
            if (random.nextInt(10) == 0) {
                core.disconnected(connect.worker(), error(Status.UNAVAILABLE));
            } else {
                core.connected(connect.worker(), new Credit());
            }
        } else if (effect instanceof AskCredit ask) {
            if (random.nextInt(10) == 0) {
                gone(world, pending, ask.worker(), error(Status.UNAVAILABLE));
            } else {
                core.granted(ask.worker(), random.nextInt(ask.size() + 1));
            }
        } else if (effect instanceof Wake wake) {
            core.woken(wake.worker());
        } else if (effect instanceof Revive revive) {
            if (random.nextInt(10) == 0) {
                core.reviveFailed(error(Status.NO_ROOM));
                return;
            }
            Map<Integer, Integer> starts = new HashMap<>();
            for (int worker = 0; worker < 4; worker++) {
                starts.put(worker, 1 + random.nextInt(3));
            }
            for (Revivals.Row row : revive.failed()) {
                int epoch = Math.max(world.places.at(row.partition()).epoch(), row.epoch() + 1);
                world.places.learn(row.partition(), at(random.nextInt(4), epoch), starts);
            }
            core.revived();
        } else if (effect instanceof Send send) {
            answer(world, random, pending, kept, send.frame());
        }
    }

    /** A connection is lost: whatever was to happen on it never will. */
    private static void gone(World world, List<PushEffect> pending, int worker, HoldfastException error) {
        pending.removeIf(each -> each instanceof Send send && send.frame().destination.primary() == worker
                || each instanceof AskCredit ask && ask.worker() == worker);
        world.core.disconnected(worker, error);
    }

    private static void answer(
            World world, Random random, List<PushEffect> pending, Map<String, Integer> kept, PushFrame frame) {
        int outcome = random.nextInt(100);
        int worker = frame.destination.primary();
        if (outcome < 8) {
            world.core.failed(frame, error(random.nextBoolean() ? Status.BUSY : Status.STALE_INCARNATION));
            return;
        }
        int[] indices = new int[frame.count()];
        int[] statuses = new int[frame.count()];
        int count = 0;
        int[] some = {Status.HARD_SPLIT, Status.SOFT_SPLIT, Status.SLOW_DOWN, Status.BUSY, Status.REPLICA_FAILED};
        for (int each = 0; each < frame.count(); each++) {
            int status = random.nextInt(5) == 0 ? some[random.nextInt(some.length)] : Status.OK;
            if (status != Status.OK) {
                indices[count] = each;
                statuses[count++] = status;
            }
            if (Fate.of(status) == Fate.KEPT) {
                numbers(frame);
                kept.merge(frame.partition(each) + "/" + frame.number(each), 1, Integer::sum);
            }
        }
        if (outcome < 16) { // kept, and the answer is lost
            gone(world, pending, worker, error(random.nextBoolean() ? Status.UNAVAILABLE : Status.OUTCOME_UNKNOWN));
        } else {
            world.core.answered(frame, random.nextInt(3) == 0 ? 0 : 8 * MIB, Arrays.copyOf(indices, count),
                    Arrays.copyOf(statuses, count));
        }
    }

    private static void tell(Runnable story) {
        story.run();
        stories++;
    }

    public static void main(String[] args) {
        List<Runnable> all = List.of(
                PushCoreMain::anAttemptWithoutBatchesIsDone, PushCoreMain::batchesOfAWorkerShareAFrame,
                PushCoreMain::framesHaveOneReplica, PushCoreMain::theWindowIsKept,
                PushCoreMain::allWorkersTogetherHaveABound, PushCoreMain::aFrameLargerThanTheWindowGoesAlone,
                PushCoreMain::refusedBatchesKeepTheirNumbers, PushCoreMain::laterBatchesOfAMovedPartitionWaitToo,
                PushCoreMain::oneReviveAtATime, PushCoreMain::whatAnotherAttemptLearntIsUsed,
                PushCoreMain::aSoftSplitIsNoRefusal, PushCoreMain::aSoftSplitThatCannotBePlacedDoesNoHarm,
                PushCoreMain::aLostConnectionMeansTheSamePlaceAgain, PushCoreMain::anIdleConnectionMayGo,
                PushCoreMain::whatWasDecidedForALostConnectionIsVoid,
                PushCoreMain::severalFramesOnALostConnectionAreOneLoss, PushCoreMain::aWorkerThatStaysAwayIsLeft,
                PushCoreMain::aWorkerThatCameBackAsAnotherIsUsed, PushCoreMain::aSilentWorkerIsLeftAtOnce,
                PushCoreMain::aFailedReplicaIsNamed, PushCoreMain::aBusyWorkerIsLeftAloneForAMoment,
                PushCoreMain::aBatchThatIsRefusedForTheMomentIsSentAgain, PushCoreMain::aWorkerThatStaysBusyIsLeft,
                PushCoreMain::damageOnTheWayIsSentAgain, PushCoreMain::aSiblingWon,
                PushCoreMain::mastersThatCommittedEndTheAttempt, PushCoreMain::revivesWithoutProgressAreBudgeted,
                PushCoreMain::anAcceptedBatchRenewsTheBudget,
                PushCoreMain::aStatusForABatchThatWasNotSentIsAnError, PushCoreMain::slowStart,
                PushCoreMain::theWorkerIsAskedOnceForRoom,
                PushCoreMain::whatIsAskedForDoublesInCalmAndHalvesWhereOthersWait, PushCoreMain::aWindowThatLayIdleIsForgotten);
        all.forEach(PushCoreMain::tell);
        for (int seed = 0; seed < 300; seed++) {
            int now = seed;
            tell(() -> whateverHappensEveryBatchIsKeptUnderItsNumber(now));
        }
        System.out.println("ok " + stories);
    }
}
