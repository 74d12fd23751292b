package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;

/** Prints the read order of each case of a file (tests/support/read_orders.py), and tells stories of the books. Run by pytest. */
public final class ReadOrderMain {
    private static final long S = 1_000_000_000L;
    private static final long MS = 1_000_000L;

    private ReadOrderMain() {}

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println("order " + order(line));
        }
        remembered();
        latencies();
        books();
        oneRead();
        System.out.println("ok");
    }

    private static String order(String line) {
        Map<String, String> reported = new HashMap<>();
        for (String word : line.split(" ")) {
            reported.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        }
        ReadOrder.Health health = new ReadOrder.Health(
                Long.parseLong(reported.get("failureExpire")) * S, Long.parseLong(reported.get("slowExpire")) * S);
        pairs(reported.get("failed")).forEach((worker, at) -> health.failed(worker, Long.parseLong(at) * S));
        pairs(reported.get("slow")).forEach((worker, at) -> health.slow(worker, Long.parseLong(at) * S));
        Map<Integer, Integer> pending = new HashMap<>();
        pairs(reported.get("pending")).forEach((worker, count) -> pending.put(worker, Integer.parseInt(count)));
        ReadOrder.View view = new ReadOrder.View(
                set(reported.get("writable")), set(reported.get("readonly")), pairs(reported.get("regions")), reported.get("region"),
                pending, Integer.parseInt(reported.get("threshold")), Boolean.parseBoolean(reported.get("every")));
        int[] found = ReadOrder.order(numbers(reported.get("copies")), view, health, Long.parseLong(reported.get("now")) * S);
        return Arrays.stream(found).mapToObj(Integer::toString).collect(Collectors.joining(","));
    }

    private static int[] numbers(String list) {
        return list.isEmpty() ? new int[0] : Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static Set<Integer> set(String list) {
        return Arrays.stream(numbers(list)).boxed().collect(Collectors.toCollection(HashSet::new));
    }

    private static Map<Integer, String> pairs(String list) {
        Map<Integer, String> found = new LinkedHashMap<>();
        for (String pair : list.isEmpty() ? new String[0] : list.split(",")) {
            found.put(Integer.valueOf(pair.substring(0, pair.indexOf(':'))), pair.substring(pair.indexOf(':') + 1));
        }
        return found;
    }

    /** However many workers fail, the newest ones are remembered; one that fails again is a new one. */
    private static void remembered() {
        ReadOrder.Health health = new ReadOrder.Health(S, S);
        for (int worker = 0; worker < ReadOrder.REMEMBERED_MAX; worker++) {
            health.failed(worker, 2);
        }
        health.failed(0, 3);
        health.failed(ReadOrder.REMEMBERED_MAX, 4);
        Check.equal(health.failureNs(0), 3L);
        Check.equal(health.failureNs(1), null);
        Check.equal(health.failureNs(2), 2L);
        Check.that(!health.look(4 + S), "nothing is left");
    }

    /** As tests/unit/client/test_read_book.py has it. */
    private static void latencies() {
        Latencies latencies = new Latencies();
        for (int count = 1; count < Latencies.MIN; count++) {
            latencies.took(MS);
            Check.equal(latencies.delayNs(), Latencies.DELAY_NS);
        }
        latencies.took(MS);
        Check.equal(latencies.delayNs(), Latencies.DELAY_NS_MIN);
        for (int number = 0; number < Latencies.MAX; number++) {
            latencies.took(number * MS);
        }
        Check.equal(latencies.delayNs(), 2 * 121 * MS);
        for (int number = 0; number < Latencies.MAX; number++) {
            latencies.took(60 * MS);
        }
        Check.equal(latencies.delayNs(), 120 * MS);
    }

    private static ReadBook book(ReadSettings.OrderBy order, int threshold) {
        return new ReadBook(new ReadSettings(order, threshold, 60_000, 60_000, false, "here", false, 0));
    }

    private static WorkerAddress worker(int number, boolean alive, String place, boolean draining) {
        return new WorkerAddress(number, 1, "h", "h:1", alive, place, draining);
    }

    private static void equal(int[] found, Integer... wanted) {
        Check.equal(Arrays.stream(found).boxed().toList(), List.of(wanted));
    }

    /** What the masters say counts for a while, the newest word; load counts open streams. */
    private static void books() {
        ReadBook book = book(ReadSettings.OrderBy.HEALTH, 0);
        equal(book.ordered(new int[] {3, 1, 2}, 1), 3, 1, 2);
        book.learn(List.of(worker(1, false, "", false), worker(2, true, "", true), worker(3, true, "", false)), 1);
        equal(book.ordered(new int[] {1, 2, 3}, 1), 3, 2, 1);
        equal(book.ordered(new int[] {1, 2, 3}, 1 + 60 * S), 1, 2, 3);
        book.learn(List.of(worker(1, true, "", false)), 2);
        equal(book.ordered(new int[] {2, 1}, 3), 1, 2);
        for (ReadSettings.OrderBy by : ReadSettings.OrderBy.values()) {
            book = book(by, 0);
            book.learn(List.of(
                    worker(1, true, "/there/r", false), worker(2, true, "/here/r", false), worker(3, true, "/here", false)), 1);
            book.failed(2, 1);
            switch (by) {
                case GIVEN -> equal(book.ordered(new int[] {1, 2, 3}, 1), 1, 2, 3);
                case HEALTH -> equal(book.ordered(new int[] {1, 2, 3}, 1), 1, 3, 2);
                case REGION -> equal(book.ordered(new int[] {1, 2, 3}, 1), 3, 2, 1);
            }
        }
        book = book(ReadSettings.OrderBy.HEALTH, 2);
        book.opened(1);
        book.opened(1);
        equal(book.order().ordered(1, 2), 2, 1);
        book.closed(1);
        equal(book.order().ordered(1, 2), 1, 2);
        book.closed(1);
        Check.equal(book.open(), 0);
        Check.equal(book.delayNs(), Latencies.DELAY_NS);
    }

    /** One read keeps its order; where nothing is known the array itself comes back. */
    private static void oneRead() {
        ReadBook book = book(ReadSettings.OrderBy.HEALTH, 0);
        Order before = book.order();
        int[] copies = {1, 2};
        Check.that(before.ordered(copies) == copies, "nothing is known, and something is made");
        before.failed(1);
        equal(before.ordered(1, 2), 1, 2);
        equal(book.order().ordered(1, 2), 2, 1);
        equal(book.order().ordered(2, 1), 2, 1);
        book.order().slow(2);
        Check.that(book.isSlow(2) && !book.isSlow(1) && book.isFailed(1) && !book.isFailed(2), "what was met");
        equal(book.order().ordered(1, 2), 1, 2);
        equal(book.order().ordered(3, 2, 1), 3, 1, 2);
    }
}
