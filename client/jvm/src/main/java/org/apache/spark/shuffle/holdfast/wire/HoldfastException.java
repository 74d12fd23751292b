package org.apache.spark.shuffle.holdfast.wire;

import java.io.IOException;

/** Everything that Holdfast throws. {@link #status} is its number on the wire; programs decide by it, people read the message. */
public class HoldfastException extends IOException {
    private static final long serialVersionUID = 1L;
    private final int status;
    private final boolean fromServer;

    public HoldfastException(int status, String message) {
        this(status, message, null, false);
    }

    public HoldfastException(int status, String message, Throwable cause) {
        this(status, message, cause, false);
    }

    /** @param fromServer see {@link #fromServer()} */
    protected HoldfastException(int status, String message, Throwable cause, boolean fromServer) {
        super(message, cause);
        this.status = status;
        this.fromServer = fromServer;
    }

    /** What a master answered. */
    public static HoldfastException fromServer(int status, String message) {
        return new HoldfastException(status, message, null, true);
    }

    /** A number of {@link Status}. */
    public final int status() {
        return status;
    }

    /** Whether a master answered with this status; false if this JVM decided it. Only an answer of a master ends what must continue. */
    public final boolean fromServer() {
        return fromServer;
    }

    /** Whether the same call may succeed later, unchanged. */
    public final boolean again() {
        return Status.again(status);
    }

    /** The same error seen from further out: status kept, {@code where} set before the message. */
    public final HoldfastException at(String where) {
        return new HoldfastException(status, where + ": " + getMessage(), this, fromServer);
    }
}
