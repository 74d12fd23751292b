package org.apache.spark.shuffle.holdfast.fetch;

/**
 * How readers choose between copies.
 *
 * @param order by what copies are put in order
 * @param pendingThreshold the first copy gives way where its worker has so many more streams of this JVM open than the least
 *     loaded one; 0: never
 * @param slowExpireMs for how long a worker counts as slow that lost to a speculative read
 * @param failureExpireMs for how long a failed read counts against a worker
 * @param everyRemote whether a copy of another region comes after every two local ones, or one after the first two
 * @param region of this JVM; empty: not known
 * @param speculative whether another copy is opened where the first one is late
 * @param speculativeDelayMs when it is late; 0: from what was observed
 */
public record ReadSettings(
        OrderBy order,
        int pendingThreshold,
        long slowExpireMs,
        long failureExpireMs,
        boolean everyRemote,
        String region,
        boolean speculative,
        long speculativeDelayMs) {
    private static final long EXPIRE_MS = 60_000;

    /** By what copies are put in order. */
    public enum OrderBy {
        /** As the manifest has them. */
        GIVEN,
        /** By what the masters say of their workers, and what was met there. */
        HEALTH,
        /** By that, and those of the own region first. */
        REGION
    }

    /** By health, nothing speculative. */
    public static ReadSettings defaults() {
        return new ReadSettings(OrderBy.HEALTH, 0, EXPIRE_MS, EXPIRE_MS, false, "", false, 0);
    }
}
