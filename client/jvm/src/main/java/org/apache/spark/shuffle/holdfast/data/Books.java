package org.apache.spark.shuffle.holdfast.data;

/** What the user of a connection keeps with it from one borrowing to the next. Asked by {@link ConnectionPool}. */
public interface Books {
    /** Whether nothing is owed on the connection: whoever borrows it next would wait for ever for what is. */
    boolean closed();
}
