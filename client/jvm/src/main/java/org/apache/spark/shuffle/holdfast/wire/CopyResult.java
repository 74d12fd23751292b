package org.apache.spark.shuffle.holdfast.wire;

/** What one worker said when it sealed an epoch. Status OK can be read. */
public record CopyResult(int worker, int status, long sizeBytes) {
    public boolean readable() {
        return status == Status.OK;
    }

    /** Whether it may be readable later: the worker was away and seals it when it is back, or makes it of another copy. */
    public boolean unsealed() {
        return status == Status.UNAVAILABLE || status == Status.NOT_SEALED;
    }
}
