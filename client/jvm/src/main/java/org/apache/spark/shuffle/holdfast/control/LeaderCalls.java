package org.apache.spark.shuffle.holdfast.control;

import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Being written. */
final class LeaderCalls implements AutoCloseable {
    LeaderCalls(List<String> endpoints) {}

    JsonObject call(String method, JsonObject request, boolean command, int deadlineMs) throws HoldfastException {
        throw new HoldfastException(Status.INTERNAL, "not here yet");
    }

    String clusterId() {
        return "";
    }

    long raftIndex() {
        return 0;
    }

    @Override
    public void close() {}
}
