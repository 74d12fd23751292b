package org.apache.spark.shuffle.holdfast.push;

/**
 * Whether the rows of a writer are shorter as planes or as they are: few different rows in any order, as a join may leave them, repeat each other as
 * they are, and as planes do not. Pure.
 *
 * <p>Rules: of every {@link #EVERY} batches the first is compressed in both ways, and the others in the way that left less of it.
 */
final class Turning {
    static final int EVERY = 32;

    private int batches;
    private boolean better = true;

    /** Whether the next batch is to be compressed in both ways; ask once for each. */
    boolean due() {
        return batches++ % EVERY == 0;
    }

    /** What both ways left of a batch; returns whether planes are shorter. */
    boolean compared(int asTheyAre, int asPlanes) {
        better = asPlanes <= asTheyAre;
        return better;
    }

    /** Whether rows are turned. */
    boolean better() {
        return better;
    }
}
