package org.apache.spark.shuffle.holdfast.wire;

import java.util.Collection;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/**
 * What the plug-in logs: name, level and sentence; docs/log_events.md says what to do.
 * Made from common/log_events.py by python -m tests.write_tables; change it there.
 */
public enum LogEvent {
    APPLICATION_REGISTERED("application.registered", Level.INFO, "An application registered."),
    APPLICATION_GONE("application.gone", Level.ERROR, "The masters dropped this application, and its data with it."),
    APPLICATION_REPLACED("application.replaced", Level.WARN, "The masters dropped this application; it registers again for its next shuffles."),
    LEASE_RENEWAL_FAILED("lease.renewal_failed", Level.WARN, "A lease could not be renewed; it is tried again."),
    LEASE_INTERNAL_ERROR("lease.internal_error", Level.ERROR, "A lease could not be renewed because of an unexpected error; it is tried again."),
    LEASE_RELEASE_FAILED("lease.release_failed", Level.WARN, "A lease could not be released; it expires by itself."),
    TOKEN_WAITING("token.waiting", Level.WARN, "A task waits for the application's token."),
    TOKEN_RENEWAL_FAILED("token.renewal_failed", Level.WARN, "A token could not be renewed; the old one is used, and it is tried again."),
    TOKEN_INTERNAL_ERROR("token.internal_error", Level.ERROR, "A token could not be renewed because of an unexpected error; it is tried again."),
    SHUFFLE_WAITING("shuffle.waiting", Level.WARN, "A shuffle cannot be registered yet; it is tried again."),
    SHUFFLE_FEWER_COPIES("shuffle.fewer_copies", Level.WARN, "A shuffle was placed with fewer copies than asked for, and stays so."),
    SHUFFLE_FALLBACK("shuffle.fallback", Level.WARN, "A shuffle uses Spark's own shuffle instead of Holdfast: executors, or Spark's shuffle service, keep its data."),
    SHUFFLE_WRITTEN("shuffle.written", Level.DEBUG, "A shuffle is written."),
    SHUFFLE_UNDER_REPLICATED("shuffle.under_replicated", Level.WARN, "A shuffle was committed with fewer copies than asked for."),
    SHUFFLE_UNREGISTER_FAILED("shuffle.unregister_failed", Level.WARN, "A shuffle could not be unregistered; its data stays until that succeeds or the application ends."),
    GENERATIONS_DROPPED("generations.dropped", Level.INFO, "Generations of a shuffle that were replaced by a committed one were dropped."),
    GENERATION_WAITING("generation.waiting", Level.WARN, "A map task waits for another one that asks where the shuffle is written."),
    GENERATION_FAILED("generation.failed", Level.WARN, "A generation of a shuffle cannot be read; Spark runs its maps again in a new one."),
    GENERATION_OPEN_FAILED("generation.open_failed", Level.WARN, "The next generation of a shuffle could not be opened; its maps ask for it again."),
    PUSH_SLOW("push.slow", Level.WARN, "A push takes long: no batch was acknowledged."),
    PUSH_WAITING_FOR_MEMORY("push.waiting_for_memory", Level.WARN, "A map task waits for direct memory."),
    PUSH_WORKER_UNREACHABLE("push.worker_unreachable", Level.WARN, "A worker cannot be reached for a push; the masters are asked where it is."),
    PUSH_INTERNAL_ERROR("push.internal_error", Level.ERROR, "A push ended with an unexpected error; what it touched is not used."),
    READ_WAITING("read.waiting", Level.WARN, "A reader waits for data."),
    READ_MANIFEST_KEPT("read.manifest_kept", Level.DEBUG, "A manifest could not be read again; the reader uses the one it has."),
    CALL_SLOW("call.slow", Level.WARN, "A call to the masters takes long."),
    LEADER_MISSING("leader.missing", Level.WARN, "No leader was found; the masters are asked again."),
    CONNECTION_STALLED("connection.stalled", Level.WARN, "A worker takes no bytes in the middle of a frame; the connection is closed if that continues."),
    SETTING_UNSUITABLE("setting.unsuitable", Level.WARN, "A setting of Spark does not suit Holdfast."),
    COMMIT_LATE("commit.late", Level.DEBUG, "A shuffle was not committed ahead of its readers; the first of them does it.");

    private static final Logger LOG = LoggerFactory.getLogger("org.apache.spark.shuffle.holdfast");
    private static final Pattern PLAIN = Pattern.compile("[^\\s\"=]+");

    private final String dotted;
    private final Level level;
    private final String sentence;

    LogEvent(String dotted, Level level, String sentence) {
        this.dotted = dotted;
        this.level = level;
        this.sentence = sentence;
    }

    /** Logs this. @param facts a name and a value by turns */
    public void log(Object... facts) {
        log((Throwable) null, facts);
    }

    /** Logs this, with a traceback. */
    public void log(Throwable trace, Object... facts) {
        if (LOG.isEnabledForLevel(level)) {
            LOG.atLevel(level).setCause(trace).log(line(facts));
        }
    }

    /** The line: name, {@code key=value}, and the sentence. */
    String line(Object... facts) {
        StringBuilder line = new StringBuilder(dotted);
        for (int i = 0; i < facts.length; i += 2) {
            line.append(' ').append(facts[i]).append('=').append(quoted(text(facts[i + 1])));
        }
        return line.append(" — ").append(sentence).toString();
    }

    private static String text(Object fact) {
        if (fact instanceof Throwable error) {
            return error.getMessage() == null ? error.toString() : error.getMessage();
        }
        if (fact instanceof Collection<?> all) {
            return all.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return String.valueOf(fact);
    }

    private static String quoted(String text) {
        if (PLAIN.matcher(text).matches()) {
            return text;
        }
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "\\r") + '"';
    }
}
