package org.apache.spark.shuffle.holdfast.fetch;

import java.util.Objects;

/** Assertions of the tests here. */
final class Check {
    private Check() {}

    static void that(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object found, Object wanted) {
        that(Objects.equals(found, wanted), "found " + found + ", wanted " + wanted);
    }

    static void contains(String text, String... parts) {
        for (String part : parts) {
            that(text.contains(part), "\"" + part + "\" is not in: " + text);
        }
    }
}
