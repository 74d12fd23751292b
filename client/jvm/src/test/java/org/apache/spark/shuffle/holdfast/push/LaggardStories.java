package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.copied;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.error;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.util.List;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Done;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Failed;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Revive;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Settle;
import org.apache.spark.shuffle.holdfast.push.PushEffect.Wake;
import org.apache.spark.shuffle.holdfast.wire.EpochName;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** What an attempt does about replicas that were behind, as stories: those of tests/unit/client/test_laggards.py. Told by {@link PushCoreMain}. */
final class LaggardStories {
    private LaggardStories() {}

    /** Two partitions on three workers, a batch for each, all acknowledged with these replicas behind. */
    private static PushWorld behind(int replicas) {
        PushWorld world = new PushWorld(copied(1, 2, 3), copied(1, 2, 3));
        world.behind = replicas;
        world.answer(world.pushed(0, 10, 1, 10).get(0));
        world.sent();
        return world;
    }

    static void anAttemptEndsWhenItsReplicasHaveCaughtUp() {
        behind(0).only(Done.class);
        PushWorld world = behind(2);
        same(world.of(Done.class), List.of());
        that(world.core.waits(), "it waits for the primary");
        Settle settle = world.only(Settle.class);
        same(settle.destination().primary(), 1);
        same(settle.epochs(), List.of(new EpochName(0, 0), new EpochName(1, 0)));
        world.core.settled(settle, List.of());
        world.sent();
        world.only(Done.class);
    }

    static void theMastersKnowWhatCopiesLackBeforeTheAttemptEnds() {
        PushWorld world = behind(2);
        List<IncompleteCopy> copies = List.of(new IncompleteCopy(1, 0, 3));
        world.core.settled(world.only(Settle.class), copies);
        world.sent();
        Revive revive = world.only(Revive.class);
        same(revive.incomplete(), copies);
        same(revive.failed(), List.of());
        world.core.reviveFailed(error(Status.UNAVAILABLE));
        world.sent();
        same(world.only(Revive.class), revive);
        same(world.of(Done.class), List.of());
        world.core.revived("");
        world.sent();
        world.only(Done.class);
    }

    static void whoIsBehindOfASilentPrimaryIsIncomplete() {
        PushWorld world = new PushWorld(copied(1, 2, 3), copied(1, 2, 3));
        world.add(0, 10, 1, 10);
        world.behind = 3;
        world.answer(world.one());
        world.behind = 1;
        world.answer(world.pushed(0, 10).get(0));
        world.sent();
        world.core.unsettled(world.only(Settle.class));
        world.sent();
        same(world.only(Revive.class).incomplete(),
                List.of(new IncompleteCopy(0, 0, 2), new IncompleteCopy(1, 0, 2), new IncompleteCopy(1, 0, 3)));
        world.core.reviveFailed(error(Status.REPLICA_FAILED));
        world.sent();
        same(world.only(Failed.class).error().status(), Status.UNAVAILABLE);
    }

    static void mastersThatNeverAnswerEndTheAttempt() {
        PushWorld world = behind(1);
        world.core.unsettled(world.only(Settle.class));
        world.sent();
        int asked = 0;
        while (world.rest.stream().noneMatch(Failed.class::isInstance)) {
            for (Wake wake : world.of(Wake.class)) {
                world.core.woken(wake.worker());
                world.sent();
            }
            world.only(Revive.class);
            asked++;
            world.core.reviveFailed(error(Status.UNAVAILABLE));
            world.sent();
        }
        same(asked, Revivals.REVIVES_MAX);
        same(world.only(Failed.class).error().status(), Status.UNAVAILABLE);
    }
}
