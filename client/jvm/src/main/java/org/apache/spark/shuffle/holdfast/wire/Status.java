package org.apache.spark.shuffle.holdfast.wire;

import java.util.Map;

/**
 * Answers of workers and masters; the wire carries the number, and its meaning never changes. The numbers of
 * {@code common/errors.py}. Decisions are made by number, never by text.
 */
public final class Status {
    public static final int OK = 0;
    /** Accepted; ask for the next epoch. */
    public static final int SOFT_SPLIT = 1;
    /** Accepted; shrink the window. */
    public static final int SLOW_DOWN = 2;

    /** Not accepted; revive and send again with the same batch number. */
    public static final int HARD_SPLIT = 10;
    public static final int STALE_INCARNATION = 11;
    public static final int SEALED = 12;
    /** The masters have said the final word on this generation. */
    public static final int COMMITTED = 13;
    public static final int FAILED_COPY = 14;
    public static final int REPLICA_FAILED = 15;

    public static final int UNKNOWN_STREAM = 20;
    public static final int UNKNOWN_FILE = 21;
    public static final int NOT_SEALED = 22;

    public static final int APPLICATION_GONE = 30;
    public static final int UNKNOWN_SHUFFLE = 31;
    public static final int UNKNOWN_GENERATION = 32;
    /** The long poll ran out before the commit. */
    public static final int NOT_COMMITTED = 33;
    /** Nobody has said which attempts won; the asker may. */
    public static final int NEED_WINNERS = 34;
    public static final int CONFLICT = 35;
    public static final int CALL_TOO_OLD = 36;
    public static final int CALL_REUSED = 37;
    public static final int GENERATION_CLOSED = 38;

    public static final int NO_ROOM = 50;
    public static final int DISK_FULL = 51;
    public static final int DISK_FAILED = 52;
    /** A bound is reached for the moment; try again. */
    public static final int BUSY = 53;
    /** The application or its user holds as much as it may. */
    public static final int QUOTA_EXCEEDED = 54;

    /** Acknowledged data that no copy has any more. */
    public static final int DATA_LOST = 70;
    public static final int CORRUPT = 71;
    public static final int BAD_ORDER = 72;

    public static final int BAD_FRAME = 90;
    public static final int BAD_VERSION = 91;
    public static final int WRONG_CLUSTER = 92;
    /** No token was shown, or none of this cluster. */
    public static final int UNAUTHENTICATED = 93;
    public static final int TOO_LARGE = 94;
    public static final int BAD_REQUEST = 95;
    /** Was good; show a newer one. */
    public static final int TOKEN_EXPIRED = 96;
    /** The token is good, and not for this. */
    public static final int FORBIDDEN = 97;

    public static final int NOT_LEADER = 110;
    public static final int UNAVAILABLE = 111;
    /** May or may not have been applied; repeat with the same call number. */
    public static final int OUTCOME_UNKNOWN = 112;
    public static final int INCARNATION_TOO_LOW = 113;
    public static final int UNKNOWN_WORKER = 114;
    public static final int WORKER_CONFLICT = 115;

    public static final int INTERNAL = 120;

    /** What whoever is answered with a status does next. */
    public enum Next {
        /** It was accepted. */
        DONE,
        /** The same call may succeed later, unchanged. */
        AGAIN,
        /** Another place, epoch or stream will do. */
        ELSEWHERE,
        /** The same call will be refused again. */
        FINAL
    }

    private record Meaning(String name, Next next, boolean endsLease) {
        Meaning(String name, Next next) {
            this(name, next, false);
        }
    }

    /** The table of {@code common/errors.py}; tests/golden/statuses.txt has it for both languages. */
    private static final Map<Integer, Meaning> MEANINGS = Map.ofEntries(
            Map.entry(OK, new Meaning("OK", Next.DONE)),
            Map.entry(SOFT_SPLIT, new Meaning("SOFT_SPLIT", Next.DONE)),
            Map.entry(SLOW_DOWN, new Meaning("SLOW_DOWN", Next.DONE)),
            Map.entry(HARD_SPLIT, new Meaning("HARD_SPLIT", Next.ELSEWHERE)),
            Map.entry(STALE_INCARNATION, new Meaning("STALE_INCARNATION", Next.ELSEWHERE)),
            Map.entry(SEALED, new Meaning("SEALED", Next.ELSEWHERE)),
            Map.entry(COMMITTED, new Meaning("COMMITTED", Next.FINAL)),
            Map.entry(FAILED_COPY, new Meaning("FAILED_COPY", Next.ELSEWHERE)),
            Map.entry(REPLICA_FAILED, new Meaning("REPLICA_FAILED", Next.ELSEWHERE)),
            Map.entry(UNKNOWN_STREAM, new Meaning("UNKNOWN_STREAM", Next.ELSEWHERE)),
            Map.entry(UNKNOWN_FILE, new Meaning("UNKNOWN_FILE", Next.ELSEWHERE)),
            Map.entry(NOT_SEALED, new Meaning("NOT_SEALED", Next.ELSEWHERE)),
            Map.entry(APPLICATION_GONE, new Meaning("APPLICATION_GONE", Next.FINAL, true)),
            Map.entry(UNKNOWN_SHUFFLE, new Meaning("UNKNOWN_SHUFFLE", Next.FINAL)),
            Map.entry(UNKNOWN_GENERATION, new Meaning("UNKNOWN_GENERATION", Next.FINAL)),
            Map.entry(NOT_COMMITTED, new Meaning("NOT_COMMITTED", Next.AGAIN)),
            Map.entry(NEED_WINNERS, new Meaning("NEED_WINNERS", Next.FINAL)),
            Map.entry(CONFLICT, new Meaning("CONFLICT", Next.FINAL)),
            Map.entry(CALL_TOO_OLD, new Meaning("CALL_TOO_OLD", Next.FINAL)),
            Map.entry(CALL_REUSED, new Meaning("CALL_REUSED", Next.FINAL)),
            Map.entry(GENERATION_CLOSED, new Meaning("GENERATION_CLOSED", Next.FINAL)),
            Map.entry(NO_ROOM, new Meaning("NO_ROOM", Next.FINAL)),
            Map.entry(DISK_FULL, new Meaning("DISK_FULL", Next.ELSEWHERE)),
            Map.entry(DISK_FAILED, new Meaning("DISK_FAILED", Next.ELSEWHERE)),
            Map.entry(BUSY, new Meaning("BUSY", Next.AGAIN)),
            Map.entry(QUOTA_EXCEEDED, new Meaning("QUOTA_EXCEEDED", Next.FINAL)),
            Map.entry(DATA_LOST, new Meaning("DATA_LOST", Next.FINAL)),
            Map.entry(CORRUPT, new Meaning("CORRUPT", Next.FINAL)),
            Map.entry(BAD_ORDER, new Meaning("BAD_ORDER", Next.FINAL)),
            Map.entry(BAD_FRAME, new Meaning("BAD_FRAME", Next.FINAL)),
            Map.entry(BAD_VERSION, new Meaning("BAD_VERSION", Next.FINAL)),
            Map.entry(WRONG_CLUSTER, new Meaning("WRONG_CLUSTER", Next.FINAL)),
            Map.entry(UNAUTHENTICATED, new Meaning("UNAUTHENTICATED", Next.FINAL)),
            Map.entry(TOO_LARGE, new Meaning("TOO_LARGE", Next.FINAL)),
            Map.entry(BAD_REQUEST, new Meaning("BAD_REQUEST", Next.FINAL)),
            Map.entry(TOKEN_EXPIRED, new Meaning("TOKEN_EXPIRED", Next.AGAIN)),
            Map.entry(FORBIDDEN, new Meaning("FORBIDDEN", Next.FINAL)),
            Map.entry(NOT_LEADER, new Meaning("NOT_LEADER", Next.AGAIN)),
            Map.entry(UNAVAILABLE, new Meaning("UNAVAILABLE", Next.AGAIN)),
            Map.entry(OUTCOME_UNKNOWN, new Meaning("OUTCOME_UNKNOWN", Next.AGAIN)),
            Map.entry(INCARNATION_TOO_LOW, new Meaning("INCARNATION_TOO_LOW", Next.FINAL)),
            Map.entry(UNKNOWN_WORKER, new Meaning("UNKNOWN_WORKER", Next.FINAL)),
            Map.entry(WORKER_CONFLICT, new Meaning("WORKER_CONFLICT", Next.FINAL)),
            Map.entry(INTERNAL, new Meaning("INTERNAL", Next.FINAL)));

    private Status() {}

    /** The name of a status, for messages to people. */
    public static String name(int status) {
        Meaning meaning = MEANINGS.get(status);
        return meaning == null ? "unknown status " + status : meaning.name();
    }

    /** Whether this program knows the number. */
    public static boolean known(int status) {
        return MEANINGS.containsKey(status);
    }

    /** What to do next; a number from the future is FINAL, as INTERNAL is. */
    public static Next next(int status) {
        Meaning meaning = MEANINGS.get(status);
        return meaning == null ? Next.FINAL : meaning.next();
    }

    /** Whether the same call may succeed later, unchanged (a RetryError in Python). */
    public static boolean again(int status) {
        return next(status) == Next.AGAIN;
    }

    /** Whether the renewal of a lease ends for it, where a master says it. */
    public static boolean endsLease(int status) {
        Meaning meaning = MEANINGS.get(status);
        return meaning != null && meaning.endsLease();
    }

    /** Whether it is the token that was refused for good: no other try, worker or master changes that. */
    public static boolean barred(int status) {
        return status == UNAUTHENTICATED || status == FORBIDDEN;
    }
}
