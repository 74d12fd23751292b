package org.apache.spark.shuffle.holdfast.fetch;

/** What is wrong with what came; whoever catches it adds where it came from. Never leaves this package. */
final class IncompleteException extends Exception {
    private static final long serialVersionUID = 1L;
    /** For errors. */
    final int partition;

    IncompleteException(int partition, String what) {
        super(what);
        this.partition = partition;
    }
}
