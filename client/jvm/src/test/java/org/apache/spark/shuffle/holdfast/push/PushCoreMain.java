package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.MIB;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.at;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.copied;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.error;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.numbers;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.put;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.sorted;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
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

/**
 * The push session's core as stories, and as long random ones: the cases of tests/unit/client/test_push.py and
 * test_credit.py. Run by tests/jvm/test_push.py; prints "ok" and the number of stories.
 */
public final class PushCoreMain {
    private static int stories;

    private PushCoreMain() {}

    private static void anAttemptWithoutBatchesIsDone() {
        PushWorld world = new PushWorld(at(1));
        same(world.pushed(), List.of());
        world.only(Done.class);
    }

    private static void batchesOfAWorkerShareAFrame() {
        PushWorld world = new PushWorld(at(1), at(2), at(1));
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

    /** A token that ended costs a connection, like any loss; one that is refused ends the attempt with the worker's words. */
    private static void tokens() {
        PushWorld world = new PushWorld(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        world.core.disconnected(1, error(Status.TOKEN_EXPIRED));
        same(world.sent(), List.of());
        world.core.woken(world.only(Wake.class).worker());
        same(world.one(), frame);
        for (int status : new int[] {Status.UNAUTHENTICATED, Status.FORBIDDEN}) {
            PushWorld refusing = new PushWorld(at(1)).add(0, 10);
            same(refusing.core.poll(), new Connect(1));
            refusing.core.disconnected(1, error(status));
            same(((Failed) refusing.core.poll()).error().status(), status);
        }
    }

    private static void framesHaveEqualReplicas() {
        PushWorld world = new PushWorld(copied(1, 2), copied(1, 3), copied(1, 2));
        same(sorted(world.pushed(0, 10, 1, 10, 2, 10)), List.of(List.of("0/0/0", "2/0/0"), List.of("1/0/0")));
    }

    private static void theWindowIsKept() {
        PushWorld world = new PushWorld(at(1));
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
        Arrays.setAll(ten, PushWorld::at);
        PushWorld world = new PushWorld(8 * MIB, 32, ten);
        for (int each = 0; each < 40; each++) {
            world.add(each % 10, MIB);
        }
        that(world.sent().size() <= 18, "every worker may have one frame beyond the bound");
    }

    private static void aFrameLargerThanTheWindowGoesAlone() {
        PushWorld world = new PushWorld(at(1));
        same(world.pushed(0, 16 * MIB).get(0).size(), 16 * MIB);
    }

    private static void refusedBatchesKeepTheirNumbers() {
        PushWorld world = new PushWorld(at(1), at(1), at(1));
        PushFrame frame = world.pushed(0, 10, 1, 10, 2, 10, 0, 10).get(0);
        world.answer(frame, 0, Status.HARD_SPLIT, 2, Status.SEALED, 3, Status.HARD_SPLIT);
        same(world.sent(), List.of());
        Revive revive = world.only(Revive.class);
        same(new HashSet<>(revive.failed()), Set.of(
                new Revivals.Row(0, 0, Status.HARD_SPLIT), new Revivals.Row(2, 0, Status.SEALED)));
        world.revive(0, at(2, 1));
        world.revive(2, at(3, 1));
        world.core.revived("");
        List<PushFrame> frames = world.sent();
        same(sorted(frames), List.of(List.of("0/1/0", "0/1/1"), List.of("2/1/0")));
        that(!world.heap.out.contains(frame), "the first frame is released");
        frames.forEach(each -> world.answer(each));
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void laterBatchesOfAMovedPartitionWaitToo() {
        PushWorld world = new PushWorld(at(1), at(1));
        world.answer(world.add(0, 300).one(), 0, Status.HARD_SPLIT);
        same(numbers(world.pushed(0, 10, 1, 10).get(0)), List.of("1/0/0"));
        world.only(Revive.class);
        world.revive(0, at(2, 1));
        world.core.revived("");
        same(numbers(world.one()), List.of("0/1/0", "0/1/1"));
    }

    private static void oneReviveAtATime() {
        PushWorld world = new PushWorld(at(1), at(2), at(3));
        List<PushFrame> frames = world.pushed(0, 10, 1, 10, 2, 10);
        world.answer(frames.get(0), 0, Status.HARD_SPLIT);
        world.answer(frames.get(1), 0, Status.HARD_SPLIT);
        world.answer(frames.get(2), 0, Status.FAILED_COPY);
        world.sent();
        same(world.only(Revive.class).failed().size(), 1);
        world.revive(0, at(4, 1));
        world.core.revived("");
        world.sent();
        Revive both = world.only(Revive.class);
        same(new TreeSet<>(both.failed().stream().map(Revivals.Row::partition).toList()), new TreeSet<>(List.of(1, 2)));
    }

    private static void whatAnotherAttemptLearntIsUsed() {
        PushWorld world = new PushWorld(at(1), at(2));
        PushFrame stale = world.heap.take(world.locations.at(0).destination(), 100);
        put(stale, 0, 0, 10);
        world.revive(0, at(2, 1));
        world.core.added(stale);
        same(numbers(world.pushed(1, 10).get(0)), List.of("0/1/0"));
        same(world.rest, List.of());
    }

    private static void aSoftSplitIsNoRefusal() {
        PushWorld world = new PushWorld(at(1));
        world.answer(world.add(0, 10).one(), 0, Status.SOFT_SPLIT);
        same(numbers(world.add(0, 10).one()), List.of("0/0/1"));
        same(world.only(Revive.class).failed(), List.of(new Revivals.Row(0, 0, Status.SOFT_SPLIT)));
        world.revive(0, at(2, 1));
        world.core.revived("");
        same(numbers(world.add(0, 10).one()), List.of("0/1/2"));
    }

    private static void aSoftSplitThatCannotBePlacedDoesNoHarm() {
        PushWorld world = new PushWorld(at(1));
        world.answer(world.add(0, 10).one(), 0, Status.SOFT_SPLIT);
        world.sent();
        world.only(Revive.class);
        world.core.reviveFailed(error(Status.NO_ROOM));
        world.finish();
        world.sent();
        world.only(Done.class);
    }

    private static void aLostConnectionMeansTheSamePlaceAgain() {
        PushWorld world = new PushWorld(at(1));
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
        PushWorld world = new PushWorld(at(1));
        world.answer(world.add(0, 10).one());
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        same(numbers(world.add(0, 10).one()), List.of("0/0/1"));
        same(world.rest, List.of());
    }

    private static void whatWasDecidedForALostConnectionIsVoid() {
        PushWorld world = new PushWorld(at(1));
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
        PushWorld world = new PushWorld(at(1));
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
        PushWorld world = new PushWorld(at(1), at(2));
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
        world.core.revived("");
        PushFrame again = world.one();
        same(numbers(again), List.of("0/1/0"));
        world.answer(frames.get(1));
        world.answer(again);
        world.sent();
        world.only(Done.class);
        that(world.heap.out.isEmpty(), "everything is released");
    }

    private static void aWorkerThatCameBackAsAnotherIsUsed() {
        PushWorld world = new PushWorld(at(1));
        world.add(0, 10).one();
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        world.sent();
        world.core.woken(1);
        world.core.poll();
        world.locations.learn(0, at(1, 1), Map.of(1, 2));
        world.core.disconnected(1, error(Status.UNAVAILABLE));
        PushFrame again = world.one();
        same(numbers(again), List.of("0/1/0"));
        same(again.destination.incarnation(), 2);
    }

    private static void aSilentWorkerIsLeftAtOnce() {
        PushWorld world = new PushWorld(at(1));
        world.pushed(0, 10);
        world.core.disconnected(1, error(Status.OUTCOME_UNKNOWN));
        world.sent();
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(1)));
    }

    private static void aFailedReplicaIsNamed() {
        PushWorld world = new PushWorld(copied(1, 3, 2));
        world.failed = 2;
        world.answer(world.pushed(0, 10).get(0), 0, Status.REPLICA_FAILED);
        world.sent();
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(2)));
    }

    private static void aBusyWorkerIsLeftAloneForAMoment() {
        PushWorld world = new PushWorld(at(1));
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
        PushWorld world = new PushWorld(at(1));
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
        PushWorld world = new PushWorld(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        for (int each = 0; each < WorkerPushes.BUSY_MAX; each++) {
            world.core.failed(frame, error(Status.BUSY));
            world.sent();
            if (each < WorkerPushes.BUSY_MAX - 1) {
                world.core.woken(1);
                frame = world.one();
            }
        }
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(1)));
        world.revive(0, at(2, 1));
        world.core.revived("");
        world.answer(world.one());
        world.sent();
        world.only(Done.class);
    }

    private static void damageOnTheWayIsSentAgain() {
        PushWorld world = new PushWorld(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        for (int each = 1; each < WorkerPushes.DAMAGES_MAX; each++) {
            world.core.failed(frame, error(Status.CORRUPT));
            frame = world.one();
        }
        world.core.failed(frame, error(Status.CORRUPT));
        world.sent();
        same(world.only(Revive.class).unusable(), new TreeSet<>(List.of(1)));
        world.revive(0, at(2, 1));
        world.core.revived("");
        world.answer(world.one());
        world.sent();
        world.only(Done.class);
    }

    private static void aSiblingWon() {
        PushWorld whole = new PushWorld(at(1));
        whole.core.failed(whole.pushed(0, 10).get(0), error(Status.COMMITTED));
        whole.sent();
        same(whole.only(Failed.class).error().status(), Status.COMMITTED);
        PushWorld one = new PushWorld(at(1));
        one.answer(one.pushed(0, 10, 0, 10).get(0), 1, Status.COMMITTED);
        one.sent();
        Failed failed = one.only(Failed.class);
        same(failed.error().status(), Status.COMMITTED);
        that(failed.error().getMessage().contains("map 3 attempt 9: partition 0 epoch 0"), failed.error().getMessage());
        that(one.core.over(), "over");
    }

    private static void mastersThatCommittedEndTheAttempt() {
        for (int status : new int[] {Status.COMMITTED, Status.APPLICATION_GONE}) {
            PushWorld world = new PushWorld(at(1));
            world.answer(world.pushed(0, 10).get(0), 0, Status.SEALED);
            world.core.reviveFailed(error(status));
            world.sent();
            same(world.only(Failed.class).error().status(), status);
        }
        PushWorld world = new PushWorld(at(1));
        world.answer(world.pushed(0, 10).get(0), 0, Status.SEALED);
        world.sent();
        world.only(Revive.class);
        world.core.reviveFailed(error(Status.NO_ROOM));
        world.sent();
        world.only(Revive.class);
    }

    private static void revivesWithoutProgressAreBudgeted() {
        PushWorld world = new PushWorld(at(1));
        PushFrame frame = world.pushed(0, 10).get(0);
        List<Long> pauses = new ArrayList<>();
        List<Failed> ends = List.of();
        for (int round = 1; round <= Revivals.REVIVES_MAX + 1; round++) {
            world.answer(frame, 0, Status.DISK_FAILED);
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
            world.core.revived("");
            frame = world.one();
        }
        same(ends.size(), 1);
        same(ends.get(0).error().status(), Status.UNAVAILABLE); // no want of room
        String text = ends.get(0).error().getMessage();
        that(text.contains("partition 0 was moved 32 times") && text.contains("DISK_FAILED"), text);
        same(pauses, pauses.stream().sorted().toList());
        that(pauses.size() > 20, "pauses");
    }

    private static void anAcceptedBatchRenewsTheBudget() {
        PushWorld world = new PushWorld(PushSession.UNANSWERED_BYTES_MAX, 2, at(1));
        for (int round = 0; round < 10; round++) {
            world.answer(world.add(0, 10).one(), 0, Status.HARD_SPLIT);
            world.sent();
            world.revive(0, at(1, round + 1));
            world.core.revived("");
            world.answer(world.one());
            same(world.of(Failed.class), List.of());
        }
        world.finish();
        world.sent();
        world.only(Done.class);
    }

    /** All frames are answered, and one batch too few is kept: it was lost on the way to them. */
    private static void aBatchThatWasLostOnItsWayIsMissed() {
        PushWorld world = new PushWorld(at(1));
        PushFrame frame = world.add(0, 10, 0, 20).one();
        world.core.finished(3);
        world.answer(frame);
        world.sent();
        HoldfastException error = world.only(Failed.class).error();
        same(error.status(), Status.INTERNAL);
        that(error.getMessage().contains("3 batches were made, and workers keep 2"), error.getMessage());
    }

    private static void aStatusForABatchThatWasNotSentIsAnError() {
        PushWorld world = new PushWorld(at(1));
        world.answer(world.pushed(0, 10).get(0), 5, Status.HARD_SPLIT);
        world.sent();
        same(world.only(Failed.class).error().status(), Status.BAD_FRAME);
    }

    private static void tell(Runnable story) {
        story.run();
        stories++;
    }

    public static void main(String[] args) {
        List<Runnable> all = List.of(
                PushCoreMain::anAttemptWithoutBatchesIsDone, PushCoreMain::batchesOfAWorkerShareAFrame,
                PushCoreMain::tokens, PushCoreMain::framesHaveEqualReplicas, PushCoreMain::theWindowIsKept,
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
                PushCoreMain::aBatchThatWasLostOnItsWayIsMissed,
                PushCoreMain::aStatusForABatchThatWasNotSentIsAnError, CreditStories::slowStart,
                CreditStories::theWorkerIsAskedOnceForRoom,
                CreditStories::whatIsAskedForDoublesInCalmAndHalvesWhereOthersWait, CreditStories::aWindowThatLayIdleIsForgotten,
                LinkStories::aWorkerWithoutRoomIsAskedWhetherItLives, LinkStories::aWorkerThatDoesNotAnswerIsLeft,
                MemoryStories::copiesAreNoLargerThanWhatIsInThem, MemoryStories::batchesWaitForMemory,
                MemoryStories::memoryThatNeverComesEndsTheAttempt,
                MemoryStories::aConnectionWaitsForMemoryAndNobodyIsBlamed, CreditStories::theBooksAreClosedWhenAllIsAnswered,
                RoomStories::theMastersAreAskedUntilTheGraceIsOver, RoomStories::roomThatComesBackIsUsed,
                RoomStories::roomThatTakesNothingDoesNotRenewTheGrace,
                RoomStories::aWorkerThatSaysSoBeforeTheMastersKnowCostsNoRevives, RoomStories::aPlaceWithoutRoomIsNoBrokenOne,
                RoomStories::placesOfOthersAreUsedWhileThereIsNoRoom,
                LaggardStories::anAttemptEndsWhenItsReplicasHaveCaughtUp,
                LaggardStories::theMastersKnowWhatCopiesLackBeforeTheAttemptEnds,
                LaggardStories::whoIsBehindOfASilentPrimaryIsIncomplete, LaggardStories::mastersThatNeverAnswerEndTheAttempt);
        all.forEach(PushCoreMain::tell);
        for (int seed = 0; seed < 300; seed++) {
            int now = seed;
            tell(() -> RandomStories.whateverHappensEveryBatchIsKeptUnderItsNumber(now));
        }
        System.out.println("ok " + stories);
    }
}
