package org.apache.spark.shuffle.holdfast.wire;

import java.io.IOException;

/** Everything that Holdfast throws. {@link #status} is the number that stands for it on the wire; programs decide by it, people read the message. */
public class HoldfastException extends IOException {
    private static final long serialVersionUID = 1L;
    private final int status;

    public HoldfastException(int status, String message) {
        super(message);
        this.status = status;
    }

    public HoldfastException(int status, String message, Throwable cause) {
        super(message, cause);
        this.status = status;
    }

    /** A number of {@link Status}. */
    public final int status() {
        return status;
    }

    /** Whether the same call may succeed later, unchanged. */
    public final boolean again() {
        return Status.again(status);
    }

    /** The same error seen from further out: status kept, {@code where} set before the message. */
    public final HoldfastException at(String where) {
        return new HoldfastException(status, where + ": " + getMessage(), this);
    }
}
