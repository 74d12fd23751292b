package org.apache.spark.shuffle.holdfast;

import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;

/**
 * Keeps an executor's token good for as long as tasks run that need it: they may outlive the one that the driver gave.
 *
 * <p>Rules: while a task of a shuffle runs, a thread looks at the token and has it renewed once half of its life is over; with the last task
 * it ends. Without security, and on a driver, whose lease brings tokens, nothing happens here. Thread-safe. Called by the manager.
 */
final class TokenRenewal implements AutoCloseable {
    /** Clocks may be set, and masters be away: it is looked again after so long at most, and at least. */
    private static final long LOOK_MS_MAX = 60_000;

    private static final long LOOK_MS_MIN = 250;

    private final Masters masters;
    private Instance instance;
    private int tasks;
    private ScheduledThreadPoolExecutor timer;
    private boolean closed;

    TokenRenewal(Masters masters) {
        this.masters = masters;
    }

    /** A task that needs the token of this application has begun. */
    void began(Instance application, TaskContext context) {
        if (!masters.credentials().secure()) {
            return;
        }
        synchronized (this) {
            if (closed) {
                return;
            }
            instance = application;
            tasks++;
            if (timer == null) {
                timer = new ScheduledThreadPoolExecutor(1, work -> {
                    Thread thread = new Thread(work, "holdfast-token");
                    thread.setDaemon(true);
                    return thread;
                });
                timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
                timer.schedule(this::look, untilLookMs(), TimeUnit.MILLISECONDS);
            }
        }
        context.addTaskCompletionListener(task -> {
            ended();
            return null;
        });
    }

    private synchronized void ended() {
        tasks--;
        if (tasks == 0) {
            stop();
        }
    }

    /** Looks, and again later whatever came of it; with the last task there is no timer any more. */
    private void look() {
        try {
            renew();
        } finally {
            synchronized (this) {
                if (timer != null) {
                    timer.schedule(this::look, untilLookMs(), TimeUnit.MILLISECONDS);
                }
            }
        }
    }

    private void renew() {
        Instance whose;
        synchronized (this) {
            whose = instance;
        }
        try {
            if (masters.credentials().untilHalfMs() <= 0) {
                masters.renew(whose);
            }
        } catch (HoldfastException error) {
            if (!Thread.currentThread().isInterrupted()) { // else the last task has ended
                LogEvent.TOKEN_RENEWAL_FAILED.log("instance", whose, "reason", error);
            }
        } catch (RuntimeException | Error mistake) {
            LogEvent.TOKEN_INTERNAL_ERROR.log(mistake, "instance", whose);
        }
    }

    private long untilLookMs() {
        return Math.max(LOOK_MS_MIN, Math.min(LOOK_MS_MAX, masters.credentials().untilHalfMs()));
    }

    /** The lock is held. */
    private void stop() {
        if (timer != null) {
            timer.shutdownNow(); // also ends a call that waits for masters
            timer = null;
        }
    }

    @Override
    public synchronized void close() {
        closed = true;
        stop();
    }
}
