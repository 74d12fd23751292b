package org.apache.spark.shuffle.holdfast.client;

/** What blocks are to Holdfast. Writers and readers of a shuffle name the same one; a reader that meets another one ends with BAD_REQUEST. */
public enum BlockCodec {
    /** The engine's own format, compressed by the engine or not: passed through as it is, and marked as what only the engine reads. */
    ENGINE,
    /** Any bytes: compressed as {@code spark.holdfast.codec} of the writer says, where that saves something, and undone by the reader. */
    HOLDFAST
}
