package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations.Destination;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Which partitions of a push session wait for a new place, and when the masters are asked for it.
 *
 * <p>Rules: pure. One Revive is under way at a time and names everything refused until then. Partitions that were asked
 * for again and again without an accepted batch in between wait longer each time, and fail in the end. Lack of
 * room is different, whether the masters report that no worker has any or a worker does so before them: it leaves
 * that budget as it was at first. The masters are asked again after pauses, until the sum of these since the last accepted
 * batch is the grace. A soft split is asked about in passing: its place is good still. Copies that lack what was acknowledged
 * are told in the same call, until it is answered. Called by {@link PushSession}.
 */
final class Revivals {
    /** Revives of a partition without an accepted batch of it in between; with the pauses that is about a minute. */
    static final int REVIVES_MAX = 32;
    /** Partitions in one Revive. */
    static final int PARTITIONS_MAX = 16_384;
    private static final long PAUSE_NS_MIN = 50_000_000L;
    private static final long PAUSE_NS_MAX = 2_000_000_000L;

    /** An epoch that takes nothing any more, or asks to be left. */
    record Row(int partition, int epoch, int status) {}

    /** Why a partition waits: the epoch, its place and what was said of it; of REPLICA_FAILED, of which replicas. */
    private record Refusal(int epoch, Destination destination, int status, List<Integer> failed) {}

    private final PartitionLocations locations;
    private final int revivesMax;
    private final long noRoomNs;
    private final Map<Integer, Refusal> refused = new HashMap<>();
    /** Partitions of these whose place had no room. */
    private final Set<Integer> crowded = new HashSet<>();
    /** Soft-split epochs that take batches still. */
    private final Map<Integer, Integer> soft = new HashMap<>();
    /** Copies that the masters are to be told of; those that the Revive under way names; and how often they were. */
    private final Set<IncompleteCopy> incomplete = new LinkedHashSet<>();
    private List<IncompleteCopy> reporting = List.of();
    private int reports;
    /** Revives since the last accepted batch. */
    private final Map<Integer, Integer> rounds = new HashMap<>();
    private boolean asked;
    private boolean pausing;
    /** What the Revive under way names that cannot go anywhere. */
    private final List<Integer> asking = new ArrayList<>();
    /** Which limits were met where no worker has room, empty while some has. */
    private String limitsMet = "";
    /** Partitions that waited for room since the last accepted batch of one of them, how often, and how long in all. */
    private final Set<Integer> starved = new HashSet<>();
    private int starvations;
    private long starvedNs;
    /** What was said last, for the error. */
    String cause = "";

    Revivals(PartitionLocations locations, int revivesMax, long noRoomNs) {
        this.locations = locations;
        this.revivesMax = revivesMax;
        this.noRoomNs = noRoomNs;
    }

    /** How long to wait after so many failures in a row; nothing for the first ones. */
    static long pauseNs(int failures, int free) {
        return failures < free ? 0 : Math.min(PAUSE_NS_MAX, PAUSE_NS_MIN << Math.min(failures - free, 10));
    }

    /** Whether any batch cannot go anywhere, or the masters are to be told of a copy. */
    boolean waiting() {
        return !refused.isEmpty() || lacks();
    }

    /** Whether the masters are to be told of a copy. */
    boolean lacks() {
        return !incomplete.isEmpty();
    }

    /** The masters are to be told of these copies. */
    void lacking(List<IncompleteCopy> copies) {
        incomplete.addAll(copies);
    }

    /** The masters have recorded what the Revive under way tells. */
    void recorded() {
        reporting.forEach(incomplete::remove);
        reports = 0;
    }

    @Override
    public String toString() {
        return refused.size() + " partitions wait for another place" + (asked ? ", the masters are asked" : "")
                + (cause.isEmpty() ? "" : " (" + cause + ")");
    }

    boolean isParked(int partition) {
        return !refused.isEmpty() && refused.containsKey(partition);
    }

    /** The epoch takes nothing: the partition waits, unless it has another place by now. {@code failed} as in a PushAnswer. */
    void refuse(int partition, int epoch, Destination destination, int status, int failed) {
        List<Integer> replicas = status == Status.REPLICA_FAILED ? destination.failed(failed) : List.of();
        if (Integer.compareUnsigned(locations.at(partition).epoch(), epoch) <= 0
                && refused.putIfAbsent(partition, new Refusal(epoch, destination, status, replicas)) == null
                && (status == Status.NO_ROOM || status == Status.DISK_FULL)) {
            crowded.add(partition);
            starve(partition);
        }
    }

    /** The epoch takes batches still, and asks for the next. */
    void split(int partition, int epoch) {
        soft.putIfAbsent(partition, epoch);
    }

    /** A batch of the partition was kept. */
    void accepted(int partition) {
        if (!rounds.isEmpty()) {
            rounds.remove(partition);
        }
        if (!starved.isEmpty() && starved.contains(partition)) {
            starved.clear();
            starvations = 0;
            starvedNs = 0;
        }
    }

    /** Forgets those that have a new place by now; returns whether any batch need not wait any more. */
    boolean placed() {
        boolean freed = refused.entrySet().removeIf(each -> moved(each.getKey(), each.getValue().epoch()));
        if (freed) {
            crowded.retainAll(refused.keySet());
        }
        soft.entrySet().removeIf(each -> moved(each.getKey(), each.getValue()));
        return freed;
    }

    private boolean moved(int partition, int epoch) {
        return Integer.compareUnsigned(locations.at(partition).epoch(), epoch) > 0;
    }

    /**
     * Returns why the attempt should fail, null while it should not: NO_ROOM for lack of room, UNAVAILABLE for
     * places that break or cannot be reached. {@code where} begins the sentence.
     */
    HoldfastException spent(String where) {
        if (asked) {
            return null;
        }
        if (hungry() && starvedNs >= noRoomNs && !pausing) {
            return new HoldfastException(Status.NO_ROOM, where + ": waited " + Math.round(starvedNs / 1e9) + " s for room for " + refused.size() + " partitions. "
                    + (limitsMet.isEmpty() ? cause + ". See `holdfast workers`." : limitsMet)
                    + " (NO_ROOM; how long is waited: spark.holdfast.no_room.grace)");
        }
        if (reports >= revivesMax && !pausing) {
            return new HoldfastException(Status.UNAVAILABLE,
                    where + ": the masters do not record " + incomplete.size() + " copies that may lack something (" + cause + ")");
        }
        int most = 0;
        int partition = -1;
        for (int each : refused.keySet()) {
            int here = rounds.getOrDefault(each, 0);
            if (here > most || (here == most && partition < each)) {
                most = here;
                partition = each;
            }
        }
        if (partition < 0 || most < revivesMax) {
            return null;
        }
        Refusal last = refused.get(partition);
        return new HoldfastException(Status.UNAVAILABLE, where + ": partition " + partition + " was moved " + most + " times and no place took a batch; the last one was epoch "
                + Integer.toUnsignedString(last.epoch()) + " on worker " + last.destination().primary() + ": "
                + Status.name(last.status()) + " (" + cause + "). " + refused.size()
                + " partitions wait. See `holdfast workers`.");
    }

    /** Returns how long to wait before the next Revive, 0 if one may be asked now or none is due. */
    long pauseNs() {
        if (asked || pausing || !waiting()) {
            return 0;
        }
        long pause = pauseNs(Math.max(reports, mostRounds()), 2);
        if (hungry()) {
            pause = Math.max(pause, pauseNs(starvations, 1));
            starvedNs += pause;
        }
        pausing = pause > 0;
        return pause;
    }

    private int mostRounds() {
        int most = 0;
        for (int each : refused.keySet()) {
            most = Math.max(most, rounds.getOrDefault(each, 0));
        }
        return most;
    }

    /** The pause is over. */
    void woken() {
        pausing = false;
    }

    /** Returns what to ask for now, null for nothing. */
    PushEffect.Revive ask(Iterable<Integer> unreachable) {
        if (asked || pausing || (!waiting() && soft.isEmpty())) {
            return null;
        }
        List<Row> rows = new ArrayList<>();
        asking.clear();
        for (Iterator<Map.Entry<Integer, Refusal>> all = refused.entrySet().iterator();
                all.hasNext() && rows.size() < PARTITIONS_MAX; ) {
            Map.Entry<Integer, Refusal> each = all.next();
            rows.add(new Row(each.getKey(), each.getValue().epoch(), each.getValue().status()));
            if (!crowded.contains(each.getKey())) {
                rounds.merge(each.getKey(), 1, Integer::sum);
            }
            asking.add(each.getKey());
        }
        for (Map.Entry<Integer, Integer> each : soft.entrySet()) {
            if (rows.size() < PARTITIONS_MAX && !refused.containsKey(each.getKey())) {
                rows.add(new Row(each.getKey(), each.getValue(), Status.SOFT_SPLIT));
            }
        }
        // Asked about once: the next answer of the place says so again.
        soft.clear();
        asked = true;
        reporting = incomplete.stream().limit(PARTITIONS_MAX).toList();
        reports += reporting.isEmpty() ? 0 : 1;
        return new PushEffect.Revive(rows, unusable(unreachable), reporting);
    }

    /** The Revive is answered, with no word about room. */
    void answered() {
        answered("");
    }

    /**
     * The Revive is answered, whatever the answer is; the locations have those that it names.
     *
     * @param noRoom which limits were met where no worker has room, else empty
     */
    void answered(String noRoom) {
        asked = false;
        limitsMet = noRoom;
        starvations += hungry() ? 1 : 0;
        for (int each : noRoom.isEmpty() ? List.<Integer>of() : asking) {
            Refusal waits = refused.get(each);
            if (waits != null && !moved(each, waits.epoch())) {
                starve(each);
            }
        }
    }

    /** Whether some partition waits for room. */
    private boolean hungry() {
        return !crowded.isEmpty() || (!limitsMet.isEmpty() && !refused.isEmpty());
    }

    /** What keeps the partition waiting is want of room, and no place that breaks. */
    private void starve(int partition) {
        rounds.remove(partition);
        starved.add(partition);
    }

    /** The workers that this client cannot use now. */
    private TreeSet<Integer> unusable(Iterable<Integer> unreachable) {
        TreeSet<Integer> found = new TreeSet<>();
        unreachable.forEach(found::add);
        for (Refusal each : refused.values()) {
            found.addAll(each.failed());
            if (each.status() == Status.UNAVAILABLE) {
                found.add(each.destination().primary());
            }
        }
        return found;
    }
}
