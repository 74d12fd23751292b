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

    private static final Map<Integer, String> NAMES = Map.ofEntries(
            Map.entry(OK, "OK"), Map.entry(SOFT_SPLIT, "SOFT_SPLIT"), Map.entry(SLOW_DOWN, "SLOW_DOWN"),
            Map.entry(HARD_SPLIT, "HARD_SPLIT"), Map.entry(STALE_INCARNATION, "STALE_INCARNATION"),
            Map.entry(SEALED, "SEALED"), Map.entry(COMMITTED, "COMMITTED"), Map.entry(FAILED_COPY, "FAILED_COPY"),
            Map.entry(REPLICA_FAILED, "REPLICA_FAILED"), Map.entry(UNKNOWN_STREAM, "UNKNOWN_STREAM"),
            Map.entry(UNKNOWN_FILE, "UNKNOWN_FILE"), Map.entry(NOT_SEALED, "NOT_SEALED"),
            Map.entry(APPLICATION_GONE, "APPLICATION_GONE"), Map.entry(UNKNOWN_SHUFFLE, "UNKNOWN_SHUFFLE"),
            Map.entry(UNKNOWN_GENERATION, "UNKNOWN_GENERATION"), Map.entry(NOT_COMMITTED, "NOT_COMMITTED"),
            Map.entry(NEED_WINNERS, "NEED_WINNERS"), Map.entry(CONFLICT, "CONFLICT"),
            Map.entry(CALL_TOO_OLD, "CALL_TOO_OLD"), Map.entry(CALL_REUSED, "CALL_REUSED"),
            Map.entry(GENERATION_CLOSED, "GENERATION_CLOSED"), Map.entry(NO_ROOM, "NO_ROOM"),
            Map.entry(DISK_FULL, "DISK_FULL"), Map.entry(DISK_FAILED, "DISK_FAILED"), Map.entry(BUSY, "BUSY"),
            Map.entry(QUOTA_EXCEEDED, "QUOTA_EXCEEDED"),
            Map.entry(DATA_LOST, "DATA_LOST"), Map.entry(CORRUPT, "CORRUPT"), Map.entry(BAD_ORDER, "BAD_ORDER"),
            Map.entry(BAD_FRAME, "BAD_FRAME"), Map.entry(BAD_VERSION, "BAD_VERSION"),
            Map.entry(WRONG_CLUSTER, "WRONG_CLUSTER"), Map.entry(UNAUTHENTICATED, "UNAUTHENTICATED"),
            Map.entry(TOO_LARGE, "TOO_LARGE"), Map.entry(BAD_REQUEST, "BAD_REQUEST"),
            Map.entry(TOKEN_EXPIRED, "TOKEN_EXPIRED"), Map.entry(FORBIDDEN, "FORBIDDEN"),
            Map.entry(NOT_LEADER, "NOT_LEADER"), Map.entry(UNAVAILABLE, "UNAVAILABLE"),
            Map.entry(OUTCOME_UNKNOWN, "OUTCOME_UNKNOWN"), Map.entry(INCARNATION_TOO_LOW, "INCARNATION_TOO_LOW"),
            Map.entry(UNKNOWN_WORKER, "UNKNOWN_WORKER"), Map.entry(WORKER_CONFLICT, "WORKER_CONFLICT"),
            Map.entry(INTERNAL, "INTERNAL"));

    private Status() {}

    /** The name of a status, for messages to people. */
    public static String name(int status) {
        return NAMES.getOrDefault(status, "unknown status " + status);
    }

    /** Whether this program knows the number. */
    public static boolean known(int status) {
        return NAMES.containsKey(status);
    }

    /** Whether the same call may succeed later, unchanged (a RetryError in Python). */
    public static boolean again(int status) {
        return status == BUSY || status == NOT_COMMITTED || status == UNAVAILABLE || status == NOT_LEADER
                || status == OUTCOME_UNKNOWN || status == TOKEN_EXPIRED;
    }

    /** Whether it is the token that was refused for good: no other try, worker or master changes that. */
    public static boolean barred(int status) {
        return status == UNAUTHENTICATED || status == FORBIDDEN;
    }
}
