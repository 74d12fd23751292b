package org.apache.spark.shuffle.holdfast.fetch;

/** Is told what a read costs, for Spark's task metrics. Called on the thread that reads. */
public interface ReadCosts {
    /** For so long the reader had nothing to do but wait for workers or masters; checking what came is no part of it. */
    void waited(long nanos);

    /** A stream has ended, whole or not: so long after it was asked for its last data came, without times in which the reader did not look. */
    void streamed(long nanos);

    /** A chunk was not what was written, and is read again. */
    void damaged();

    /** A payload that counts came, of so many bytes as sent. */
    void received(int bytes);

    /** Nobody is told. */
    static ReadCosts untold() {
        return new ReadCosts() {
            @Override
            public void waited(long nanos) {}

            @Override
            public void streamed(long nanos) {}

            @Override
            public void damaged() {}

            @Override
            public void received(int bytes) {}
        };
    }
}
