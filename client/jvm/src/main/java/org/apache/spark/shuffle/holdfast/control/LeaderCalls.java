package org.apache.spark.shuffle.holdfast.control;

import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Calls methods of the masters by name; the rules of {@code common/net/control.py}.
 *
 * <ul>
 *   <li>A command keeps its call number over all its tries, so that it is applied once.
 *   <li>Only a status that a master of the cluster answered with ends a call before its deadline; whatever else answers where the leader was
 *       means that the leader is to be looked for.
 *   <li>A try ends when the master answers, when its connection fails, or when another master has become the leader, which is
 *       asked while an answer is awaited; so neither a killed nor a paused leader is waited for.
 *   <li>While no leader is known all masters are asked, every 50 ms at first and slower later, until the deadline; callers at the same
 *       time share one search.
 * </ul>
 *
 * <p>Everything happens in the caller's thread ({@link Round}). Thread-safe. Used by {@link Masters} and {@link ApplicationLease}.
 */
final class LeaderCalls implements AutoCloseable {
    /** No command is tried for longer: the answer table forgets a client after fifteen minutes. */
    private static final int DEADLINE_MS_MAX = 600_000;
    private static final long MS = 1_000_000;
    private static final long PROBE_NS = 500 * MS;
    /** The same for the first contact through TLS: until then a JVM has loaded none of it, which takes seconds where it is busy. */
    private static final long FIRST_NS = 5_000 * MS;
    private static final long PAUSE_MIN_NS = 50 * MS;
    /** Who looks for the leader for so long says why none was found, and again so much later. An election takes about a second. */
    private static final long SAY_NS = 3_000 * MS;
    private static final long SAY_AGAIN_NS = 30_000 * MS;
    private static final long PAUSE_MAX_NS = 500 * MS;
    /** While a call is not answered another master is asked for the leader: this often for the time of an election, then more slowly. */
    private static final long WATCH_MIN_NS = 150 * MS;
    private static final long WATCH_MAX_NS = 2_000 * MS;
    private static final long ELECTION_NS = 2_000 * MS;
    /** Brings a newer token. */
    static final String RENEW = "Shuffles/RenewLease";
    private static final String DISCOVER = "Shuffles/Discover";
    private static final byte[] EMPTY = {'{', '}'};

    private final Connections connections;
    /** Held by the thread that looks for the leader. */
    private final ReentrantLock search = new ReentrantLock();
    /** Every master known by its HTTP address, with why it was not found to lead when it was asked last. */
    private final Map<String, HoldfastException> known = new LinkedHashMap<>();
    private final AtomicLong raftIndex = new AtomicLong();
    private volatile String leader = "";
    private final Object numbersLock = new Object();
    private CallNumbers numbers;

    LeaderCalls(List<String> endpoints, CredentialsProvider credentials) {
        connections = new Connections(credentials);
        for (String each : endpoints) {
            known.put(each, notAsked(each));
        }
    }

    /** The history of one call. */
    private static final class Tries {
        int count;
        int hints;
        private final LongWait slow = new LongWait();
        private long pause = PAUSE_MIN_NS;

        /** How long to wait now; grows to half a second, with jitter. */
        long pause() {
            long now = pause;
            pause = Math.min(pause * 3 / 2, PAUSE_MAX_NS);
            return jittered(now);
        }
    }

    String clusterId() {
        return connections.cluster();
    }

    long raftIndex() {
        return raftIndex.get();
    }

    void know(String cluster, long index) {
        connections.isOf(cluster);
        raftIndex.accumulateAndGet(index, Math::max);
    }

    /**
     * Call "Service/Method" on the leader; return its reply. Repeats what may succeed later until the deadline, then throws it naming the
     * last cause. A refusal is thrown at once with its status; NOT_COMMITTED is one.
     *
     * @param command whether the request has a call id, so that it is applied once
     */
    JsonObject call(String method, JsonObject request, boolean command, int deadlineMs) throws HoldfastException {
        long end = System.nanoTime() + Math.min(deadlineMs, DEADLINE_MS_MAX) * MS;
        if (!command) {
            return until(end, method, request.encode(), new Tries());
        }
        while (true) {
            CallNumbers mine = numbers(end);
            long number = mine.take(end);
            Tries tries = new Tries();
            try {
                request.put("call", new JsonObject().bytes("client", mine.client).u64("number", number)
                        .u64("raftIndex", mine.drawnIndex).u64("openFrom", mine.openFrom()));
                return until(end, method, request.encode(), tries);
            } catch (HoldfastException error) {
                // Refused at the first try: it was never sent before, so it was surely not applied, and another id may be drawn.
                if (error.status() != Status.CALL_TOO_OLD || tries.count > 1 || System.nanoTime() >= end) {
                    throw error;
                }
                forget(mine);
            } finally {
                mine.giveBack(number);
            }
        }
    }

    @Override
    public void close() {
        connections.close();
    }

    /** Try until the deadline. Every way out of a try that is worth another one comes back here. */
    private JsonObject until(long end, String method, byte[] request, Tries tries) throws HoldfastException {
        while (true) {
            String asked = leader.isEmpty() ? find(end) : leader;
            tries.count++;
            HoldfastException failed;
            try {
                return read(attempt(asked, method, request, end, tries.slow));
            } catch (HoldfastException error) {
                // A newer token may be on its way, but not to the call that would bring it.
                boolean last = error.status() == Status.TOKEN_EXPIRED && method.equals(RENEW);
                if (!error.again() || error.status() == Status.NOT_COMMITTED || last) {
                    throw error;
                }
                failed = error;
            }
            long pause = after(failed, asked, tries);
            if (System.nanoTime() + pause >= end) {
                throw new HoldfastException(failed.status(),
                        method + ": no success in " + tries.count + " tries: " + failed.getMessage(), failed);
            }
            say(tries.slow, method, failed.getMessage(), System.nanoTime(), end);
            sleep(pause);
        }
    }

    private static void say(LongWait slow, String method, String reason, long now, long end) {
        if (slow.due(now)) {
            LogEvent.CALL_SLOW.log(
                    "method", method, "seconds", slow.lasts(now) / (1_000 * MS), "seconds_max", (end - now) / (1_000 * MS), "reason", reason);
        }
    }

    /** Learn from a failed try; return the nanoseconds to wait before the next. */
    private long after(HoldfastException error, String asked, Tries tries) {
        if (error.status() == Status.BUSY || error.status() == Status.TOKEN_EXPIRED) {
            return tries.pause(); // a newer token may be on its way
        }
        if (leader.equals(asked)) {
            leader = "";
        }
        if (error instanceof Exchange.NotLeader refusal && !refusal.leader.isEmpty() && !refusal.leader.equals(asked)) {
            if (tries.hints < addresses().size()) {
                tries.hints++;
                leader = refusal.leader;
                return 0;
            }
            tries.hints = 0;
        }
        return tries.count == 1 ? 0 : tries.pause();
    }

    /** One try at one master, cancelled as soon as another leader is known. */
    private JsonObject attempt(String asked, String method, byte[] request, long end, LongWait slow) throws HoldfastException {
        try (Round round = new Round(connections)) {
            long begun = System.nanoTime();
            Exchange call = round.begin(asked, method, request);
            Exchange probe = null;
            long wait = WATCH_MIN_NS;
            // When the next probe starts, or the running one is cancelled.
            long turn = begun + wait;
            while (!call.done()) {
                round.await(Math.min(end, turn));
                long now = System.nanoTime();
                if (call.done()) {
                    break;
                }
                say(slow, method, asked + " has not answered yet", now, end);
                if (now >= end) {
                    throw unavailable(asked + ": did not answer within " + (now - begun) / MS + " ms");
                }
                if (probe != null && (probe.done() || now >= turn)) {
                    if (moved(probe, asked)) {
                        throw unavailable("master " + asked + " does not answer and is no longer the leader");
                    }
                    round.drop(probe);
                    probe = null;
                    wait = now - begun < ELECTION_NS ? WATCH_MIN_NS : Math.min(wait * 3 / 2, WATCH_MAX_NS);
                    turn = now + wait;
                } else if (probe == null && now >= turn) {
                    probe = probe(round, asked);
                    turn = now + PROBE_NS;
                }
            }
            return call.reply();
        }
    }

    /** Ask another master for the leader; null if there is no other. */
    private Exchange probe(Round round, String asked) {
        List<String> others = addresses();
        others.remove(asked);
        return others.isEmpty()
                ? null : round.begin(others.get(ThreadLocalRandom.current().nextInt(others.size())), DISCOVER, EMPTY);
    }

    /** Whether another master is the leader now, by the master that was asked; remember it. */
    private boolean moved(Exchange probe, String asked) {
        JsonObject reply = discovered(probe);
        if (reply == null || reply.text("leaderHttp").isEmpty() || reply.text("leaderHttp").equals(asked)) {
            return false;
        }
        leader = reply.text("leaderHttp");
        return true;
    }

    /** The HTTP address of the leader; callers at the same time share one search. UNAVAILABLE when {@code end} comes first. */
    private String find(long end) throws HoldfastException {
        try {
            if (!search.tryLock(end - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                throw noLeader();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw Round.interrupted();
        }
        try {
            long pause = PAUSE_MIN_NS;
            long sayAt = System.nanoTime() + SAY_NS;
            while (true) {
                String found = leader.isEmpty() ? askAll(end) : leader;
                if (!found.isEmpty()) {
                    leader = found;
                    return found;
                }
                if (System.nanoTime() + pause >= end || hopeless()) {
                    throw noLeader();
                }
                long now = System.nanoTime();
                if (now - sayAt >= 0) {
                    LogEvent.LEADER_MISSING.log("seconds_max", (end - now) / (1_000 * MS) + 1, "reason", noLeader());
                    sayAt = now + SAY_AGAIN_NS;
                }
                sleep(jittered(pause));
                pause = Math.min(pause * 11 / 10, PAUSE_MAX_NS);
            }
        } finally {
            search.unlock();
        }
    }

    /** Whether neither an election nor a start of masters would change anything: no endpoint names one, or all refuse the token. */
    private boolean hopeless() {
        synchronized (known) {
            return known.values().stream().allMatch(each -> Status.barred(each.status())
                    || (each.status() == Status.TOKEN_EXPIRED && connections.credentials().isFixed())
                    || (clusterId().isEmpty() && (each instanceof Exchange.UnknownHost || each instanceof Exchange.NotMaster)));
        }
    }

    /** Ask all masters at once; return the first that is the leader by its own answer, "" if none is. */
    private String askAll(long end) throws HoldfastException {
        try (Round round = new Round(connections)) {
            List<Exchange> asked = new ArrayList<>();
            for (String each : addresses()) {
                asked.add(round.begin(each, DISCOVER, EMPTY));
            }
            long now = System.nanoTime();
            long patience = clusterId().isEmpty() && connections.credentials().secure() ? FIRST_NS : PROBE_NS;
            long until = Math.min(now + patience, Math.max(end, now + 10 * MS));
            while (!asked.isEmpty()) {
                for (Exchange each : List.copyOf(asked)) {
                    if (!each.done()) {
                        continue;
                    }
                    asked.remove(each);
                    JsonObject reply = discovered(each);
                    if (reply != null && leads(reply)) {
                        return reply.text("leaderHttp");
                    }
                }
                if (System.nanoTime() >= until) {
                    asked.forEach(this::discovered);
                    return "";
                }
                if (!asked.isEmpty()) {
                    round.await(until);
                }
            }
            return "";
        }
    }

    private static boolean leads(JsonObject reply) {
        return !reply.text("leaderHttp").isEmpty() && reply.objects("masters").stream()
                .anyMatch(each -> each.bool("leader") && each.text("name").equals(reply.text("name")));
    }

    /** The answer of a master about itself, or null; records the masters, and the cause of a failure. */
    private JsonObject discovered(Exchange asked) {
        JsonObject reply;
        try {
            if (!asked.done()) {
                throw unavailable(asked.late());
            }
            reply = read(asked.reply());
        } catch (HoldfastException error) {
            learn(asked.address, error);
            return null;
        }
        String cluster = reply.text("clusterId");
        if (!connections.isOf(cluster)) {
            learn(asked.address, unavailable(asked.address + ": is a master of another cluster, " + cluster));
            return null;
        }
        learn(asked.address, unavailable(asked.address + ": answers, but has no leader"));
        for (JsonObject master : reply.objects("masters")) {
            String http = master.text("http");
            if (http.indexOf(':') > 0) {
                synchronized (known) {
                    known.putIfAbsent(http, notAsked(http));
                }
            }
        }
        return reply;
    }

    private JsonObject read(JsonObject reply) {
        raftIndex.accumulateAndGet(reply.u64("raftIndex"), Math::max);
        return reply;
    }

    private List<String> addresses() {
        synchronized (known) {
            return new ArrayList<>(known.keySet());
        }
    }

    private static HoldfastException notAsked(String address) {
        return unavailable(address + ": not asked yet");
    }

    private static HoldfastException unavailable(String reason) {
        return new HoldfastException(Status.UNAVAILABLE, reason);
    }

    private void learn(String address, HoldfastException cause) {
        synchronized (known) {
            known.put(address, cause);
        }
    }

    private HoldfastException noLeader() {
        synchronized (known) {
            String causes = "there is no leader: " + String.join("; ", known.values().stream().map(Throwable::getMessage).toList());
            boolean refused = known.values().stream()
                    .allMatch(each -> Status.barred(each.status()) || each.status() == Status.TOKEN_EXPIRED);
            return new HoldfastException(refused ? known.values().iterator().next().status() : Status.UNAVAILABLE, causes);
        }
    }

    /** The numbers of this client, drawn at an index that is known. */
    private CallNumbers numbers(long end) throws HoldfastException {
        synchronized (numbersLock) {
            if (numbers != null) {
                return numbers;
            }
        }
        if (leader.isEmpty()) {
            find(end);
        }
        synchronized (numbersLock) {
            if (numbers == null) {
                byte[] client = new byte[16];
                new SecureRandom().nextBytes(client);
                numbers = new CallNumbers(client, raftIndex());
            }
            return numbers;
        }
    }

    /** The id was refused: draw another one, after asking for the current index. */
    private void forget(CallNumbers refused) {
        synchronized (numbersLock) {
            if (numbers == refused) {
                numbers = null;
                leader = "";
            }
        }
    }

    private static long jittered(long pause) {
        return (long) (pause * ThreadLocalRandom.current().nextDouble(0.75, 1.25));
    }

    private void sleep(long nanos) throws HoldfastException {
        if (nanos > 0) {
            try (Round round = new Round(connections)) {
                round.await(System.nanoTime() + nanos);
            }
        }
        Round.checkInterrupt();
    }
}
