package org.apache.spark.shuffle.holdfast.data;

/**
 * The JVM has no direct memory left, also after all that lay idle was freed.
 *
 * <p>No error of the machine's: Spark would end an executor for an OutOfMemoryError, with all its tasks, where one attempt of one task
 * can fail or wait. Thrown by {@link Buffers}; a push writer waits until others have given theirs back.
 */
public final class NoDirectMemoryException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** @param taken buffers that are out @param said by the JVM; its error is no cause of this one, since Spark looks for it among causes, too */
    public NoDirectMemoryException(int bytes, int taken, long takenBytes, String said) {
        super("no " + bytes + " bytes of direct memory are left, Holdfast holds " + takenBytes + " in " + taken
                + " buffers: raise the executor's memory or -XX:MaxDirectMemorySize, or lower spark.holdfast.push.inFlight,"
                + " push.open and fetch.inFlight (" + said + ")");
    }
}
