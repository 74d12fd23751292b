package org.apache.spark.shuffle.holdfast.wire;

import java.util.Collection;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/**
 * What the plug-in logs: name, level and sentence; docs/operate/log_events.md says what to do.
 * Made from common/log_events.py by python -m tests.write_tables; change it there.
 */
public enum LogEvent {
    APPLICATION_REGISTERED("application.registered", Level.INFO, "An application registered."),
    APPLICATION_GONE("application.gone", Level.ERROR, "The masters dropped this application and its data."),
    APPLICATION_REPLACED("application.replaced", Level.WARN, "The masters dropped this application; it registers again."),
    LEASE_RENEWAL_FAILED("lease.renewal_failed", Level.WARN, "Renewing a lease failed; retrying."),
    LEASE_INTERNAL_ERROR("lease.internal_error", Level.ERROR, "Renewing a lease failed unexpectedly; retrying."),
    LEASE_RELEASE_FAILED("lease.release_failed", Level.WARN, "Releasing a lease failed; it expires by itself."),
    TOKEN_WAITING("token.waiting", Level.WARN, "A task waits for the application's token."),
    TOKEN_RENEWAL_FAILED("token.renewal_failed", Level.WARN, "Renewing a token failed; the old one stays in use."),
    TOKEN_INTERNAL_ERROR("token.internal_error", Level.ERROR, "Renewing a token failed unexpectedly; retrying."),
    SHUFFLE_WAITING("shuffle.waiting", Level.WARN, "A shuffle cannot be registered yet; retrying."),
    SHUFFLE_FEWER_COPIES("shuffle.fewer_copies", Level.WARN, "A shuffle was placed with fewer copies than requested, permanently."),
    SHUFFLE_FALLBACK("shuffle.fallback", Level.WARN, "A shuffle uses Spark's own shuffle instead of Holdfast."),
    SHUFFLE_FALLBACK_UNREPORTED("shuffle.fallback_unreported", Level.INFO, "Masters do not know yet of shuffles that fell back; the report is tried again."),
    SHUFFLE_WRITTEN("shuffle.written", Level.DEBUG, "A shuffle is written."),
    SHUFFLE_UNDER_REPLICATED("shuffle.under_replicated", Level.WARN, "A shuffle was committed with too few copies."),
    SHUFFLE_UNREGISTER_FAILED("shuffle.unregister_failed", Level.WARN, "Unregistering a shuffle failed; its data stays for now."),
    GENERATIONS_DROPPED("generations.dropped", Level.INFO, "Older generations of a committed shuffle were dropped."),
    GENERATION_WAITING("generation.waiting", Level.WARN, "A map task waits for another that asks where the shuffle is written."),
    GENERATION_FAILED("generation.failed", Level.WARN, "A generation of a shuffle cannot be read; Spark runs its maps again."),
    GENERATION_OPEN_FAILED("generation.open_failed", Level.WARN, "Opening the next generation of a shuffle failed; its maps ask again."),
    PUSH_SLOW("push.slow", Level.WARN, "A push takes long: no batch was acknowledged."),
    PUSH_WAITING_FOR_MEMORY("push.waiting_for_memory", Level.WARN, "A map task waits for direct memory."),
    PUSH_WORKER_UNREACHABLE("push.worker_unreachable", Level.WARN, "A push cannot reach a worker; it asks the masters for its address."),
    PUSH_INTERNAL_ERROR("push.internal_error", Level.ERROR, "A push failed unexpectedly; what it touched is not used."),
    READ_WAITING("read.waiting", Level.WARN, "A reader waits for data."),
    READ_CORRUPT("read.corrupt", Level.WARN, "A worker sent wrong data; the reader tries again."),
    READ_MANIFEST_KEPT("read.manifest_kept", Level.DEBUG, "Reading a manifest again failed; the reader keeps the old one."),
    CALL_SLOW("call.slow", Level.WARN, "A call to the masters takes long."),
    LEADER_MISSING("leader.missing", Level.WARN, "No leader was found; the masters are asked again."),
    CONNECTION_STALLED("connection.stalled", Level.WARN, "A worker takes no bytes in the middle of a frame; soon the connection closes."),
    SETTING_UNSUITABLE("setting.unsuitable", Level.WARN, "A setting of Spark does not suit Holdfast."),
    COMMIT_LATE("commit.late", Level.DEBUG, "The first reader commits this shuffle.");

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
