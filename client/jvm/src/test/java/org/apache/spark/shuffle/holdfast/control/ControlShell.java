package org.apache.spark.shuffle.holdfast.control;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.Frame;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.secure.TestTls;
import org.apache.spark.shuffle.holdfast.wire.ChunkFile;
import org.apache.spark.shuffle.holdfast.wire.ChunksOpen;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Makes the calls that a test names, one line each: {@code LABEL COMMAND ARGUMENTS}. Every call runs in a thread called LABEL and is
 * answered by {@code LABEL ok …} or {@code LABEL refused STATUS AGAIN MESSAGE}. Arguments: endpoints, deadline in ms. With HOLDFAST_CA and
 * HOLDFAST_TOKEN_FILE leases are taken as that user.
 */
public final class ControlShell {
    private static final int DEADLINE_MS = 20_000;
    private final Masters masters;
    private final Set<String> before = threads();
    private final Map<String, Thread> running = new ConcurrentHashMap<>();
    private volatile ApplicationLease lease;
    /** How often the credential of a frail lease was read. */
    private final AtomicInteger read = new AtomicInteger();
    private volatile Instance instance;

    private ControlShell(Masters masters) {
        this.masters = masters;
    }

    public static void main(String[] args) throws Exception {
        ControlShell shell = new ControlShell(new Masters(args[0], Integer.parseInt(args[1])));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[1].equals("interrupt")) {
                shell.running.get(words[2]).interrupt();
                say(words[0] + " ok");
                continue;
            }
            Thread thread = new Thread(() -> shell.answer(words), words[0]);
            shell.running.put(words[0], thread);
            thread.start();
        }
    }

    private void answer(String[] words) {
        String[] rest = Arrays.copyOfRange(words, 2, words.length);
        try {
            say(words[0] + " ok " + call(words[1], rest));
        } catch (HoldfastException error) {
            say(words[0] + " refused " + Status.name(error.status()) + " " + error.again() + " " + error.getMessage()
                    + (Thread.currentThread().isInterrupted() ? " (still interrupted)" : ""));
        } catch (RuntimeException | InterruptedException error) {
            say(words[0] + " broken " + error);
        }
    }

    private String call(String command, String[] args) throws HoldfastException, InterruptedException {
        switch (command) {
            case "lease":
                lease = ApplicationLease.register(masters, TestTls::ofEnvironment, new ApplicationLease.Description(
                        args[0], "tester", "app-1", "", Arrays.asList(args).subList(2, args.length)),
                        Long.parseLong(args[1]), DEADLINE_MS);
                instance = lease.instance();
                return instance.hex() + " " + HexFormat.of().formatHex(lease.holder()) + " " + lease.leaseMs();
            case "frail": // the same, with a credential that can be read once
                lease = ApplicationLease.register(masters, this::once, new ApplicationLease.Description(args[0], "tester"),
                        Long.parseLong(args[1]), DEADLINE_MS);
                return "";
            case "errors":
                return "" + Math.max(0, read.get() - 1);
            case "instance":
                instance = Instance.ofHex(args[0]);
                return "";
            case "gone":
                return lease.gone() == null ? "no" : Status.name(lease.gone().status());
            case "register":
                return register(args);
            case "revive":
                return revive(args);
            case "commit":
                masters.commit(key(args), ReduceWinners.withoutBitmaps(Integer.parseInt(args[2]), longs(args[3])).encode());
                return "";
            case "manifest":
                return manifest(masters.getManifest(key(args), Integer.parseInt(args[2]), Boolean.parseBoolean(args[3])));
            case "winners":
                return "" + Arrays.equals(longs(args[2]), masters.getManifest(key(args), 0, false).winners().attempts());
            case "unregister":
                return "" + masters.unregister(key(args));
            case "workers":
                return workers(masters.workers());
            case "asUser":
                try (Masters user = new Masters(masters.endpoints(), DEADLINE_MS, TestTls.ofEnvironment())) {
                    return workers(user.workers());
                }
            case "token":
                return masters.credentials().token();
            case "greet":
                return greet(args[0], args[1]);
            case "many":
                return many(Integer.parseInt(args[0]), Integer.parseInt(args[1]));
            case "seen":
                return masters.clusterId() + " " + masters.raftIndex();
            case "close":
                lease.close();
                masters.close();
                return String.join(",", left());
            case "closeMasters":
                masters.close();
                return "";
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private CredentialsProvider once() {
        if (read.getAndIncrement() > 0) {
            throw new OutOfMemoryError("as it was meant to");
        }
        return new CredentialsProvider();
    }

    /** Says HELLO to a worker with the token that is shown, and asks it for a shuffle of this instance; what it answers. */
    private String greet(String address, String instanceHex) throws HoldfastException {
        CredentialsProvider credentials = masters.credentials();
        int worker = masters.workers().stream().filter(each -> each.address().equals(address)).findFirst().orElseThrow().worker();
        Hello hello = Hello.client(masters.clusterId(), masters.raftIndex(), credentials.tokenBytes());
        try (WorkerConnection connection = WorkerConnection.open(worker, address, hello, credentials, DEADLINE_MS, new Buffers(1 << 20))) {
            ShuffleKey asked = new ShuffleKey(Instance.ofHex(instanceHex), 0, 0);
            connection.send(FrameType.CHUNKS_OPEN, new ChunksOpen(asked, 0, 1, 1 << 20, List.of(new ChunkFile(0, 0, 0))).encode());
            Frame answer = connection.receive(DEADLINE_MS);
            return Status.name(answer.status()) + " " + answer.text();
        }
    }

    private String register(String[] args) throws HoldfastException {
        RegisteredShuffle done = masters.registerShuffle(key(args), Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                Integer.parseInt(args[4]), 1, 0, Boolean.parseBoolean(args[5]), Boolean.parseBoolean(args[6]), Set.of());
        ReduceLocations locations = done.locations();
        List<String> reported = new ArrayList<>();
        for (int i = 0; i < locations.partitions(); i++) {
            Location at = locations.get(i);
            reported.add(at.epoch() + ":" + at.workers().stream().map(String::valueOf).collect(Collectors.joining(":")));
        }
        return done.key().generation() + " " + done.copies() + " " + done.raftIndex() + " " + String.join(",", reported) + " "
                + workers(done.workers());
    }

    private String revive(String[] args) throws HoldfastException {
        List<FailedEpoch> failed = new ArrayList<>();
        for (String each : args[2].split(",")) {
            String[] parts = each.split(":");
            failed.add(new FailedEpoch(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]), Integer.parseInt(parts[2])));
        }
        Set<Integer> unusable = new TreeSet<>();
        if (args.length > 3) {
            unusable.add(Integer.parseInt(args[3]));
        }
        Revived revived = masters.revive(key(args), failed, unusable, List.of());
        return revived.epochs().stream().map(each -> each.partition() + ":" + each.location().epoch() + ":"
                + Integer.toUnsignedString(each.location().primary())).collect(Collectors.joining(","))
                + " " + workers(revived.workers()) + " " + revived.raftIndex();
    }

    private static String manifest(Manifest manifest) {
        StringBuilder reported = new StringBuilder();
        for (int row = 0; row < manifest.epochs().size(); row++) {
            var one = manifest.epochs().get(row);
            reported.append(reported.isEmpty() ? "" : ",").append(one.partition()).append(':').append(one.epoch()).append(':')
                    .append(Integer.toUnsignedString(one.copies().get(0).worker())).append(':').append(Status.name(one.copies().get(0).status()))
                    .append(':').append(one.copies().get(0).sizeBytes());
        }
        return Arrays.stream(manifest.winners().attempts()).mapToObj(Long::toUnsignedString).collect(Collectors.joining(","))
                + " " + reported + " " + workers(manifest.workers());
    }

    /** Register shuffles 0 up to {@code count} from several threads at once; fails where any call fails. */
    private String many(int count, int threads) throws HoldfastException, InterruptedException {
        List<Thread> started = new ArrayList<>();
        Set<String> answers = ConcurrentHashMap.newKeySet();
        for (int t = 0; t < threads; t++) {
            int first = t;
            Thread thread = new Thread(() -> {
                for (int shuffle = first; shuffle < count; shuffle += threads) {
                    try {
                        masters.registerShuffle(new ShuffleKey(instance, shuffle, 0), 8, 0, 1, 1, 0, false, false, Set.of());
                    } catch (HoldfastException | RuntimeException error) {
                        answers.add(error.toString());
                    }
                }
            });
            thread.start();
            started.add(thread);
        }
        for (Thread each : started) {
            each.join();
        }
        if (!answers.isEmpty()) {
            throw new HoldfastException(Status.INTERNAL, answers.toString());
        }
        return "" + count;
    }

    private ShuffleKey key(String[] args) {
        return new ShuffleKey(instance, Integer.parseInt(args[0]), Integer.parseInt(args[1]));
    }

    /** Numbers with commas, or "random:COUNT". */
    private static long[] longs(String text) {
        if (text.startsWith("random:")) {
            return new Random(1).longs(Integer.parseInt(text.substring(7)), 0, Long.MAX_VALUE).toArray();
        }
        return Arrays.stream(text.split(",")).mapToLong(Long::parseUnsignedLong).toArray();
    }

    private static String workers(List<WorkerAddress> workers) {
        return workers.stream().map(each -> each.worker() + "/" + each.incarnation() + "/" + each.host() + "/" + each.address()
                + "/" + each.alive()).sorted().collect(Collectors.joining(","));
    }

    /** Threads that were not there at the start, but for those that make the calls of the test. */
    private Set<String> left() {
        Set<String> now = threads();
        now.removeAll(before);
        now.removeAll(running.keySet());
        return now;
    }

    private static Set<String> threads() {
        return Thread.getAllStackTraces().keySet().stream().map(Thread::getName).collect(Collectors.toCollection(TreeSet::new));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
