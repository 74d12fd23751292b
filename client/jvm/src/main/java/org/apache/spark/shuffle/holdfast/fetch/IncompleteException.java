package org.apache.spark.shuffle.holdfast.fetch;

/** Describes a fault of received data; its catcher adds the source. Never leaves this package. */
final class IncompleteException extends Exception {
    private static final long serialVersionUID = 1L;
    /** For errors. */
    final int partition;

    IncompleteException(int partition, String what) {
        super(what);
        this.partition = partition;
    }
}
