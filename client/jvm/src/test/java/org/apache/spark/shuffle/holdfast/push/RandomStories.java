package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.MIB;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.at;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.error;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.numbers;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.shuffle.holdfast.push.PushEffect.AskCredit;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Connect;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Send;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Long random stories of the push session: whatever happens, and with memory or without, every batch is kept under its number. Told by {@link PushCoreMain}. */
final class RandomStories {
    private RandomStories() {}

    static void whateverHappensEveryBatchIsKeptUnderItsNumber(int seed) {
        Random random = new Random(seed);
        Location[] at = new Location[6];
        Arrays.setAll(at, any -> new Location(0, random.nextInt(3) == 0
                ? List.of(random.nextInt(4), 5 + random.nextInt(2), 7) : List.of(random.nextInt(4)), 0));
        PushWorld world = new PushWorld(PushSession.UNANSWERED_BYTES_MAX, 1_000, at);
        boolean scarce = seed % 3 == 0;
        world.heap.full = () -> scarce && random.nextInt(4) == 0;
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
                world.finish();
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

    private static void happen(PushWorld world, Random random, List<PushEffect> pending, Map<String, Integer> kept) {
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
            boolean noRoom = random.nextInt(5) == 0;
            for (Revivals.Row row : revive.failed().subList(noRoom ? 1 : 0, revive.failed().size())) {
                int epoch = Math.max(world.locations.at(row.partition()).epoch(), row.epoch() + 1);
                world.locations.learn(row.partition(), at(random.nextInt(4), epoch), starts);
            }
            core.revived(noRoom ? "no worker has room" : "");
        } else if (effect instanceof Send send) {
            answer(world, random, pending, kept, send.frame());
        }
    }

    /** A connection is lost: whatever was to happen on it never will. */
    private static void gone(PushWorld world, List<PushEffect> pending, int worker, HoldfastException error) {
        pending.removeIf(each -> each instanceof Send send && send.frame().destination.primary() == worker
                || each instanceof AskCredit ask && ask.worker() == worker);
        world.core.disconnected(worker, error);
    }

    private static void answer(
            PushWorld world, Random random, List<PushEffect> pending, Map<String, Integer> kept, PushFrame frame) {
        int outcome = random.nextInt(100);
        int worker = frame.destination.primary();
        if (outcome < 8) {
            world.core.failed(frame, error(random.nextBoolean() ? Status.BUSY : Status.STALE_INCARNATION));
            return;
        }
        int[] indices = new int[frame.count()];
        int[] statuses = new int[frame.count()];
        int count = 0;
        int[] some = {Status.HARD_SPLIT, Status.NO_ROOM, Status.SOFT_SPLIT, Status.SLOW_DOWN, Status.BUSY, Status.REPLICA_FAILED};
        for (int each = 0; each < frame.count(); each++) {
            int status = random.nextInt(5) == 0 ? some[random.nextInt(some.length)] : Status.OK;
            if (status != Status.OK) {
                indices[count] = each;
                statuses[count++] = status;
            }
            if (Status.push(status) == Status.PushDisposition.KEPT) {
                numbers(frame);
                kept.merge(frame.partition(each) + "/" + frame.number(each), 1, Integer::sum);
            }
        }
        if (outcome < 16) { // kept, and the answer is lost
            gone(world, pending, worker, error(random.nextBoolean() ? Status.UNAVAILABLE : Status.OUTCOME_UNKNOWN));
        } else {
            world.core.answered(frame, random.nextInt(3) == 0 ? 0 : 8 * MIB, random.nextInt(4), 0, Arrays.copyOf(indices, count),
                    Arrays.copyOf(statuses, count));
        }
    }
}
