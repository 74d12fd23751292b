package org.apache.spark.shuffle.holdfast.control;

import java.io.Serializable;

/** Where a worker is, as the masters know it. {@code address} is that of the data plane, "host:port"; replicas never share a {@code host}. */
public record WorkerAddress(int worker, int incarnation, String host, String address, boolean alive) implements Serializable {
    static WorkerAddress of(JsonObject told) {
        return new WorkerAddress(told.u32("worker"), told.u32("incarnation"), told.text("host"), told.text("address"),
                told.bool("alive"));
    }
}
