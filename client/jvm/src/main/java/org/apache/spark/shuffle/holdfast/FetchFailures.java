package org.apache.spark.shuffle.holdfast;

import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.shuffle.holdfast.fetch.UnusableWorkersException;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Decides what an error while reading means to Spark: data that is lost or damaged, or for too long out of reach of this executor, is a fetch
 * failure, upon which the maps run again in the next generation, without the workers that could not be read from; a task that was killed ends killed; everything else fails this attempt of the task and is tried again.
 */
final class FetchFailures {
    private final TaskContext context;
    private final int shuffle;
    private final MapBlocks blocks;
    private final GenerationReport report;

    /** Reports a generation that cannot be read to the masters, before Spark. */
    interface GenerationReport {
        void failed(int generation, HoldfastException reason);
    }

    FetchFailures(TaskContext context, int shuffle, MapBlocks blocks, GenerationReport report) {
        this.context = context;
        this.shuffle = shuffle;
        this.blocks = blocks;
        this.report = report;
    }

    /** Throws, never returns: what Spark is to see instead of {@code error}. Iterators declare no exceptions, so they go unchecked. */
    RuntimeException raise(IOException error) {
        context.killTaskIfInterrupted();
        if (error instanceof HoldfastException known && mapsRunAgain(known)) {
            if (!unheard(known.status())) { // what the masters dropped, or lost in a restore, does not exist for them
                report.failed(blocks.generation(), known);
            }
            throw unchecked(failure(known.getMessage(), known));
        }
        throw unchecked(error);
    }

    /** Statuses of two generations: the older one is to go. */
    RuntimeException raiseMixed() {
        throw unchecked(failure(
                "shuffle " + shuffle + ": statuses name more than one generation; the oldest, " + blocks.generation() + ", is to go", null));
    }

    private FetchFailedException failure(String message, Throwable cause) {
        return new FetchFailedException(
                blocks.location(), shuffle, blocks.someAttempt(), blocks.someMap(), blocks.somePartition(), message, cause);
    }

    private static boolean mapsRunAgain(HoldfastException error) {
        return Status.rerunsMaps(error.status()) || error instanceof UnusableWorkersException;
    }

    /** Whether the masters said that they have no such generation. */
    static boolean unheard(int status) {
        return status == Status.UNKNOWN_GENERATION || status == Status.UNKNOWN_SHUFFLE;
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException unchecked(Throwable error) throws E {
        throw (E) error;
    }
}
