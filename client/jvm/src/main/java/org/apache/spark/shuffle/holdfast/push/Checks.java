package org.apache.spark.shuffle.holdfast.push;

/** What tests ask of the books of the cores here. */
final class Checks {
    private Checks() {}

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
