package org.apache.spark.shuffle.holdfast;

import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/** What test programs check with; a check that fails ends the program with a sentence. */
public final class Checks {
    /** Something that may throw. */
    public interface Action {
        void run() throws Exception;
    }

    private Checks() {}

    public static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    public static void same(Object expected, Object got, String what) {
        check(expected.equals(got), what + ": expected " + expected + ", got " + got);
    }

    /** Run what has to be refused with this status; anything else that it throws goes on. */
    public static HoldfastException refused(int status, String what, Action action) throws Exception {
        try {
            action.run();
        } catch (HoldfastException error) {
            check(error.status() == status, what + ": expected status " + status + ", got " + error.status() + ": "
                    + error.getMessage());
            return error;
        }
        throw new AssertionError(what + ": was not refused");
    }
}
