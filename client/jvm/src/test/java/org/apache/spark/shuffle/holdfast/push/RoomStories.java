package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.at;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.numbers;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.util.List;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** What a session does while no worker has room, as stories: those of tests/unit/client/test_push_room.py. Told by {@link PushCoreMain}. */
final class RoomStories {
    private static final String FULL = "no worker has room: worker w1: /data (SSD) 512.0 MiB used of 512.0 MiB";
    /** What every error that ends a wait for room says at its end. */
    private static final String GRACE = " (NO_ROOM; how long is waited: spark.holdfast.no_room.grace)";
    private static final long NS = 1_000_000_000L;

    private RoomStories() {}

    /** A session that waits 100 s for room. */
    private static PushWorld world(int revivesMax, Location... at) {
        return new PushWorld(PushSession.UNANSWERED_BYTES_MAX, revivesMax, 100 * NS, at);
    }

    /** Answers every Revive with "no room" until the attempt ends or the pauses come to so much; returns how much. */
    private static double starve(PushWorld world, double seconds) {
        world.sent();
        double waited = 0;
        while (waited < seconds && world.rest.stream().noneMatch(Failed.class::isInstance)) {
            for (Wake wake : world.of(Wake.class)) {
                waited += (double) wake.afterNs() / NS;
                world.core.woken(wake.worker());
                world.sent();
            }
            world.only(Revive.class);
            world.core.revived(FULL);
            world.sent();
        }
        return waited;
    }

    /** Lets the pause end; the masters are asked. */
    private static Revive asked(PushWorld world) {
        world.core.woken(world.only(Wake.class).worker());
        world.sent();
        return world.only(Revive.class);
    }

    static void theMastersAreAskedUntilTheGraceIsOver() {
        PushWorld world = world(2, at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.HARD_SPLIT);
        double waited = starve(world, 1_000);
        Failed end = world.only(Failed.class);
        same(end.error().status(), Status.NO_ROOM);
        same(end.error().getMessage(), "shuffle s map 3 attempt 9: waited " + Math.round(waited)
                + " s for room for 1 partitions. " + FULL + GRACE);
        that(waited >= 100 && waited < 103, "waited " + waited);
    }

    static void roomThatComesBackIsUsed() {
        PushWorld world = world(2, at(1));
        world.answer(world.pushed(0, 10, 0, 10).get(0), 0, Status.HARD_SPLIT, 1, Status.HARD_SPLIT);
        starve(world, 90);
        asked(world);
        world.revive(0, at(1, 1));
        world.core.revived("");
        PushFrame frame = world.one();
        same(numbers(frame), List.of("0/1/0", "0/1/1"));
        world.answer(frame, 0, Status.HARD_SPLIT);
        starve(world, 90);
        same(world.of(Failed.class), List.of()); // one batch was kept: all begins anew
        asked(world);
        world.revive(0, at(2, 2));
        world.core.revived("");
        world.answer(world.one());
        world.sent();
        world.only(Done.class);
    }

    static void roomThatTakesNothingDoesNotRenewTheGrace() {
        PushWorld world = world(Revivals.REVIVES_MAX, at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.HARD_SPLIT);
        for (int epoch = 1; epoch <= 2; epoch++) {
            starve(world, 45);
            asked(world);
            world.revive(0, at(1, epoch));
            world.core.revived("");
            world.answer(world.one(), 0, Status.HARD_SPLIT);
        }
        double waited = starve(world, 45);
        world.only(Failed.class);
        that(waited < 15, "waited " + waited);
    }

    static void aWorkerThatSaysSoBeforeTheMastersKnowCostsNoRevives() {
        PushWorld world = world(2, at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.NO_ROOM);
        double waited = 0;
        for (int epoch = 1; world.of(Failed.class).isEmpty(); epoch++) {
            world.sent();
            for (Wake wake : world.of(Wake.class)) {
                waited += (double) wake.afterNs() / NS;
                world.core.woken(wake.worker());
                world.sent();
            }
            if (world.rest.stream().anyMatch(Failed.class::isInstance)) {
                break;
            }
            world.only(Revive.class);
            world.revive(0, at(1, epoch));
            world.core.revived("");
            world.answer(world.one(), 0, Status.NO_ROOM);
        }
        Failed end = world.only(Failed.class);
        same(end.error().getMessage(), "shuffle s map 3 attempt 9: waited " + Math.round(waited)
                + " s for room for 1 partitions. worker 1 answered NO_ROOM. See `holdfast workers`." + GRACE);
        that(waited >= 100 && waited < 103, "waited " + waited);
    }

    static void aPlaceWithoutRoomIsNoBrokenOne() {
        PushWorld world = world(3, at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.HARD_SPLIT);
        for (int epoch = 1; epoch <= 20; epoch++) {
            world.sent();
            for (Wake wake : world.of(Wake.class)) {
                world.core.woken(wake.worker());
                world.sent();
            }
            world.only(Revive.class);
            world.revive(0, at(1, epoch));
            world.core.revived("");
            world.answer(world.one(), 0, epoch % 2 == 0 ? Status.HARD_SPLIT : Status.NO_ROOM);
        }
        same(world.of(Failed.class), List.of());
    }

    static void placesOfOthersAreUsedWhileThereIsNoRoom() {
        PushWorld world = world(1, at(1), at(1));
        world.answer(world.pushed(0, 10, 1, 10).get(0), 0, Status.HARD_SPLIT, 1, Status.HARD_SPLIT);
        world.sent();
        world.only(Revive.class);
        world.revive(1, at(2, 1));
        world.core.revived(FULL);
        PushFrame frame = world.one();
        same(numbers(frame), List.of("1/1/0"));
        same(world.of(Failed.class), List.of());
        world.answer(frame);
        same(asked(world).failed().stream().map(Revivals.Row::partition).toList(), List.of(0));
    }
}
