package org.apache.spark.shuffle.holdfast.control;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.IncompleteCopy;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The masters, as typed calls (docs/internals/control_plane.md). One per JVM; thread-safe. A call is made by the thread that wants its answer: it
 * finds the leader, repeats what may succeed later until its deadline, and ends soon after that thread is interrupted
 * (INTERNAL, the interrupt kept). Refusals are thrown with the status that the master gave.
 */
public final class Masters implements AutoCloseable {
    /** Masters that elect a leader need about a second; a cluster that is being started some more. */
    public static final int DEADLINE_MS = 30_000;
    /** A commit waits for workers that are away, up to the cluster's grace for them, and is then repeated by the waiter. */
    public static final int COMMIT_DEADLINE_MS = 180_000;
    private static final byte[] NO_HOLDER = {};
    private static final int FALLBACK_TEXT_MAX = 500;
    /** As common/addresses.py has it: a name in ASCII, IPv4, or IPv6 in brackets, and a port. */
    private static final Pattern ADDRESS = Pattern.compile(
            "(\\[[0-9A-Fa-f:.]+]|([A-Za-z0-9_-]{1,63}\\.)*[A-Za-z0-9_-]{1,63}\\.?):[1-9][0-9]{0,4}");

    private final String endpoints;
    private final int deadlineMs;
    private final CredentialsProvider credentials;
    private final LeaderCalls calls;
    private volatile byte[] holder = NO_HOLDER;

    /** {@code endpoints}: the masters' HTTP addresses, "host:port,host:port". IllegalArgumentException if they are not. Opens nothing. */
    public Masters(String endpoints) {
        this(endpoints, DEADLINE_MS);
    }

    /** {@code deadlineMs}: for how long a call is repeated; commits and long polls have their own. */
    public Masters(String endpoints, int deadlineMs) {
        this(endpoints, deadlineMs, new CredentialsProvider());
    }

    /** {@code credentials}: the token of this client, and the CA of the masters. */
    public Masters(String endpoints, int deadlineMs, CredentialsProvider credentials) {
        this.calls = new LeaderCalls(parse(endpoints), credentials);
        this.credentials = credentials;
        this.endpoints = endpoints;
        this.deadlineMs = deadlineMs;
    }

    /** What the constructor was given. */
    public String endpoints() {
        return endpoints;
    }

    /** Id of the cluster that answered; "" before the first answer. */
    public String clusterId() {
        return calls.clusterId();
    }

    /** Takes note of what another client of theirs was answered: a worker asks for both, which may be before this one has called them. */
    public void know(String clusterId, long raftIndex) {
        calls.know(clusterId, raftIndex);
    }

    /** The highest Raft index seen in any answer; HELLO and PUSH carry it to workers. */
    public long raftIndex() {
        return calls.raftIndex();
    }

    /** What is shown to them. */
    public CredentialsProvider credentials() {
        return credentials;
    }

    /** Renew all leases of an application; with security a newer token is shown from then on. */
    public void renew(Instance instance) throws HoldfastException {
        JsonObject request = new JsonObject().bytes("instance", instance.bytes());
        credentials.renew(calls.call(LeaderCalls.RENEW, request, false, deadlineMs).text("token"));
    }

    /** Whose lease the calls renew from now on (16 bytes); without one they renew every lease of the instance that they name. */
    public void setHolder(byte[] sixteenBytes) {
        holder = sixteenBytes.clone();
    }

    /**
     * Register a shuffle of REDUCE partitions, or ask for its locations; idempotent for the same shape.
     *
     * @param least the generation meant; with {@code toWrite} the newest at or above it that takes data, the next one being opened
     *     where the newest is committed
     * @param maps how many, 0 if not known
     * @param copies 1 to 5, on different hosts; the answer says how many there are
     * @param ack a level of {@link org.apache.spark.shuffle.holdfast.wire.Ack}
     * @param ackCopies how many copies hold a batch before it is acknowledged; 0: all
     * @param failedBefore a reader found data of the generation before lost: opens this one though that one is open
     * @param unusable workers that readers of the generation before could not use; they are avoided where there are others
     */
    public RegisteredShuffle registerShuffle(
            ShuffleKey least, int partitions, int maps, int copies, int ack, int ackCopies, boolean toWrite, boolean failedBefore,
            Set<Integer> unusable) throws HoldfastException {
        return registerShuffle(least, partitions, maps, copies, ack, ackCopies, toWrite, failedBefore, unusable, deadlineMs);
    }

    /** The same, with how long the call is repeated. */
    public RegisteredShuffle registerShuffle(
            ShuffleKey least, int partitions, int maps, int copies, int ack, int ackCopies, boolean toWrite, boolean failedBefore,
            Set<Integer> unusable, int withinMs) throws HoldfastException {
        JsonObject request = request(least).put("kind", "PARTITION_KIND_REDUCE").u32("partitions", partitions)
                .u32("maps", maps).u32("copies", copies).u32("ack", ack).u32("ackCopies", ackCopies).put("failedBefore", failedBefore)
                .put("toWrite", toWrite).put("unusableWorkers", numbers(unusable));
        JsonObject reply = calls.call("Shuffles/RegisterShuffle", request, true, withinMs);
        ShuffleKey key = (toWrite ? least.withGeneration(reply.u32("generation")) : least).withState(reply.u64("state"));
        if (reply.u32("copies") < copies && !toWrite) {
            LogEvent.SHUFFLE_FEWER_COPIES.log(
                    "shuffle", key, "copies", reply.u32("copies"), "wanted", copies, "lost_workers", reply.texts("lostWorkers"));
        }
        return new RegisteredShuffle(
                key, reply.u32("copies"), reply.u64("raftIndex"), reply.bytes("assignmentArray"), workersOf(reply));
    }

    /**
     * Ask for new places for partitions whose epoch failed; at most {@link Limits#REVIVE_EPOCHS_MAX}. Workers that this client cannot use are
     * avoided. Copies that lack something are recorded before. COMMITTED: a sibling won; REPLICA_FAILED: too few copies would be left.
     */
    public Revived revive(ShuffleKey key, List<FailedEpoch> failed, Set<Integer> unusable, List<IncompleteCopy> incomplete)
            throws HoldfastException {
        List<JsonObject> epochs = new ArrayList<>(failed.size());
        for (FailedEpoch each : failed) {
            epochs.add(new JsonObject().u32("partition", each.partition()).u32("epoch", each.epoch())
                    .u32("status", each.status()));
        }
        List<JsonObject> copies = new ArrayList<>(incomplete.size());
        for (IncompleteCopy each : incomplete) {
            copies.add(new JsonObject().u32("partition", each.partition()).u32("epoch", each.epoch()).u32("worker", each.worker()));
        }
        JsonObject request = request(key).put("failed", epochs).put("unusableWorkers", numbers(unusable)).put("incomplete", copies);
        JsonObject reply = calls.call("Shuffles/Revive", request, false, deadlineMs);
        List<Revived.NewEpoch> newer = new ArrayList<>();
        for (JsonObject each : reply.objects("locations")) {
            newer.add(new Revived.NewEpoch(each.u32("partition"), new Location(
                    each.u32("epoch"), each.u32s("workers"), each.u32("hint"))));
        }
        return new Revived(newer, workersOf(reply), reply.u64("raftIndex"), reply.text("room"));
    }

    /**
     * Say which attempts won ({@link ReduceWinners#encode}); returns when the generation is final. The same again is no error, others are CONFLICT.
     * Warns of epochs with fewer copies than were asked for.
     */
    public void commit(ShuffleKey key, byte[] winnersArray) throws HoldfastException {
        JsonObject reply = calls.call("Shuffles/Commit", request(key).bytes("winnersArray", winnersArray), true, COMMIT_DEADLINE_MS);
        long fewer = reply.u64("underReplicated");
        if (fewer > 0) {
            LogEvent.SHUFFLE_UNDER_REPLICATED.log(
                    "shuffle", key, "epochs", fewer, "awaited", reply.u64("awaited"), "waits_for", reply.texts("waitsFor"));
        }
    }

    /**
     * The committed manifest, waited for at most {@code waitMs} (30 s at most): NOT_COMMITTED if that is too short. With
     * {@code offersWinners} the answer is NEED_WINNERS at once while no commit is pending.
     */
    public Manifest getManifest(ShuffleKey key, int waitMs, boolean offersWinners) throws HoldfastException {
        int wait = Math.max(0, Math.min(waitMs, Limits.LONG_POLL_MS_MAX));
        return getManifest(key, wait, offersWinners, deadlineMs + wait);
    }

    /** The same, if it is committed, for callers that do not wait for masters that are away. */
    public Manifest getManifest(ShuffleKey key, int withinMs) throws HoldfastException {
        return getManifest(key, 0, false, withinMs);
    }

    private Manifest getManifest(ShuffleKey key, int wait, boolean offersWinners, int withinMs) throws HoldfastException {
        JsonObject request = request(key).u32("waitMs", wait).put("offersWinners", offersWinners);
        JsonObject reply = calls.call("Shuffles/GetManifest", request, false, withinMs);
        if (!reply.text("kind").equals("PARTITION_KIND_REDUCE")) {
            throw new HoldfastException(Status.CONFLICT, "shuffle " + key + " has no REDUCE partitions");
        }
        return new Manifest(key.withState(reply.u64("state")), ReduceWinners.decode(reply.bytes("winnersArray")),
                ReduceManifest.decode(reply.bytes("manifestArray")), workersOf(reply), reply.u64("raftIndex"));
    }

    /**
     * Say that shuffles of an application became Spark's own.
     *
     * @param reason the end of a name of FallbackReason
     * @param text for people
     */
    public void reportFallback(String application, String reason, int shuffles, String text) throws HoldfastException {
        JsonObject request = new JsonObject().put("name", application).put("reason", "FALLBACK_REASON_" + reason).u32("shuffles", shuffles)
                .put("text", text.substring(0, Math.min(text.length(), FALLBACK_TEXT_MAX)));
        calls.call("Shuffles/ReportFallback", request, false, deadlineMs);
    }

    /** Drop the generations of a shuffle up to and including the one named; returns how many there were. */
    public int unregister(ShuffleKey upTo) throws HoldfastException {
        return calls.call("Shuffles/UnregisterShuffle", request(upTo), true, deadlineMs).u32("dropped");
    }

    /** All workers of the cluster. */
    public List<WorkerAddress> workers() throws HoldfastException {
        return workers(deadlineMs);
    }

    /** The same for callers that do not wait for masters that are away. */
    public List<WorkerAddress> workers(int withinMs) throws HoldfastException {
        List<WorkerAddress> workers = new ArrayList<>();
        for (JsonObject each : calls.call("Admin/ListWorkers", new JsonObject(), false, withinMs).objects("workers")) {
            workers.add(WorkerAddress.listed(each));
        }
        return workers;
    }

    /** Close connections; calls under way fail with INTERNAL, later ones too. */
    @Override
    public void close() {
        calls.close();
    }

    LeaderCalls calls() {
        return calls;
    }

    private JsonObject request(ShuffleKey key) {
        JsonObject request = new JsonObject().put("key", new JsonObject().bytes("instance", key.instance().bytes())
                .u32("shuffle", key.shuffle()).u32("generation", key.generation()).u64("state", key.state()));
        return holder.length == 0 ? request : request.bytes("holder", holder);
    }

    private static List<Long> numbers(Set<Integer> workers) {
        return workers.stream().map(Integer::toUnsignedLong).toList();
    }

    private static List<WorkerAddress> workersOf(JsonObject reply) {
        return reply.objects("workers").stream().map(WorkerAddress::of).toList();
    }

    /** The addresses in "host:port,host:port". Throws IllegalArgumentException that says what is wrong with them. */
    public static List<String> parse(String endpoints) {
        Set<String> found = new LinkedHashSet<>();
        for (String part : endpoints.split(",")) {
            String endpoint = part.trim();
            if (endpoint.isEmpty()) {
                continue;
            }
            if (!ADDRESS.matcher(endpoint).matches() || Integer.parseInt(endpoint.substring(endpoint.lastIndexOf(':') + 1)) > 65_535) {
                throw new IllegalArgumentException("\"" + endpoint
                        + "\" is no endpoint; write the masters' HTTP addresses as \"host:port,host:port\"");
            }
            found.add(endpoint);
        }
        if (found.isEmpty()) {
            throw new IllegalArgumentException(
                    "there is no endpoint; write the masters' HTTP addresses as \"host:port,host:port\"");
        }
        return List.copyOf(found);
    }
}
