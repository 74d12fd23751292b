package org.apache.spark.shuffle.holdfast.data;

import java.nio.ByteBuffer;

/**
 * A frame as it was received; its header and checksum are right.
 *
 * <p>Rules: a connection has one of these and fills it anew. Frame, meta and body are valid until {@link #release()} or
 * the connection's next {@code receive}, whichever is first; what is to live longer is copied out. Meta and body lie
 * between position and limit, little endian, and may be views into a larger buffer (position is not 0). Made by
 * {@link WorkerConnection#receive(int)}.
 */
public final class Frame {
    private final WorkerConnection owner;
    int type;
    int status;
    long requestId;
    boolean response;
    ByteBuffer meta;
    ByteBuffer body;

    Frame(WorkerConnection owner) {
        this.owner = owner;
    }

    /** One of {@code FrameType}'s numbers. */
    public int type() {
        return type;
    }

    /** One of {@code Status}' numbers; where it is not OK, meta is text for people. */
    public int status() {
        return status;
    }

    /** The request that this answers, as {@link WorkerConnection#send} returned it. */
    public long requestId() {
        return requestId;
    }

    /** Whether the flag RESPONSE is set. */
    public boolean response() {
        return response;
    }

    /** The meta section; a text if {@link #status()} is not OK. */
    public ByteBuffer meta() {
        return meta;
    }

    /** The body; may be empty. */
    public ByteBuffer body() {
        return body;
    }

    /** The meta section as text, for errors. */
    public String text() {
        byte[] bytes = new byte[Math.min(meta.remaining(), 1024)];
        meta.duplicate().get(bytes);
        return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
    }

    /** Gives the memory of a long body back now instead of at the next {@code receive}. May be called twice. */
    public void release() {
        owner.releaseBody();
    }
}
