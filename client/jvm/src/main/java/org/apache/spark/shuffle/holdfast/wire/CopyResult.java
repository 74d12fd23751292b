package org.apache.spark.shuffle.holdfast.wire;

/** What one worker said when it sealed an epoch. Status OK can be read. */
public record CopyResult(int worker, int status, long sizeBytes) {
    public boolean readable() {
        return status == Status.OK;
    }

    /** Whether the worker was away and said nothing: it is asked to seal the copy when it is back. */
    public boolean unsealed() {
        return status == Status.UNAVAILABLE;
    }
}
