package org.apache.spark.shuffle.holdfast.push;

import java.util.List;
import java.util.SortedSet;
import org.apache.spark.shuffle.holdfast.wire.EpochName;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;

/** What {@link PushSession} wants done. Carried out by {@link Pusher}, in order. */
sealed interface PushEffect {
    /** Connect to a worker; answer with {@code connected} or {@code disconnected}. */
    record Connect(int worker) implements PushEffect {}

    /** Ask the worker for a window; answer with {@code granted} or {@code disconnected}. */
    record AskCredit(int worker, int size) implements PushEffect {}

    /** Push it; answer with {@code answered}, {@code failed} or {@code disconnected}. */
    record Send(PushFrame frame) implements PushEffect {}

    /** Ask the masters for new places, and tell them of copies that lack something; answer with {@code revived} or {@code reviveFailed}. */
    record Revive(List<Revivals.Row> failed, SortedSet<Integer> unusable, List<IncompleteCopy> incomplete) implements PushEffect {}

    /** Ask a primary which copies of these epochs are incomplete; answer with {@code settled} or {@code unsettled}. */
    record Settle(PartitionLocations.Destination destination, List<EpochName> epochs) implements PushEffect {}

    /** Call {@code woken} after so long. */
    record Wake(long afterNs, int worker) implements PushEffect {
        /** No worker: the next Revive is due. */
        static final int FOR_REVIVE = -1;
        /** No worker: there may be memory again. */
        static final int FOR_MEMORY = -2;
    }

    /** Every batch is kept, at the level asked for, and the masters know of every copy that lacks any. */
    record Done() implements PushEffect {}

    /** The attempt is over. */
    record Failed(HoldfastException error) implements PushEffect {}
}
