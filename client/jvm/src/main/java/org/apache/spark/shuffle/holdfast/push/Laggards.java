package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.wire.EpochName;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;
import org.apache.spark.shuffle.holdfast.wire.Limits;

/**
 * Which copies may lack something that was acknowledged to an attempt, since enough others had it.
 *
 * <p>Rules: pure. An answer says which replicas are behind, of the epochs that it is about; the next one for such an epoch says so anew. Before
 * the attempt ends each primary is asked what became of them. Where it does not say, since it has started again or cannot be reached, those that
 * were behind count as incomplete: nobody knows better. The same as client/core/write/laggards.py. Called by {@link PushSession}.
 */
final class Laggards {
    /** By destination and epoch, a bit for each replica. */
    private final Map<Destination, Map<EpochName, Integer>> behind = new LinkedHashMap<>();
    private final Map<PushEffect.Settle, Map<EpochName, Integer>> asked = new LinkedHashMap<>();

    /** A batch is acknowledged, and these replicas are behind. */
    void acknowledged(Destination destination, int partition, int epoch, int replicas) {
        if (replicas == 0 && behind.isEmpty()) {
            return;
        }
        Map<EpochName, Integer> known = behind.computeIfAbsent(destination, any -> new LinkedHashMap<>());
        if (replicas != 0) {
            known.put(new EpochName(partition, epoch), replicas);
        } else {
            known.remove(new EpochName(partition, epoch));
        }
    }

    /** Everything is acknowledged: returns what is to be asked. */
    List<PushEffect.Settle> settle() {
        List<PushEffect.Settle> found = new ArrayList<>();
        behind.forEach((destination, known) -> {
            List<EpochName> epochs = new ArrayList<>(known.keySet());
            for (int at = 0; at < epochs.size(); at += Limits.SETTLE_EPOCHS_MAX) {
                List<EpochName> part = epochs.subList(at, Math.min(at + Limits.SETTLE_EPOCHS_MAX, epochs.size()));
                Map<EpochName, Integer> mine = new HashMap<>();
                part.forEach(each -> mine.put(each, known.get(each)));
                PushEffect.Settle settle = new PushEffect.Settle(destination, part);
                asked.put(settle, mine);
                found.add(settle);
            }
        });
        behind.clear();
        return found;
    }

    /** The primary has said what became of them. */
    void settled(PushEffect.Settle settle) {
        asked.remove(settle);
    }

    /** The primary does not say: returns the copies that may lack something. */
    List<IncompleteCopy> unsettled(PushEffect.Settle settle) {
        List<IncompleteCopy> found = new ArrayList<>();
        asked.remove(settle).forEach((epoch, replicas) -> {
            for (int worker : settle.destination().failed(replicas)) {
                found.add(new IncompleteCopy(epoch.partition(), epoch.epoch(), worker));
            }
        });
        return found;
    }

    /** Whether a primary has not answered. */
    boolean waiting() {
        return !asked.isEmpty();
    }

    @Override
    public String toString() {
        return asked.size() + " workers have not said what their replicas have";
    }
}
