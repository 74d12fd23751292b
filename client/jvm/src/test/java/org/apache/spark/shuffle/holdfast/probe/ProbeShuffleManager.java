package org.apache.spark.shuffle.holdfast.probe;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.BlockStoreShuffleReader;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.holdfast.SyntheticLocation;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/**
 * Spark's own shuffle whose statuses name synthetic locations, to see what Spark makes of them.
 *
 * <p>Statuses are renamed as they are written and mapped back where blocks are fetched, through files in the directory
 * {@code spark.probe.dir}, which all processes share. A generation is, as in the product, what the first task of a
 * stage attempt finds: the number of failures that readers have reported. {@code spark.probe.scenario} names what goes wrong.
 */
public final class ProbeShuffleManager extends SortShuffleManager {
    private static final long DEADLINE_MS = 60_000;

    /** Spark numbers shuffles from the end of a job: what the last stage reads is 0. */
    private static final int FIRST = 1;

    private static final int SECOND = 0;
    private final Path directory;
    private final String scenario;

    public ProbeShuffleManager(SparkConf conf) {
        super(conf);
        directory = Path.of(conf.get("spark.probe.dir"));
        scenario = conf.get("spark.probe.scenario", "none");
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        int generation = generation(handle.shuffleId(), context);
        return new RenamingWriter<>(super.getWriter(handle, mapId, context, metrics), handle.shuffleId(), generation, context);
    }

    @Override
    public <K, C> ShuffleReader<K, C> getReader(
            ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        int shuffle = handle.shuffleId();
        var sizes = SparkEnv.get().mapOutputTracker().getMapSizesByExecutorId(shuffle, startMap, endMap, startPartition, endPartition);
        Map<BlockManagerId, ArrayBuffer<Tuple3<BlockId, Object, Object>>> real = new HashMap<>();
        TreeSet<String> seen = new TreeSet<>();
        while (sizes.hasNext()) {
            var one = sizes.next();
            seen.add(one._1().executorId());
            for (var blocks = one._2().iterator(); blocks.hasNext(); ) {
                var block = blocks.next();
                real.computeIfAbsent(place(shuffle, mapId(block._1())), key -> new ArrayBuffer<>()).$plus$eq(block);
            }
        }
        note("read-" + shuffle + "-" + context.stageAttemptNumber() + "-" + context.partitionId() + "-" + context.taskAttemptId(),
            String.join(" ", seen));
        misbehave(shuffle, context);
        var places = new ArrayBuffer<Tuple2<BlockManagerId, scala.collection.Seq<Tuple3<BlockId, Object, Object>>>>();
        real.forEach((where, blocks) -> places.$plus$eq(new Tuple2<>(where, blocks)));
        SparkEnv env = SparkEnv.get();
        @SuppressWarnings("unchecked")
        BaseShuffleHandle<K, ?, C> base = (BaseShuffleHandle<K, ?, C>) handle;
        return new BlockStoreShuffleReader<K, C>(base, places.iterator(), context, metrics,
            env.serializerManager(), env.blockManager(), env.mapOutputTracker(), false);
    }

    /** What the scenario wants to go wrong for this reader. */
    private void misbehave(int shuffle, TaskContext context) {
        if (scenario.equals("fail") && shuffle == SECOND && context.partitionId() == 0 && mark("failed-second")) {
            fail(shuffle, 0, context);
        }
        if (scenario.equals("late")) {
            if (shuffle == FIRST && context.partitionId() == 2 && mark("failed-first")) {
                await("begun-" + SECOND + "-3");  // the straggler runs before its stage attempt is given up
                fail(shuffle, 0, context);
            }
            if (shuffle == SECOND && context.partitionId() == 0 && mark("failed-second")) {
                fail(shuffle, 0, context);
            }
            // another reducer of the same attempt says the same when the next generation is being written
            if (shuffle == SECOND && context.partitionId() == 1 && mark("failed-again")) {
                await("writing");
                throw failure(shuffle, 0, context);
            }
        }
    }

    private void fail(int shuffle, int generation, TaskContext context) {
        note("reported-" + shuffle + "-" + generation, "");
        throw failure(shuffle, generation, context);
    }

    private static RuntimeException failure(int shuffle, int generation, TaskContext context) {
        var failure = new FetchFailedException(SyntheticLocation.of(shuffle, generation, 0), shuffle, 0L, 0, context.partitionId(),
            "the probe says so", null);
        return ProbeShuffleManager.<RuntimeException>sneaky(failure);
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> T sneaky(Throwable error) throws T {
        throw (T) error;
    }

    /** The generation that the tasks of this stage attempt write: decided by the first one that asks. */
    private int generation(int shuffle, TaskContext context) {
        int reported = 0;
        while (Files.exists(directory.resolve("reported-" + shuffle + "-" + reported))) {
            reported++;
        }
        Path decided = directory.resolve("generation-" + shuffle + "-" + context.stageId() + "-" + context.stageAttemptNumber());
        try {
            Path draft = Files.createTempFile(directory, "draft", "");
            Files.writeString(draft, Integer.toString(reported));
            try {
                Files.createLink(decided, draft);
            } catch (FileAlreadyExistsException error) {
                // another task was first, its word counts
            }
            return Integer.parseInt(Files.readString(decided));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long mapId(BlockId block) {
        return block instanceof ShuffleBlockId one ? one.mapId() : ((ShuffleBlockBatchId) block).mapId();
    }

    private BlockManagerId place(int shuffle, long mapId) {
        try {
            String[] words = Files.readString(directory.resolve("place-" + shuffle + "-" + mapId)).split(" ");
            return org.apache.spark.storage.BlockManagerId$.MODULE$.apply(words[0], words[1], Integer.parseInt(words[2]), Option.empty());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void note(String name, String text) {
        try {
            Files.writeString(directory.resolve(name), text);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** True for the first who asks, in all processes. */
    private boolean mark(String name) {
        try {
            Files.createFile(directory.resolve(name));
            return true;
        } catch (FileAlreadyExistsException error) {
            return false;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void await(String name) {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!Files.exists(directory.resolve(name))) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("the probe waited in vain for " + name);
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException(error);
            }
        }
    }

    /** Writes as Spark does; its status names the synthetic location, a file tells the true one. */
    private final class RenamingWriter<K, V> extends ShuffleWriter<K, V> {
        private final ShuffleWriter<K, V> inner;
        private final int shuffle;
        private final int generation;
        private final TaskContext context;

        RenamingWriter(ShuffleWriter<K, V> inner, int shuffle, int generation, TaskContext context) {
            this.inner = inner;
            this.shuffle = shuffle;
            this.generation = generation;
            this.context = context;
        }

        @Override
        public void write(Iterator<Product2<K, V>> records) throws IOException {
            note("begun-" + shuffle + "-" + context.partitionId(), "");
            inner.write(records);
            if (scenario.equals("late") && shuffle == SECOND) {
                if (generation == 1) {
                    note("writing", "");
                    note("writing-" + context.partitionId(), "");
                    if (context.partitionId() == 0) {
                        await("straggler");  // so that the late status comes while this generation is incomplete
                    }
                } else if (context.partitionId() == 3 && context.stageAttemptNumber() == 0) {
                    // Not before the same map of the next generation has begun: Spark would take this one's end for its end
                    // and leave it to yet another attempt, which is right as well, but another story.
                    await("writing-3");
                    note("straggler", "");
                }
            }
        }

        @Override
        public Option<MapStatus> stop(boolean success) {
            Option<MapStatus> status = inner.stop(success);
            if (status.isDefined()) {
                MapStatus found = status.get();
                BlockManagerId where = found.location();
                note("place-" + shuffle + "-" + found.mapId(), where.executorId() + " " + where.host() + " " + where.port());
                found.updateLocation(SyntheticLocation.of(shuffle, generation, 0));
            }
            return status;
        }

        @Override
        public long[] getPartitionLengths() {
            return inner.getPartitionLengths();
        }
    }
}
