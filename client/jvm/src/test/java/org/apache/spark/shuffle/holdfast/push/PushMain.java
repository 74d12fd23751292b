package org.apache.spark.shuffle.holdfast.push;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.secure.TestTls;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.slf4j.LoggerFactory;

/**
 * Pushes for tests/jvm/test_push.py: several tasks at once, to a running cluster.
 *
 * <p>Arguments: endpoints, instance, shuffle, partitions, maps, copies, ack, and, if it is small, what a writer may hold:
 * its frames have 256 KiB then. Then lines on standard input, each answered by
 * one line: {@code push key=value ...} (see {@link #push}) with {@code PUSHED {json}}, after {@code HALF} and another line
 * if {@code halt=1}; {@code counts} with {@code COUNTS {json}}; {@code abort} and {@code starve} with {@code DONE}, see {@link PushMoments}. Record {@code i} of map {@code m} goes to partition
 * {@code (7919 m + 104729 i) mod partitions} and, but in partition {@code noise}, is (m, partition, i, size) over and over, as u32, up to its size.
 */
public final class PushMain {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Encryption BACKWARDS = (data, off, len) -> {
        byte[] turned = new byte[len];
        for (int each = 0; each < len; each++) {
            turned[each] = (byte) ~data[off + each];
        }
        return new Encryption.Sealed(turned, len);
    };

    private final RegisteredShuffle registered;
    private final PartitionLocations locations;
    private final PushContext context;
    private final ConnectionPool connections;
    private final Buffers buffers;
    private final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private PushMain(String[] args, Masters masters) throws HoldfastException {
        ShuffleKey key = new ShuffleKey(Instance.ofHex(args[1]), Integer.parseInt(args[2]), 0);
        // "1", or "1/2" where two copies acknowledge.
        String[] level = args[6].split("/");
        int ack = Integer.parseInt(level[0]);
        int ackCopies = level.length < 2 ? 0 : Integer.parseInt(level[1]);
        registered = masters.registerShuffle(
                key, Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5]), ack, ackCopies, false, false,
                java.util.Set.of());
        locations = new PartitionLocations(registered);
        buffers = new Buffers(64L << 20);
        connections = new ConnectionPool(
                () -> Hello.client(masters.clusterId(), masters.raftIndex(), masters.credentials().tokenBytes()), masters.credentials(), buffers);
        PushLimits limits = args.length < 8 ? PushLimits.USUAL
                : new PushLimits(
                        PushLimits.FRAME_BYTES_MIN, Long.parseLong(args[7]), Long.parseLong(args[7]),
                        args.length < 9 ? PushLimits.USUAL.noRoomMs() : Long.parseLong(args[8]),
                        PushLimits.USUAL.memoryMs());
        context = new PushContext(masters, connections, buffers, ack, ackCopies, limits);
    }

    /** What a task is asked for. */
    private record Work(int[] sizes, int records, long attempt, Compression compression, boolean last, boolean encrypted, boolean halt,
            int noise) {
        static Work of(Map<String, String> options) {
            int[] sizes = Arrays.stream(options.getOrDefault("sizes", "100").split(",")).mapToInt(Integer::parseInt).toArray();
            return new Work(
                    sizes, Integer.parseInt(options.getOrDefault("records", "100")),
                    Long.parseUnsignedLong(options.getOrDefault("attempt", "100")),
                    Compression.of(Codec.valueOf(options.getOrDefault("codec", "LZ4")), Integer.parseInt(options.getOrDefault("level", "1"))), options.containsKey("last"), options.containsKey("encrypted"),
                    options.containsKey("halt"), Integer.parseInt(options.getOrDefault("noise", "-1")));
        }
    }

    private static int partition(int map, int record, int partitions) {
        return (int) ((7919L * map + 104_729L * record) % partitions);
    }

    private static byte[] payload(int map, int partition, int record, int size) {
        ByteBuffer made = ByteBuffer.allocate(size + 16).order(ByteOrder.LITTLE_ENDIAN);
        while (made.position() < size) {
            made.putInt(map).putInt(partition).putInt(record).putInt(size);
        }
        return Arrays.copyOf(made.array(), size);
    }

    /** One attempt; returns what it reports. */
    private Map<String, Object> task(int map, Work work, CountDownLatch half, CountDownLatch go) {
        PushWriter writer = new PushWriter(
                context, registered, locations, map, work.attempt() + map, work.compression(), work.encrypted() ? BACKWARDS : null);
        Map<String, Object> options = new HashMap<>();
        try {
            Map<Integer, Integer> lasts = new HashMap<>();
            for (int each = 0; each < work.records(); each++) {
                lasts.put(partition(map, each, locations.partitions()), each);
            }
            long most = 0;
            for (int each = 0; each < work.records(); each++) {
                int partition = partition(map, each, locations.partitions());
                byte[] data = payload(map, partition, each, work.sizes()[each % work.sizes().length]);
                if (partition == work.noise()) {
                    new Random(each).nextBytes(data);
                }
                writer.write(partition, data, 0, data.length, work.last() && lasts.get(partition) == each);
                most = Math.max(most, buffers.takenBytes());
                if (work.halt() && each == work.records() / 2) {
                    half.countDown();
                    go.await();
                }
            }
            options.put("sizes", writer.close());
            options.put("status", 0);
            options.put("most", most);
            options.put("pushed", writer.pushedBytes());
        } catch (HoldfastException failed) {
            options.put("status", failed.status());
            options.put("error", failed.getMessage());
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        } finally {
            half.countDown();
            writer.abort();
        }
        return options;
    }

    private void push(Map<String, String> options) throws IOException, InterruptedException {
        Work work = Work.of(options);
        String[] maps = options.get("maps").split(",");
        CountDownLatch half = new CountDownLatch(maps.length);
        CountDownLatch go = new CountDownLatch(1);
        Map<String, Object> results = new TreeMap<>();
        List<Thread> threads = new ArrayList<>();
        long begun = System.nanoTime();
        for (String map : maps) {
            Thread thread = new Thread(() -> {
                Map<String, Object> result = task(Integer.parseInt(map), work, half, go);
                synchronized (results) {
                    results.put(map, result);
                }
            }, "task-" + map);
            threads.add(thread);
            thread.start();
        }
        if (work.halt()) {
            half.await();
            System.out.println("HALF");
            input.readLine();
            go.countDown();
        }
        if (options.containsKey("interrupt")) {
            Thread.sleep(Long.parseLong(options.get("interrupt")));
            threads.forEach(Thread::interrupt);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long ms = (System.nanoTime() - begun) / 1_000_000;
        System.out.println("PUSHED " + JSON.writeValueAsString(Map.of("maps", results, "ms", ms)));
    }

    private void counts() throws IOException {
        System.out.println("COUNTS " + JSON.writeValueAsString(Map.of(
                "taken", buffers.taken() - 2 * connections.idle(), "borrowed", connections.borrowed(),
                "threads", context.busyThreads())));
    }

    public static void main(String[] args) throws Exception {
        LoggerFactory.getLogger(PushMain.class); // as in Spark logging is there before tasks, and their interrupts
        try (Masters masters = new Masters(args[0], Masters.DEADLINE_MS, TestTls.ofEnvironment())) {
            PushMain here = new PushMain(args, masters);
            System.out.println("READY " + here.registered.copies());
            String line;
            while ((line = here.input.readLine()) != null) {
                String[] words = line.trim().split(" +");
                Map<String, String> options = new HashMap<>();
                for (String word : words) {
                    int equals = word.indexOf('=');
                    options.put(equals < 0 ? word : word.substring(0, equals), equals < 0 ? "" : word.substring(equals + 1));
                }
                PushMoments moments = new PushMoments(here.context, here.registered, here.locations);
                if (words[0].equals("push")) {
                    here.push(options);
                } else if (words[0].equals("abort")) {
                    moments.abortBetweenAnswerAndPush(Long.parseLong(options.get("attempt")));
                    System.out.println("DONE");
                } else if (words[0].equals("starve")) {
                    moments.connectWithoutMemory(Long.parseLong(options.get("attempt")));
                    System.out.println("DONE");
                } else {
                    here.counts();
                }
            }
            here.context.close();
            here.connections.close();
        }
    }
}
