package org.apache.spark.shuffle.holdfast.push;

/**
 * Which payloads of a writer are worth compressing, from what became of those before: by partition, since one may hold hashes and the next
 * one text. The twin of {@code Shrinking} in client/compress.py. Pure.
 *
 * <p>Rules: what did not shrink by an eighth spares its own partition {@link #SKIPS} tries. Only where {@link #MISSES} tries in a row, of whatever
 * partitions, were in vain are partitions of which nothing is known tried less often; what shrinks anywhere ends that.
 */
final class Shrinking {
    /** Payloads of a partition that are sent as they are after one that did not shrink. */
    static final int SKIPS = 31;
    /** Tries in vain, one after another, after which the writer's data counts as such that does not shrink. */
    static final int MISSES = 16;
    /** Of the payloads of unknown partitions every so many is tried then. */
    static final int EVERY = 8;
    /** The last one that was tried has shrunk. */
    private static final byte SHRINKS = -1;

    /** Of each partition: how many are not tried now, or {@link #SHRINKS}; 0 where nothing is known. */
    private final byte[] skips;
    private int misses;
    private int passed;

    Shrinking(int partitions) {
        skips = new byte[partitions];
    }

    /** Whether the next payload of this partition is to be tried; ask once for each. */
    boolean worth(int partition) {
        if (skips[partition] > 0) {
            skips[partition]--;
            return false;
        }
        if (skips[partition] == SHRINKS || misses < MISSES) {
            return true;
        }
        passed = (passed + 1) % EVERY;
        return passed == 0;
    }

    /** What became of one that was tried; returns whether it shrank enough to be sent so. */
    boolean shrank(int partition, int before, int after) {
        boolean enough = after <= before - before / 8;
        skips[partition] = enough ? SHRINKS : SKIPS;
        misses = enough ? 0 : Math.min(MISSES, misses + 1);
        return enough;
    }
}
