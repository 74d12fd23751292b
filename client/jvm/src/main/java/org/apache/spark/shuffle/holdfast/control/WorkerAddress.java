package org.apache.spark.shuffle.holdfast.control;

import java.io.Serializable;

/**
 * The addresses of a worker, from the masters.
 *
 * @param host copies never share one
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
    static WorkerAddress of(JsonObject reply) {
        return new WorkerAddress(reply.u32("worker"), reply.u32("incarnation"), reply.text("host"), reply.text("address"),
                reply.bool("alive"), reply.text("place"), reply.bool("draining"));
    }

    /** As the list of all workers names it. */
    static WorkerAddress listed(JsonObject reply) {
        boolean draining = reply.text("state").equals(DRAINING);
        return new WorkerAddress(reply.u32("worker"), reply.u32("incarnation"), reply.text("host"), reply.text("dataAddress"),
                draining || reply.text("state").equals("alive"), reply.text("place"), draining);
    }

    /** The first part of its place; empty: not known. */
    public String region() {
        int from = place.startsWith("/") ? 1 : 0;
        int to = place.indexOf('/', from);
        return place.substring(from, to < 0 ? place.length() : to);
    }
}
