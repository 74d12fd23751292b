package org.apache.spark.shuffle.holdfast.push;

import static org.apache.spark.shuffle.holdfast.push.PushWorld.MIB;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.same;
import static org.apache.spark.shuffle.holdfast.push.PushWorld.that;

/** What windows and credit decide, as stories: the cases of tests/unit/client/test_credit.py. Told by {@link PushCoreMain}. */
final class CreditStories {
    private CreditStories() {}

    static void slowStart() {
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

    static void theWorkerIsAskedOnceForRoom() {
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

    static void whatIsAskedForDoublesInCalmAndHalvesWhereOthersWait() {
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

    static void aWindowThatLayIdleIsForgotten() {
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

    static void theBooksAreClosedWhenAllIsAnswered() {
        Credit credit = new Credit();
        that(credit.closed(), "at first");
        credit.ask(10);
        that(!credit.closed(), "what was asked for is owed");
        credit.granted(100);
        that(credit.closed() && credit.take(60) && !credit.closed(), "what was taken is owed");
        credit.returned(60);
        that(credit.closed(), "all was answered");
    }
}
