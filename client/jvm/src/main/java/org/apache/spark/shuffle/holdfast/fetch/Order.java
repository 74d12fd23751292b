package org.apache.spark.shuffle.holdfast.fetch;

/** Orders the copies of files for the core of a read, and records the results of its workers. */
interface Order {
    /** The order of the manifest, whatever is met. */
    Order GIVEN = new Order() {
        @Override
        public int[] ordered(int... copies) {
            return copies;
        }

        @Override
        public void failed(int worker) {}

        @Override
        public void slow(int worker) {}
    };

    /** All copies, the one to ask first first; the array may be the one given, and is not written to. */
    int[] ordered(int... copies);

    /** A read from it failed: it was out of reach, or what it answered or sent was of no use. */
    void failed(int worker);

    /** A rival that was asked later brought data first. */
    void slow(int worker);
}
