package org.apache.spark.shuffle.holdfast.push;

/**
 * Chooses for one writer whether rows are compressed as byte planes or as they are. Planes win on most rows; a few different rows in any
 * order, as a join may leave them, compress better as they are. Pure.
 *
 * <p>Rules: one batch of {@link #EVERY} is compressed in both ways, and the others in the way that was shorter for it. The choice is the
 * writer's, since all its partitions have rows of one schema; whether compression pays at all is decided for each partition ({@link Shrinking}).
 */
final class PlanesChoice {
    static final int EVERY = 32;

    private int batches;
    private boolean better = true;

    /** Whether the next batch is to be compressed in both ways; ask once for each. */
    boolean due() {
        return batches++ % EVERY == 0;
    }

    /** Takes the length of a batch compressed in either way; returns whether planes are at most as long. */
    boolean compared(int asTheyAre, int asPlanes) {
        better = asPlanes <= asTheyAre;
        return better;
    }

    /** Whether batches are compressed as planes for now. */
    boolean better() {
        return better;
    }
}
