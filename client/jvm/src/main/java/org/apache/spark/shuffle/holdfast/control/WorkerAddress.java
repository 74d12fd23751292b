package org.apache.spark.shuffle.holdfast.control;

import java.io.Serializable;

/**
 * Where a worker is, as the masters know it.
 *
 * @param host replicas never share one
 * @param address that of the data plane, "host:port"
 * @param alive whether it serves, draining or not
 * @param place "/region/rack"; empty: not known
 * @param draining whether it takes nothing new
 */
public record WorkerAddress(
        int worker, int incarnation, String host, String address, boolean alive, String place, boolean draining)
        implements Serializable {
    private static final String DRAINING = "draining";

    /** As replies about shuffles name it. */
    static WorkerAddress of(JsonObject told) {
        return new WorkerAddress(told.u32("worker"), told.u32("incarnation"), told.text("host"), told.text("address"),
                told.bool("alive"), told.text("place"), told.bool("draining"));
    }

    /** As the list of all workers names it. */
    static WorkerAddress listed(JsonObject told) {
        boolean draining = told.text("state").equals(DRAINING);
        return new WorkerAddress(told.u32("worker"), told.u32("incarnation"), told.text("host"), told.text("dataAddress"),
                draining || told.text("state").equals("alive"), told.text("place"), draining);
    }

    /** The first part of its place; empty: not known. */
    public String region() {
        int from = place.startsWith("/") ? 1 : 0;
        int to = place.indexOf('/', from);
        return place.substring(from, to < 0 ? place.length() : to);
    }
}
