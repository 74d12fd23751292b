package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.CopyResult;
import org.apache.spark.shuffle.holdfast.wire.EpochResult;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Workers whose copies have chunks of their own, and streams on which anything may happen. Seeded. */
final class FetchWorld {
    private record Copy(int epoch, int worker) {}

    private final Random random;
    private final Map<Copy, List<List<Batches.Made>>> copies = new HashMap<>();
    private final List<Batches.Made> wanted = new ArrayList<>();
    private final List<Batches.Made> delivered = new ArrayList<>();
    private final Map<Integer, Effect.OpenStream> streams = new TreeMap<>();
    private final BatchHeader header = new BatchHeader();
    private final ChunkFetch core;
    private final boolean speculative;
    private boolean over;
    /** Rivals that were opened. */
    int rivals;

    FetchWorld(long seed, int count, boolean speculative) throws HoldfastException {
        random = new Random(seed);
        this.speculative = speculative;
        List<Batches.Made> pushed = new ArrayList<>();
        for (int map = 0; map < 5; map++) {
            wanted.addAll(Batches.of(map, 1 + random.nextInt(39), 9));
            pushed.addAll(Batches.of(map, 5, 8));
        }
        pushed.addAll(wanted);
        for (int again = 0; again < 20; again++) {
            pushed.add(wanted.get(random.nextInt(wanted.size())));
        }
        Collections.shuffle(pushed, random);
        int epochs = 1 + random.nextInt(3);
        EpochResult[] results = new EpochResult[epochs];
        for (int epoch = 0; epoch < epochs; epoch++) {
            List<Batches.Made> mine = new ArrayList<>();
            for (int index = epoch; index < pushed.size(); index += epochs) {
                mine.add(pushed.get(index));
            }
            List<Integer> workers = new ArrayList<>(List.of(1, 2, 3));
            Collections.shuffle(workers, random);
            for (int worker : workers.subList(0, count)) {
                copies.put(new Copy(epoch, worker), cut(mine));
            }
            if (count > 1 && random.nextDouble() < 0.3) { // recovery cut the end of one, and nobody's size tells
                List<?> cut = copies.get(new Copy(epoch, workers.get(random.nextInt(count))));
                cut.remove(cut.size() - 1);
            }
            int number = epoch;
            results[epoch] = new EpochResult(0, epoch, workers.subList(0, count).stream()
                    .map(worker -> new CopyResult(worker, Status.OK, copies.get(new Copy(number, worker)).isEmpty() ? 0 : 100)).toList());
        }
        byte[][] bits = {{1}, {1}, {1}, {1}, {1}};
        ReduceWinners winners = new ReduceWinners(2, new long[] {9, 9, 9, 9, 9}, bits);
        core = new ChunkFetch(
                ReduceManifest.of(2, results), ExpectedMaps.of(winners), 0, 1, 0, 5, false, "shuffle s", Order.GIVEN,
                FetchLimits.defaults(), speculative);
    }

    /** Runs to the end; returns "" or the error that ended the read. Throws if more or less than what won came. */
    String run() {
        try {
            act(core.started());
            for (int turn = 0; turn < 10_000 && !over; turn++) {
                List<Integer> numbers = new ArrayList<>(streams.keySet());
                if (speculative) {
                    look(numbers);
                    numbers = new ArrayList<>(streams.keySet());
                }
                serve(numbers.get(random.nextInt(numbers.size())));
            }
        } catch (HoldfastException error) {
            Check.that(error.status() == Status.CORRUPT && error.getMessage().contains("checksum"),
                    "only damage may end a read: " + error);
            return error.getMessage();
        } catch (IncompleteException error) {
            throw new IllegalStateException(error);
        }
        Check.that(over, "the read does not end");
        Check.equal(names(delivered), names(wanted));
        return "";
    }

    private static List<String> names(List<Batches.Made> batches) {
        return batches.stream().map(each -> each.map() + "/" + each.number()).sorted().toList();
    }

    private List<List<Batches.Made>> cut(List<Batches.Made> mine) {
        List<Batches.Made> mixed = new ArrayList<>(mine);
        Collections.shuffle(mixed, random);
        int size = 1 + random.nextInt(14);
        List<List<Batches.Made>> chunks = new ArrayList<>();
        for (int at = 0; at < mixed.size(); at += size) {
            chunks.add(mixed.subList(at, Math.min(mixed.size(), at + size)));
        }
        return chunks;
    }

    private void act(List<Effect> effects) throws HoldfastException {
        for (Effect effect : effects) {
            if (effect instanceof Effect.OpenStream open) {
                streams.put(open.stream(), open);
            } else if (effect instanceof Effect.CloseStream close) {
                streams.remove(close.stream());
            } else if (effect instanceof Effect.AskMasters) {
                act(core.fetch.workersKnown(Set.of(1, 2, 3), 0));
            } else if (effect instanceof Effect.Failed failed) {
                throw failed.error();
            } else {
                over = true;
            }
        }
    }

    /** Some of the streams, which may have brought something, are said to be late. */
    private void look(List<Integer> numbers) throws HoldfastException {
        for (int number : numbers) {
            if (random.nextBoolean()) {
                List<Effect> effects = core.fetch.late(number);
                rivals += effects.size();
                act(effects);
                core.fetch.check();
            }
        }
    }

    /** Lets a stream bring what it owes, until something goes wrong with it. */
    private void serve(int number) throws HoldfastException, IncompleteException {
        Effect.OpenStream stream = streams.get(number);
        if (speculative) {
            act(core.fetch.dataCame(number));
            core.fetch.check();
        }
        for (EpochFile file : stream.files()) {
            List<List<Batches.Made>> chunks = copies.get(new Copy(file.epoch, stream.worker()));
            for (int chunk = core.firstChunk(file, stream.worker()); chunk < chunks.size(); chunk++) {
                if (random.nextDouble() < 0.05) {
                    streams.remove(number);
                    act(random.nextDouble() < 0.8
                            ? core.fetch.streamFailed(number, new HoldfastException(Status.UNAVAILABLE, "lost"), 0)
                            : core.fetch.fileBad(number, file, "checksum"));
                    return;
                }
                core.chunkCame(file, stream.worker(), chunk, ChunkFetch.NOT_COMPLETE);
                for (Batches.Made each : chunks.get(chunk)) {
                    if (core.admit(0, each.into(header))) {
                        delivered.add(each);
                    }
                }
                core.chunkCame(file, stream.worker(), chunk, chunk == chunks.size() - 1 ? 100 : 0);
                act(core.fetch.progressed(number));
                core.fetch.check();
            }
            core.fileSent(file, stream.worker(), chunks.size());
            act(core.epochComplete(number, file, stream.worker()));
            core.fetch.check();
        }
        streams.remove(number);
        act(core.fetch.streamEnded(number));
    }
}
