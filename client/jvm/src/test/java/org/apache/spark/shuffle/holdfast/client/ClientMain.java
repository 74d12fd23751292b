package org.apache.spark.shuffle.holdfast.client;

import static org.apache.spark.shuffle.holdfast.Checks.check;
import static org.apache.spark.shuffle.holdfast.Checks.refused;
import static org.apache.spark.shuffle.holdfast.Checks.same;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * An engine without Spark: blocks of two partitions, written by two attempts, one of which is committed and read by another client. Argument: the
 * masters. Prints READY, and expects damage once a line comes; then prints what a reader of it was told. Run by tests/jvm/test_client.py.
 */
public final class ClientMain {
    private static final int PARTITIONS = 2;
    private static final int LONG_BYTES = 5 << 20;
    private static final String PREFIX = "spark.holdfast.";

    private ClientMain() {}

    /** An error ends it. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = Map.of(PREFIX + "master.endpoints", arguments[0], PREFIX + "fetch.returnGrace", "0s");
        wrongSettings();
        HoldfastClient tasks = HoldfastClient.connect(settings, "tasks");
        try (tasks; HoldfastClient driver = HoldfastClient.connect(settings, "an engine")) {
            ShuffleGeneration shuffle = copy(driver.register(3, 1, PARTITIONS));
            same("3/0/1/2", shuffle.shuffle() + "/" + shuffle.generation() + "/" + shuffle.maps() + "/" + shuffle.partitions(), "shape");
            refused(Status.CONFLICT, "another shape", () -> driver.register(3, 2, PARTITIONS));
            MapOutput lost = write(tasks, shuffle, 7, BlockCodec.ENGINE);
            MapOutput won = write(tasks, shuffle, 8, BlockCodec.ENGINE);
            abandon(tasks, shuffle);
            badCommits(driver, shuffle, won);
            driver.commit(shuffle, List.of(won));
            driver.commit(shuffle, List.of(won));
            refused(Status.CONFLICT, "another winner", () -> driver.commit(shuffle, List.of(lost)));
            refused(Status.COMMITTED, "a late attempt", () -> write(tasks, shuffle, 9, BlockCodec.ENGINE));
            same(expected(8), read(tasks, shuffle, BlockCodec.ENGINE), "blocks of the attempt that won");
            refused(Status.BAD_REQUEST, "another codec", () -> read(tasks, shuffle, BlockCodec.HOLDFAST));
            ShuffleGeneration compressed = driver.register(4, 1, PARTITIONS);
            driver.commit(compressed, List.of(write(tasks, compressed, 5, BlockCodec.HOLDFAST)));
            same(expected(5), read(tasks, compressed, BlockCodec.HOLDFAST), "blocks that Holdfast compressed");
            refused(Status.BAD_REQUEST, "not the engine's", () -> read(tasks, compressed, BlockCodec.ENGINE));
            driver.unregister(compressed);
            System.out.println("READY");
            check(System.in.read() >= 0, "a line to go on");
            HoldfastException damage = refused(Status.CORRUPT, "a flipped byte", () -> read(tasks, shuffle, BlockCodec.ENGINE));
            System.out.println("TOLD " + damage.getMessage());
        }
        refused(Status.UNAVAILABLE, "a client that is closed", () -> tasks.register(5, 1, 1));
    }

    private static void wrongSettings() {
        try {
            HoldfastClient.connect(Map.of(), "none");
            throw new AssertionError("no masters");
        } catch (IllegalArgumentException right) {
            check(right.getMessage().startsWith(PREFIX + "master.endpoints is not set"), right.getMessage());
        }
    }

    /** The blocks of an attempt: short ones that compress, on the heap and direct, and a long one that does not. */
    private static ByteBuffer block(long attempt, int partition, int number) {
        byte[] bytes = new byte[number == 4 ? LONG_BYTES : 1_000 * (number + 1)];
        Arrays.fill(bytes, (byte) (number + 16 * partition + 64 * attempt));
        if (number == 4) {
            new Random(attempt).nextBytes(bytes);
        }
        ByteBuffer made = number % 2 == 0 ? ByteBuffer.allocateDirect(bytes.length + 10) : ByteBuffer.allocate(bytes.length + 10);
        return made.position(3).put(bytes).flip().position(3);
    }

    private static MapOutput write(HoldfastClient client, ShuffleGeneration shuffle, long attempt, BlockCodec codec) throws Exception {
        try (BlockWriter writer = client.writer(shuffle, 0, attempt, codec)) {
            for (int number = 0; number < 5; number++) {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    ByteBuffer block = block(attempt, partition, number);
                    ByteBuffer given = number == 3 ? block.asReadOnlyBuffer() : block;
                    writer.write(partition, given, 10);
                    same(block, given, "position and limit");
                }
            }
            writer.write(0, ByteBuffer.allocate(0), 0);
            writer.writeLast(1, ByteBuffer.allocate(0), 0);
            try {
                writer.write(PARTITIONS, block(attempt, 0, 0), 1);
                throw new AssertionError("a partition that is not there");
            } catch (IndexOutOfBoundsException right) {
                MapOutput output = copy(writer.finish());
                check(output.map() == 0 && output.attempt() == attempt && output.records() == 100, output.toString());
                check(output.partitionBytes().length == PARTITIONS && output.partitionBytes()[1] > LONG_BYTES, "bytes by partition");
                return output;
            }
        }
    }

    private static void abandon(HoldfastClient client, ShuffleGeneration shuffle) throws HoldfastException {
        try (BlockWriter writer = client.writer(shuffle, 0, 1, BlockCodec.ENGINE)) {
            writer.write(0, block(1, 0, 4), 1);
        }
    }

    private static void badCommits(HoldfastClient client, ShuffleGeneration shuffle, MapOutput output) throws HoldfastException {
        for (List<MapOutput> each : List.of(List.<MapOutput>of(), List.of(output, output))) {
            try {
                client.commit(shuffle, each);
                throw new AssertionError(each.size() + " outputs of one map");
            } catch (IllegalArgumentException right) {
                check(right.getMessage().contains("one"), right.getMessage());
            }
        }
    }

    private static Map<String, Integer> expected(long attempt) {
        Map<String, Integer> blocks = new TreeMap<>();
        for (int number = 0; number < 5; number++) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                add(blocks, partition, block(attempt, partition, number));
            }
        }
        return blocks;
    }

    private static Map<String, Integer> read(HoldfastClient client, ShuffleGeneration shuffle, BlockCodec codec) throws Exception {
        Map<String, Integer> blocks = new TreeMap<>();
        try (BlockReader reader = client.reader(shuffle, 0, PARTITIONS, codec)) {
            while (reader.next()) {
                same(0, reader.map(), "the map");
                add(blocks, reader.partition(), reader.block());
            }
            check(!reader.next(), "the end is the end");
        }
        return blocks;
    }

    private static void add(Map<String, Integer> blocks, int partition, ByteBuffer block) {
        blocks.merge(partition + ":" + block.remaining() + ":" + block.hashCode(), 1, Integer::sum);
    }

    /** As it comes to another JVM. */
    @SuppressWarnings("unchecked")
    private static <T> T copy(T sent) throws IOException, ClassNotFoundException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(sent);
        }
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
            return (T) in.readObject();
        }
    }
}
