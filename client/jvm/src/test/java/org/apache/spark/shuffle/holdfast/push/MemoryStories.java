package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.MIB;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.at;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.sorted;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.util.List;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Connect;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** What the push session's copies need, and what it does where there is no memory for them. Told by {@link PushCoreMain}. */
final class MemoryStories {
    private static final int PARTITIONS = 8;

    private MemoryStories() {}

    /** Eight partitions of one worker, each with a batch in one frame, are refused and get a worker each. */
    private static PushWorld scattered(int size) {
        Location[] at = new Location[PARTITIONS];
        int[] rows = new int[2 * PARTITIONS];
        int[] refused = new int[2 * PARTITIONS];
        for (int each = 0; each < PARTITIONS; each++) {
            at[each] = at(1);
            rows[2 * each] = refused[2 * each] = each;
            rows[2 * each + 1] = size;
            refused[2 * each + 1] = Status.HARD_SPLIT;
        }
        PushWorld world = new PushWorld(at);
        world.answer(world.pushed(rows).get(0), refused);
        world.sent();
        world.only(Revive.class);
        for (int each = 0; each < PARTITIONS; each++) {
            world.revive(each, at(2 + each, 1));
        }
        return world;
    }

    static void copiesAreNoLargerThanWhatIsInThem() {
        PushWorld world = scattered(MIB / PARTITIONS);
        world.core.revived("");
        same(world.sent().size(), PARTITIONS);
        same(world.heap.bytes(), (long) MIB);
    }

    static void batchesWaitForMemory() {
        PushWorld world = scattered(100);
        int[] asked = {0};
        world.heap.full = () -> asked[0]++ < 100 && asked[0] > 3;
        world.core.revived("");
        List<PushFrame> first = world.sent();
        same(sorted(first), List.of(List.of("0/1/0"), List.of("1/1/0"), List.of("2/1/0")));
        same(asked[0], 4);
        first.forEach(each -> world.answer(each));
        same(world.sent(), List.of());
        same(asked[0], 4); // the JVM looks for memory at length: not before the Wake
        asked[0] = 100;
        world.core.woken(world.only(Wake.class).worker());
        List<PushFrame> rest = world.sent();
        same(rest.size(), PARTITIONS - 3);
        rest.forEach(each -> world.answer(each));
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    static void memoryThatNeverComesEndsTheAttempt() {
        PushWorld world = scattered(100);
        world.heap.full = () -> true;
        world.core.revived("");
        world.sent();
        for (int turn = 0; turn < Parking.TURNS_MAX; turn++) {
            world.core.woken(world.only(Wake.class).worker());
            world.sent();
        }
        Failed failed = world.only(Failed.class);
        same(failed.error().status(), Status.INTERNAL);
        that(failed.error().getMessage().contains("direct memory"), failed.error().getMessage());
        world.core.end();
        that(world.heap.out.isEmpty(), "everything is released");
    }

    static void aConnectionWaitsForMemoryAndNobodyIsBlamed() {
        PushWorld world = new PushWorld(at(1)).add(0, 10);
        NoDirectMemoryException full = new NoDirectMemoryException(64 << 10, 3, 1 << 20, "none");
        for (int turn = 0; turn < Parking.TURNS_MAX; turn++) {
            same(world.core.poll(), new Connect(1));
            world.core.starved(1, full);
            world.core.check();
            world.sent();
            world.core.woken(world.only(Wake.class).worker());
        }
        PushFrame frame = world.one();
        world.core.starved(1, full); // what was on its way waits again
        world.sent();
        that(world.core.waits() && world.core.waitsFor().contains("worker 1"), world.core.waitsFor());
        world.core.woken(world.only(Wake.class).worker());
        same(world.one(), frame);
        world.answer(frame);
        world.finish();
        world.sent();
        world.only(Done.class);
        same(world.of(Revive.class), List.of());
        that(!world.core.waits() && world.heap.out.isEmpty(), "everything is kept and released");
    }
}
