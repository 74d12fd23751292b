package org.apache.spark.shuffle.holdfast.fetch;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.zip.CRC32;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.secure.TestTls;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Reads what Python pushed, as lines on stdin say, and tells a sum of it. One line, one answer of one line. Run by pytest.
 *
 * <pre>
 * read ENDPOINTS INSTANCE SHUFFLE GENERATION FROM TO MAP_FROM MAP_TO WHO PAUSE GRACE_MS CREDIT TASKS ORDER
 * </pre>
 * WHO: "winners" or "statuses" say which maps wrote; "offer:HEX" also commits these winners. PAUSE: after so many records
 * prints "paused" and waits for a line, "5,25" after each of these; 0 never; -n reads n times before, and waits after each. CREDIT: bytes in flight. TASKS: so
 * many threads read everything each. ORDER: see settings. The line "interrupt" interrupts the read that is under way.
 */
public final class FetchMain {
    /** Shorter pauses of a reader are not told from its work. */
    private static final long NOT_NOTED_NS = 10_000_000;

    private final LinkedBlockingQueue<String> lines = new LinkedBlockingQueue<>();
    /** What this JVM knows of workers when a read has ended. */
    private volatile String known = "";

    private FetchMain() {}

    /** What came, in a form that does not depend on the order. */
    private static final class Sum {
        long count;
        long bytes;
        long sum;
        long squares;
        long duplicates;
        /** Chunks that were not what was written. */
        int damaged;

        void add(int partition, int map, byte[] payload, int length) {
            CRC32 crc = new CRC32();
            crc.update(ByteBuffer.allocate(8).putInt(partition).putInt(map).flip());
            crc.update(payload, 0, length);
            count++;
            bytes += length;
            sum += crc.getValue();
            squares += crc.getValue() * crc.getValue();
        }

        String text() {
            return count + " " + bytes + " " + Long.toUnsignedString(sum) + " " + Long.toUnsignedString(squares) + " "
                    + duplicates;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        FetchMain self = new FetchMain();
        Thread reading = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.startsWith("read ")) {
                String[] words = line.split(" ");
                reading = new Thread(() -> self.answer(words), "reading");
                reading.setDaemon(true);
                reading.start();
            } else if (line.equals("interrupt")) {
                reading.interrupt();
            } else {
                self.lines.add(line);
            }
        }
    }

    private void answer(String[] words) {
        String answer;
        try {
            answer = read(words);
        } catch (HoldfastException error) {
            String kind = error instanceof ReadInterruptedException ? "INTERRUPTED" : Status.name(error.status());
            answer = "error " + kind + " " + error.getMessage().replace('\n', ' ') + known;
        } catch (Exception | Error wrong) {
            wrong.printStackTrace();
            answer = "wrong " + wrong;
        }
        System.out.println(answer);
    }

    /** Waits for a line; an interrupt meanwhile is for the read that goes on. */
    private void pause() {
        System.out.println("paused");
        boolean interrupted = false;
        for (;;) {
            try {
                lines.take();
                break;
            } catch (InterruptedException later) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private String read(String[] words) throws Exception {
        ShuffleKey key = new ShuffleKey(
                Instance.ofHex(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]));
        Buffers buffers = new Buffers(64 << 20);
        int tasks = Integer.parseInt(words[13]);
        List<Sum> sums = new ArrayList<>();
        String left;
        try (Masters masters = new Masters(words[1], Masters.DEADLINE_MS, TestTls.ofEnvironment());
                ConnectionPool pool = new ConnectionPool(
                        () -> Hello.client(masters.clusterId(), masters.raftIndex(), masters.credentials().tokenBytes()), masters.credentials(),
                        buffers)) {
            ReadBook book = new ReadBook(settings(words[14]));
            Manifests manifests = new Manifests(masters, book::learn);
            FetchLimits limits = new FetchLimits(Long.parseLong(words[12]), 8, Long.parseLong(words[11]), 120_000);
            ReadContext context = new ReadContext(masters, pool, limits, book);
            long from = System.nanoTime();
            try {
                for (long before = pauses(words[10]).get(0); before < 0; before++) {
                    read(context, manifests, key, words);
                    pause();
                }
                if (tasks == 1) {
                    sums.add(read(context, manifests, key, words));
                } else {
                    readAtOnce(tasks, () -> read(context, manifests, key, words), sums);
                }
            } finally {
                known = " slow=" + known(book::isSlow) + " failed=" + known(book::isFailed);
                left = "borrowed=" + pool.borrowed() + " idle=" + pool.idle() + " manifests=" + manifests.size()
                        + " open=" + book.open() + known;
            }
            left += " ms=" + (System.nanoTime() - from) / 1_000_000;
        }
        for (Sum each : sums) {
            Check.equal(each.count + "/" + each.sum, sums.get(0).count + "/" + sums.get(0).sum);
        }
        return "ok " + sums.get(0).text() + " taken=" + buffers.taken() + " threads=" + threadsLeft() + " damaged="
                + sums.get(0).damaged + " " + left;
    }

    /** Threads of ours that did not end within a second. */
    private static long threadsLeft() throws InterruptedException {
        long left = 0;
        for (Thread each : Thread.getAllStackTraces().keySet()) {
            if (each.getName().startsWith("holdfast")) {
                each.join(1_000);
                left += each.isAlive() ? 1 : 0;
            }
        }
        return left;
    }

    private static void readAtOnce(int tasks, Callable<Sum> task, List<Sum> sums) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(tasks);
        try {
            List<Future<Sum>> futures = new ArrayList<>();
            for (int each = 0; each < tasks; each++) {
                futures.add(threads.submit(task));
            }
            for (Future<Sum> each : futures) {
                sums.add(each.get());
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** "ORDER:REGION:DELAY_MS:THRESHOLD"; a delay other than 0 makes reads speculative. */
    private static ReadSettings settings(String words) {
        String[] reported = words.split(":", -1);
        ReadSettings.OrderBy order = ReadSettings.OrderBy.valueOf(reported[0].toUpperCase(java.util.Locale.ROOT));
        long delayMs = Long.parseLong(reported[2]);
        return new ReadSettings(
                order, Integer.parseInt(reported[3]), 60_000, 60_000, false, reported[1], delayMs > 0, delayMs);
    }

    /** Of the first workers those of which that is known, "1,2". */
    private static String known(java.util.function.IntPredicate what) {
        return java.util.stream.IntStream.range(1, 10).filter(what).mapToObj(Integer::toString)
                .collect(java.util.stream.Collectors.joining(","));
    }

    private Sum read(ReadContext context, Manifests manifests, ShuffleKey key, String[] words)
            throws Exception {
        int from = Integer.parseInt(words[5]);
        int to = Integer.parseInt(words[6]);
        int mapFrom = Integer.parseInt(words[7]);
        int mapTo = Integer.parseInt(words[8]);
        byte[] offer = words[9].startsWith("offer:") ? hex(words[9].substring(6)) : null;
        Manifest manifest = manifests.get(key, offer == null ? null : () -> offer);
        ExpectedMaps expected = words[9].equals("statuses")
                ? statuses(manifest.winners(), from, to, mapFrom, mapTo)
                : ExpectedMaps.of(manifest.winners());
        List<Long> pauses = pauses(words[10]);
        Sum sum = new Sum();
        byte[] reuse = new byte[0];
        CountedCosts costs = new CountedCosts();
        long begun = System.nanoTime();
        long pausedNs = 0;
        try (FetchReader reader = new FetchReader(context, manifest, from, to, mapFrom, mapTo, expected, costs)) {
            for (FetchedBatch batch = reader.next(); batch != null; batch = reader.next()) {
                Codec codec = Codec.of(batch.codec());
                int length = codec.originalBytes(batch.payload());
                reuse = codec.decompress(batch.payload(), reuse);
                sum.add(batch.partition(), batch.map(), reuse, length);
                if (pauses.contains(sum.count)) {
                    long since = System.nanoTime();
                    pause();
                    pausedNs += Math.max(0, System.nanoTime() - since - NOT_NOTED_NS);
                }
            }
            sum.duplicates = reader.duplicates();
            Check.equal(reader.next(), null);
        }
        long busyNs = System.nanoTime() - begun - pausedNs;
        Check.that(costs.waitedNs <= busyNs, "of " + busyNs + " ns it waited " + costs.waitedNs);
        Check.that(costs.streamedNs <= costs.streams * busyNs, costs.streams + " streams took " + costs.streamedNs + " ns of " + busyNs);
        Check.that(sum.count == 0 || costs.streamedNs > 0, "what was streamed took no time");
        sum.damaged = costs.damaged;
        return sum;
    }

    /** As Spark's statuses would say it: what the bitmaps say of these partitions and maps. */
    private static ExpectedMaps statuses(ReduceWinners winners, int from, int to, int mapFrom, int mapTo) {
        ExpectedMaps expected = ExpectedMaps.ofStatuses(winners);
        for (int map = mapFrom; map < Math.min(mapTo, winners.attempts().length); map++) {
            for (int partition = from; partition < to; partition++) {
                if (winners.has(map, partition)) {
                    expected.wrote(map, winners.attempts()[map], partition);
                }
            }
        }
        return expected;
    }

    private static List<Long> pauses(String words) {
        return java.util.Arrays.stream(words.split(",")).map(Long::valueOf).toList();
    }

    private static byte[] hex(String text) {
        return java.util.HexFormat.of().parseHex(text);
    }
}
