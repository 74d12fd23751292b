package org.apache.spark.shuffle.holdfast.data;

/** What the user of a connection keeps with it from one borrowing to the next. Asked by {@link ConnectionPool}. */
public interface Books {
    /** Whether nothing is pending on the connection: its next user would wait for ever for that. */
    boolean closed();
}
