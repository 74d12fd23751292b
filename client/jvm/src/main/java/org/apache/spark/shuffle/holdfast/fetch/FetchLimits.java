package org.apache.spark.shuffle.holdfast.fetch;

/**
 * What one read may take.
 *
 * @param bytesInFlight what workers may have on the way to one reader, all streams together
 * @param streams workers that are read from at the same time
 * @param returnGraceMs how long a worker may be lost before data of which it has the only copy counts as lost
 * @param reachMs how long a worker that the masters call alive may be out of reach: a broken network must not hang a task
 */
public record FetchLimits(long bytesInFlight, int streams, long returnGraceMs, long reachMs) {
    private static final int MIB = 1 << 20;
    /** A few frames are on their way while one is being checked. */
    private static final int CREDIT_BYTES = 8 * MIB;
    /** Less than a frame of the worker's would make it cut them. */
    private static final int CREDIT_BYTES_MIN = MIB;

    /** 48 MiB, 8 workers, the masters' default of {@code worker.return_grace}, and two minutes. */
    public static FetchLimits defaults() {
        return new FetchLimits(48L * MIB, 8, 30_000, 120_000);
    }

    /** Rivals beside these, which take nothing that was not there before: none where the bytes are for one stream. */
    int rivals(boolean speculative) {
        return speculative ? (int) Math.max(0, Math.min(Fetch.RIVALS_MAX, bytesInFlight / CREDIT_BYTES_MIN - 1)) : 0;
    }

    /** Streams that share the bytes with so many rivals: never so many that one has less than the least credit. */
    int streamsAtOnce(int rivals) {
        return (int) Math.max(1, Math.min(streams, bytesInFlight / CREDIT_BYTES_MIN - rivals));
    }

    /** Credit of each stream where {@code workers} are to be read from, with so many rivals. */
    int creditBytes(int workers, int rivals) {
        int sharing = Math.max(1, Math.min(workers, streamsAtOnce(rivals))) + rivals;
        return (int) Math.max(CREDIT_BYTES_MIN, Math.min(CREDIT_BYTES, bytesInFlight / sharing));
    }
}
