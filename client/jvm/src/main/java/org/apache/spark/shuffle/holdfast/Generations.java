package org.apache.spark.shuffle.holdfast;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.fetch.UnusableWorkersException;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * Which generation of a shuffle tasks write to, in this JVM.
 *
 * <p>Rules: the first stage of a shuffle writes where its handle says ({@link FirstPlaces}), without a call. For all others the tasks of one stage
 * attempt in one JVM ask once, the first of them; the masters answer with the newest generation
 * that takes data, and open the next one where the newest is committed. So a task needs no history of the generations
 * before. Readers that find data lost report it here before they throw, since a generation that is not committed is only replaced after
 * such a report. Thread-safe. Called by
 * the writer (which generation), the reader (failures) and the manager.
 */
public final class Generations {
    /** Stage attempts that are remembered; forgetting one only costs a call. */
    private static final int ATTEMPTS_MAX = 4096;

    private record Attempt(int shuffle, int stage, int stageAttempt) {}

    /** One answer, and the lock under which it is asked for. */
    private static final class Asked {
        private final ReentrantLock lock = new ReentrantLock();
        private volatile RegisteredShuffle answer;
    }

    private final Masters masters;
    private final Registrations registrations;
    /** Shuffles whose handle names places that take no more data. */
    private final Set<Integer> outdated = ConcurrentHashMap.newKeySet();
    private final Map<Attempt, Asked> attempts = new LinkedHashMap<>();
    /** By shuffle: the workers that tasks of this JVM could not read it from. */
    private final Map<Integer, Set<Integer>> unusable = new ConcurrentHashMap<>();

    Generations(Masters masters, Registrations registrations) {
        this.masters = masters;
        this.registrations = registrations;
    }

    /**
     * Where a map task of this shuffle writes.
     *
     * @throws HoldfastException what the masters said; UNAVAILABLE if the task was interrupted as it waited
     */
    public RegisteredShuffle toWrite(HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context) throws HoldfastException {
        Asked asked = asked(new Attempt(handle.shuffleId(), context.stageId(), context.stageAttemptNumber()));
        RegisteredShuffle answer = asked.answer;
        if (answer != null) {
            return answer;
        }
        try {
            while (!asked.lock.tryLock(LongWait.FIRST_NS, TimeUnit.NANOSECONDS)) {
                LogEvent.GENERATION_WAITING.log("shuffle", handle.key(0));
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new HoldfastException(Status.UNAVAILABLE, "interrupted while asking where shuffle " + handle.key(0) + " is written");
        }
        try {
            if (asked.answer == null) {
                asked.answer = ask(handle, context.stageAttemptNumber() == 0);
            }
            return asked.answer;
        } finally {
            asked.lock.unlock();
        }
    }

    /**
     * A reader found data of this generation lost, or out of its reach: opens the next one, so that the maps that run again have somewhere to
     * write, without the workers that could not be read from where there are others. Call it before the fetch failure is thrown. It never throws: without the masters the failure is as true, and the maps will ask them.
     */
    public void failed(HoldfastShuffleHandle<?, ?, ?> handle, int generation, HoldfastException reason) {
        LogEvent.GENERATION_FAILED.log("shuffle", handle.key(generation), "reason", reason);
        if (reason instanceof UnusableWorkersException blamed) {
            unusable.computeIfAbsent(handle.shuffleId(), any -> ConcurrentHashMap.newKeySet()).addAll(blamed.workers());
        }
        try {
            registrations.register(masters, handle.key(generation + 1), handle.shape(), false, true, unusable(handle.shuffleId()));
        } catch (HoldfastException error) {
            LogEvent.GENERATION_OPEN_FAILED.log("shuffle", handle.key(generation + 1), "reason", error);
        }
    }

    /**
     * A task of this stage attempt found that its generation takes no more data: it is committed, or was dropped. If its map has to run again
     * nevertheless, because its output there was dropped, that one asks again.
     */
    void closed(HoldfastShuffleHandle<?, ?, ?> handle, TaskContext context) {
        outdated.add(handle.shuffleId());
        synchronized (attempts) {
            attempts.remove(new Attempt(handle.shuffleId(), context.stageId(), context.stageAttemptNumber()));
        }
    }

    /** Nobody will write this shuffle any more. */
    void forget(int shuffle) {
        outdated.remove(shuffle);
        unusable.remove(shuffle);
        synchronized (attempts) {
            attempts.keySet().removeIf(each -> each.shuffle() == shuffle);
        }
    }

    private Set<Integer> unusable(int shuffle) {
        return unusable.getOrDefault(shuffle, Set.of());
    }

    private RegisteredShuffle ask(HoldfastShuffleHandle<?, ?, ?> handle, boolean firstAttempt) throws HoldfastException {
        Placed first = handle.places().known();
        Set<Integer> blamed = unusable(handle.shuffleId());
        RegisteredShuffle found;
        if (first != null && firstAttempt && !outdated.contains(handle.shuffleId()) && blamed.isEmpty()) {
            masters.know(first.clusterId(), first.registered().raftIndex());
            found = first.registered();
        } else {
            found = registrations.register(masters, handle.key(0), handle.shape(), true, false, blamed);
        }
        LogEvent.SHUFFLE_WRITTEN.log("shuffle", found.key(), "copies", found.copies());
        return found;
    }

    private Asked asked(Attempt attempt) {
        synchronized (attempts) {
            Asked found = attempts.get(attempt);
            if (found == null) {
                if (attempts.size() >= ATTEMPTS_MAX) {
                    attempts.remove(attempts.keySet().iterator().next());
                }
                found = new Asked();
                attempts.put(attempt, found);
            }
            return found;
        }
    }
}
