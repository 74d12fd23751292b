package org.apache.spark.shuffle.holdfast.push;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.control.WorkerAddress;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.wire.CopyResult;
import org.apache.spark.shuffle.holdfast.wire.EpochResult;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Location;
import org.apache.spark.shuffle.holdfast.wire.ReduceLocations;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * What one executor holds of a shuffle with so many partitions on so many workers, two copies and two epochs each: arguments are
 * partitions and workers. Prints a line for each part: bytes of the heap once all else is collected. What a writer's frames
 * take is direct memory and bounded by {@link PushLimits}. Run by tests/jvm/test_scale.py.
 */
public final class ScaleMain {
    private static final int COLLECTIONS = 5;
    /** What the heap held before the part that is measured. */
    private static long before;

    private ScaleMain() {}

    /** Makes one part after the other, and keeps them: once before, so that what the JVM makes once is there. */
    public static void main(String[] arguments) throws Exception {
        hold(1, 1);
        System.out.println(String.join("\n", hold(Integer.parseInt(arguments[0]), Integer.parseInt(arguments[1]))));
    }

    private static List<String> hold(int partitions, int workers) throws Exception {
        Buffers buffers = new Buffers(1 << 20);
        ShuffleKey key = new ShuffleKey(Instance.random(), 1, 0);
        byte[] places = places(partitions, workers);
        byte[] manifest = manifest(partitions, workers);
        List<String> said = new ArrayList<>();
        try (Masters masters = new Masters("127.0.0.1:1", 1_000);
                ConnectionPool pool = closed(new ConnectionPool(
                        () -> Hello.client("", 0, masters.credentials().tokenBytes()), masters.credentials(), buffers));
                PushContext context = new PushContext(masters, pool, buffers, 1, 0, PushLimits.USUAL)) {
            List<WorkerAddress> addresses = IntStream.rangeClosed(1, workers)
                    .mapToObj(each -> new WorkerAddress(each, 1, "h" + each, "h" + each + ":7080", true, "/dc/r" + each % 30, false))
                    .toList();
            RegisteredShuffle registered = new RegisteredShuffle(key, 2, 0, places, addresses);
            before = used();
            PartitionLocations locations = new PartitionLocations(registered);
            said.add(grown("locations"));
            PushWriter writer = new PushWriter(context, registered, locations, 0, 7, Compression.NONE, null);
            said.add(grown("writer"));
            ReduceManifest epochs = ReduceManifest.decode(manifest);
            said.add(grown("manifest"));
            writer.abort();
            said.add("ok " + (locations.partitions() + epochs.size()));
        }
        return said;
    }

    /** The writer begins to connect. What that takes for a moment is no part of the count, so nothing connects. */
    private static ConnectionPool closed(ConnectionPool pool) {
        pool.close();
        return pool;
    }

    private static byte[] places(int partitions, int workers) throws Exception {
        return ReduceLocations.of(IntStream.range(0, partitions).mapToObj(each -> new Location(0, copies(each, workers), 1))
                .toArray(Location[]::new)).encode();
    }

    private static byte[] manifest(int partitions, int workers) throws Exception {
        return ReduceManifest.of(partitions, IntStream.range(0, 2 * partitions).mapToObj(each -> new EpochResult(each / 2, each % 2,
                copies(each / 2, workers).stream().map(one -> new CopyResult(one, Status.OK, 1L << 30)).toList()))
                .toArray(EpochResult[]::new)).encode();
    }

    /** No two partitions share a pair of workers, as where there are many workers. */
    private static List<Integer> copies(int partition, int workers) {
        return List.of(1 + partition % workers, 1 + (partition + partition / workers + 1) % workers);
    }

    private static String grown(String what) {
        long now = used();
        String said = what + " " + (now - before);
        before = now;
        return said;
    }

    private static long used() {
        for (int each = 0; each < COLLECTIONS; each++) {
            System.gc();
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
