package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.shuffle.holdfast.data.NoDirectMemoryException;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.wire.Limits;

/**
 * Frames whose batches do not go where they were meant to: what has another place is copied into frames for it, what has
 * none waits here, in the frame it came in.
 *
 * <p>Rules: pure. Copies are as large as their content, so that a frame whose batches are separated needs its own
 * size once more at most. Where the JVM has no memory for a copy, the rest waits as well until {@link #fed}: the frames
 * that are there already go on and give theirs back. Called by {@link PushSession}.
 */
final class Parking {
    /** Turns in a row without memory for a single copy: with the JVM's own search for memory that is about a minute. */
    static final int TURNS_MAX = 100;
    static final long PAUSE_NS = 100_000_000L;

    private final PartitionLocations locations;
    private final Revivals revivals;
    private final FrameStore store;
    private final int frameBytes;
    private final List<PushFrame> waiting = new ArrayList<>();
    /** Frames that are being filled, by slot of their destination, and what is still to be copied to each. */
    private PushFrame[] filling = new PushFrame[8];
    private long[] coming = new long[8];
    /** Why batches wait that have a place; null if none do. Nothing is copied before {@link #fed}. */
    private NoDirectMemoryException lacking;
    /** Turns in a row that ended so. */
    private int turns;

    Parking(PartitionLocations locations, Revivals revivals, FrameStore store, int frameBytes) {
        this.locations = locations;
        this.revivals = revivals;
        this.store = store;
        this.frameBytes = frameBytes;
    }

    /** Copies what has a place; returns the new frames. Frames that have batches left stay here. */
    List<PushFrame> sort(List<PushFrame> frames) {
        List<PushFrame> filled = new ArrayList<>();
        if (lacking == null) {
            foresee(frames);
            try {
                copyAll(frames, filled);
            } catch (NoDirectMemoryException full) {
                lacking = full;
                turns++;
            }
        }
        for (PushFrame frame : frames) {
            if (frame.left() > 0) {
                waiting.add(frame);
            }
        }
        for (int slot = 0; slot < filling.length; slot++) {
            if (filling[slot] != null) {
                filled.add(filling[slot]);
                filling[slot] = null;
            }
        }
        return filled;
    }

    private void copyAll(List<PushFrame> frames, List<PushFrame> filled) {
        for (PushFrame frame : frames) {
            for (int each = 0; each < frame.count(); each++) {
                if (goes(frame, each)) {
                    copy(locations.at(frame.partition(each)).destination(), frame, each, filled);
                    frame.drop(each);
                    turns = 0;
                }
            }
        }
    }

    private boolean goes(PushFrame frame, int index) {
        return frame.has(index) && !revivals.isParked(frame.partition(index));
    }

    /** Adds up the batches of each destination. */
    private void foresee(List<PushFrame> frames) {
        Arrays.fill(coming, 0);
        for (PushFrame frame : frames) {
            for (int each = 0; each < frame.count(); each++) {
                if (goes(frame, each)) {
                    int slot = slot(locations.at(frame.partition(each)).destination());
                    coming[slot] += frame.length(each);
                }
            }
        }
    }

    /** The slot of a destination, which has room in the books from then on: other attempts learn of new ones any time. */
    private int slot(Destination destination) {
        int slot = destination.slot();
        if (slot >= coming.length) {
            int larger = Math.max(2 * coming.length, slot + 1);
            coming = Arrays.copyOf(coming, larger);
            filling = Arrays.copyOf(filling, larger);
        }
        return slot;
    }

    private void copy(Destination destination, PushFrame from, int index, List<PushFrame> filled) {
        int slot = slot(destination);
        PushFrame into = filling[slot];
        int length = from.length(index);
        if (into != null && (into.body.remaining() < length || into.count() == Limits.PUSH_BATCHES_MAX)) {
            filled.add(into);
            into = filling[slot] = null;
        }
        if (into == null) {
            into = filling[slot] = store.take(destination, Math.max(length, (int) Math.min(frameBytes, coming[slot])));
        }
        into.copy(from, index);
        coming[slot] -= length;
    }

    /** Why batches wait though they have a place; null if none do. */
    NoDirectMemoryException lacking() {
        return lacking;
    }

    /** Whether there was no memory for so long that it will not come. */
    boolean spent() {
        return turns > TURNS_MAX;
    }

    /** There may be memory again. */
    void fed() {
        lacking = null;
    }

    /** Returns all frames that wait; they are no concern of this object any more. */
    List<PushFrame> leave() {
        List<PushFrame> all = new ArrayList<>(waiting);
        waiting.clear();
        return all;
    }

    /** Returns how many frames wait; throws AssertionError if one of them need not. */
    int check() {
        for (PushFrame frame : waiting) {
            for (int each = 0; each < frame.count(); each++) {
                Checks.that(lacking != null || !goes(frame, each), "only parked batches wait");
            }
        }
        return waiting.size();
    }
}
