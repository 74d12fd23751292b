package org.apache.spark.shuffle.holdfast.fetch;

/** Adds up what a read costs. */
final class CountedCosts implements ReadCosts {
    long waitedNs;
    long streamedNs;
    int streams;
    int damaged;

    @Override
    public void waited(long nanos) {
        waitedNs += nanos;
    }

    @Override
    public void streamed(long nanos) {
        Check.that(nanos >= 0, "a stream took " + nanos + " ns");
        streamedNs += nanos;
        streams++;
    }

    @Override
    public void damaged() {
        damaged++;
    }

    @Override
    public void received(int bytes) {}
}
