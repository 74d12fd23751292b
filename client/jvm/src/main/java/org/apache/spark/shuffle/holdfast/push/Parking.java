package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.shuffle.holdfast.push.Places.Destination;
import org.apache.spark.shuffle.holdfast.wire.Limits;

/**
 * Frames whose batches do not go where they were meant to: what has another place is copied into frames for it, what has
 * none waits here, in the frame it came in. Pure. Called by {@link PushSession}.
 */
final class Parking {
    private final Places places;
    private final Revivals revivals;
    private final FrameStore store;
    private final int frameBytes;
    private final List<PushFrame> waiting = new ArrayList<>();
    /** Frames that are being filled, by slot of their destination. */
    private PushFrame[] filling = new PushFrame[8];

    Parking(Places places, Revivals revivals, FrameStore store, int frameBytes) {
        this.places = places;
        this.revivals = revivals;
        this.store = store;
        this.frameBytes = frameBytes;
    }

    /** Copies what has a place; returns the new frames. Frames that have batches left stay here. */
    List<PushFrame> sort(List<PushFrame> frames) {
        long bytes = 0;
        for (PushFrame each : frames) {
            bytes += each.size();
        }
        int usual = (int) Math.min(frameBytes, bytes);
        List<PushFrame> filled = new ArrayList<>();
        for (PushFrame frame : frames) {
            for (int each = 0; each < frame.count(); each++) {
                if (frame.has(each) && !revivals.isParked(frame.partition(each))) {
                    copy(places.at(frame.partition(each)).destination(), frame, each, usual, filled);
                    frame.drop(each);
                }
            }
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

    private void copy(Destination destination, PushFrame from, int index, int usual, List<PushFrame> filled) {
        int slot = destination.slot();
        if (slot >= filling.length) {
            filling = Arrays.copyOf(filling, Math.max(2 * filling.length, slot + 1));
        }
        PushFrame into = filling[slot];
        int length = from.length(index);
        if (into != null && (into.body.remaining() < length || into.count() == Limits.PUSH_BATCHES_MAX)) {
            filled.add(into);
            into = null;
        }
        if (into == null) {
            into = filling[slot] = store.take(destination, Math.max(length, usual));
        }
        into.copy(from, index);
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
                Checks.that(!frame.has(each) || revivals.isParked(frame.partition(each)), "only parked batches wait");
            }
        }
        return waiting.size();
    }
}
