package org.apache.spark.shuffle.holdfast.wire;

import java.util.Map;

/**
 * Answers of workers and masters; the wire carries the number, whose meaning never changes, and decisions
 * are made by it. Made from common/wire.toml by python -m tests.write_tables; change it there.
 */
public final class Status {
    public static final int OK = 0;
    /** Accepted; ask for the next epoch. */
    public static final int SOFT_SPLIT = 1;
    /** Accepted; shrink the window. */
    public static final int SLOW_DOWN = 2;
    /** Not accepted; revive and send again with the same batch number. */
    public static final int HARD_SPLIT = 10;
    /** The push names an earlier or later start of this worker. */
    public static final int STALE_INCARNATION = 11;
    /** The epoch or file accepts nothing more. */
    public static final int SEALED = 12;
    /** The masters have said the final word on this generation. */
    public static final int COMMITTED = 13;
    /** An earlier write or sync of this copy failed; the copy is not used any more. */
    public static final int FAILED_COPY = 14;
    /** The other copy could not be written. */
    public static final int REPLICA_FAILED = 15;
    /** This copy lacks batches that were acknowledged; other copies have them. */
    public static final int INCOMPLETE = 16;
    /** No such stream in this incarnation; open again. */
    public static final int UNKNOWN_STREAM = 20;
    /** This worker has no such file or epoch. */
    public static final int UNKNOWN_FILE = 21;
    /** The file exists but was never sealed. */
    public static final int NOT_SEALED = 22;
    /** Unknown or expired application instance. */
    public static final int APPLICATION_GONE = 30;
    public static final int UNKNOWN_SHUFFLE = 31;
    public static final int UNKNOWN_GENERATION = 32;
    /** The long poll ran out before the commit. */
    public static final int NOT_COMMITTED = 33;
    /** The winning attempts are not known; the caller may name them. */
    public static final int NEED_WINNERS = 34;
    /** Contradicts what was registered or committed before. */
    public static final int CONFLICT = 35;
    /** The answer table has forgotten this client's call; it was not applied. */
    public static final int CALL_TOO_OLD = 36;
    /** Same client id and call number, another request. */
    public static final int CALL_REUSED = 37;
    /** The generation cannot be opened now. */
    public static final int GENERATION_CLOSED = 38;
    /** No worker or directory can take it. */
    public static final int NO_ROOM = 50;
    public static final int DISK_FULL = 51;
    public static final int DISK_FAILED = 52;
    /** A bound is reached for the moment; try again. */
    public static final int BUSY = 53;
    /** The application or its user holds as much as it may. */
    public static final int QUOTA_EXCEEDED = 54;
    /** Acknowledged data that no copy has any more. */
    public static final int DATA_LOST = 70;
    /** Bytes do not match their checksum or totals. */
    public static final int CORRUPT = 71;
    /** Partitions of a region came unsorted, or regions out of turn. */
    public static final int BAD_ORDER = 72;
    public static final int BAD_FRAME = 90;
    public static final int BAD_VERSION = 91;
    public static final int WRONG_CLUSTER = 92;
    public static final int UNAUTHENTICATED = 93;
    public static final int TOO_LARGE = 94;
    public static final int BAD_REQUEST = 95;
    /** Was good; show a newer one. */
    public static final int TOKEN_EXPIRED = 96;
    /** The token is good, and not for this. */
    public static final int FORBIDDEN = 97;
    public static final int NOT_LEADER = 110;
    /** No leader, or no quorum, or the server is starting or stopping. */
    public static final int UNAVAILABLE = 111;
    /** May or may not have been applied; repeat with the same call number. */
    public static final int OUTCOME_UNKNOWN = 112;
    public static final int INCARNATION_TOO_LOW = 113;
    public static final int UNKNOWN_WORKER = 114;
    /** Name or directory belongs to another worker. */
    public static final int WORKER_CONFLICT = 115;
    public static final int INTERNAL = 120;

    /** What a caller does next after a status. */
    public enum Next {
        /** It was accepted. */
        DONE,
        /** The same call may succeed later, unchanged. */
        AGAIN,
        /** The same call will be refused here; another place, epoch or stream will do. */
        ELSEWHERE,
        /** The same call will be refused again. */
        FINAL
    }

    /** What a push session does about a batch, or about all batches of a frame with that status. */
    public enum PushDisposition {
        /** The worker has it. */
        KEPT,
        /** Another place will take it: revive. */
        MOVE,
        /** Not now: send it again to the same place, later and less at a time. */
        AGAIN,
        /** It did not arrive as it was sent: send it again to the same place, then elsewhere. */
        DAMAGED,
        /** It is unknown whether the worker has the batch: send it again to the same place, then elsewhere. */
        UNKNOWN,
        /** No worker takes it; the task has to decide. */
        STOP
    }

    /** What a reader makes of an answer to its request for files. */
    public enum FetchDisposition {
        /** The connection was refused or lost, or the worker restarted, is busy, or needs a newer token. */
        NO_ANSWER,
        /** The data is not there or not right: another copy is asked. */
        MISSING,
        /** It cannot be read now, such as from a DFS that is not mounted; it is not lost. */
        UNREADABLE,
        /** No copy will do; the task has to decide. */
        STOP
    }

    private record Meaning(
            String name, Next next, PushDisposition push, FetchDisposition fetch, boolean endsLease,
            boolean rerun) {}

    private static final Map<Integer, Meaning> MEANINGS = Map.ofEntries(
            Map.entry(OK, new Meaning(
                    "OK", Next.DONE, PushDisposition.KEPT, FetchDisposition.STOP, false, false)),
            Map.entry(SOFT_SPLIT, new Meaning(
                    "SOFT_SPLIT", Next.DONE, PushDisposition.KEPT, FetchDisposition.STOP, false, false)),
            Map.entry(SLOW_DOWN, new Meaning(
                    "SLOW_DOWN", Next.DONE, PushDisposition.KEPT, FetchDisposition.STOP, false, false)),
            Map.entry(HARD_SPLIT, new Meaning(
                    "HARD_SPLIT", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.STOP, false, false)),
            Map.entry(STALE_INCARNATION, new Meaning(
                    "STALE_INCARNATION", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.NO_ANSWER, false, false)),
            Map.entry(SEALED, new Meaning(
                    "SEALED", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.STOP, false, false)),
            Map.entry(COMMITTED, new Meaning(
                    "COMMITTED", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(FAILED_COPY, new Meaning(
                    "FAILED_COPY", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.MISSING, false, false)),
            Map.entry(REPLICA_FAILED, new Meaning(
                    "REPLICA_FAILED", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.STOP, false, false)),
            Map.entry(INCOMPLETE, new Meaning(
                    "INCOMPLETE", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.MISSING, false, false)),
            Map.entry(UNKNOWN_STREAM, new Meaning(
                    "UNKNOWN_STREAM", Next.ELSEWHERE, PushDisposition.STOP, FetchDisposition.NO_ANSWER, false, false)),
            Map.entry(UNKNOWN_FILE, new Meaning(
                    "UNKNOWN_FILE", Next.ELSEWHERE, PushDisposition.STOP, FetchDisposition.MISSING, false, false)),
            Map.entry(NOT_SEALED, new Meaning(
                    "NOT_SEALED", Next.ELSEWHERE, PushDisposition.STOP, FetchDisposition.MISSING, false, false)),
            Map.entry(APPLICATION_GONE, new Meaning(
                    "APPLICATION_GONE", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, true, false)),
            Map.entry(UNKNOWN_SHUFFLE, new Meaning(
                    "UNKNOWN_SHUFFLE", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, true)),
            Map.entry(UNKNOWN_GENERATION, new Meaning(
                    "UNKNOWN_GENERATION", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, true)),
            Map.entry(NOT_COMMITTED, new Meaning(
                    "NOT_COMMITTED", Next.AGAIN, PushDisposition.AGAIN, FetchDisposition.STOP, false, false)),
            Map.entry(NEED_WINNERS, new Meaning(
                    "NEED_WINNERS", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(CONFLICT, new Meaning(
                    "CONFLICT", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(CALL_TOO_OLD, new Meaning(
                    "CALL_TOO_OLD", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(CALL_REUSED, new Meaning(
                    "CALL_REUSED", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(GENERATION_CLOSED, new Meaning(
                    "GENERATION_CLOSED", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(NO_ROOM, new Meaning(
                    "NO_ROOM", Next.FINAL, PushDisposition.MOVE, FetchDisposition.STOP, false, false)),
            Map.entry(DISK_FULL, new Meaning(
                    "DISK_FULL", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.STOP, false, false)),
            Map.entry(DISK_FAILED, new Meaning(
                    "DISK_FAILED", Next.ELSEWHERE, PushDisposition.MOVE, FetchDisposition.UNREADABLE, false, false)),
            Map.entry(BUSY, new Meaning(
                    "BUSY", Next.AGAIN, PushDisposition.AGAIN, FetchDisposition.NO_ANSWER, false, false)),
            Map.entry(QUOTA_EXCEEDED, new Meaning(
                    "QUOTA_EXCEEDED", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(DATA_LOST, new Meaning(
                    "DATA_LOST", Next.FINAL, PushDisposition.STOP, FetchDisposition.MISSING, false, true)),
            Map.entry(CORRUPT, new Meaning(
                    "CORRUPT", Next.FINAL, PushDisposition.DAMAGED, FetchDisposition.MISSING, false, true)),
            Map.entry(BAD_ORDER, new Meaning(
                    "BAD_ORDER", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(BAD_FRAME, new Meaning(
                    "BAD_FRAME", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(BAD_VERSION, new Meaning(
                    "BAD_VERSION", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(WRONG_CLUSTER, new Meaning(
                    "WRONG_CLUSTER", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(UNAUTHENTICATED, new Meaning(
                    "UNAUTHENTICATED", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(TOO_LARGE, new Meaning(
                    "TOO_LARGE", Next.FINAL, PushDisposition.STOP, FetchDisposition.MISSING, false, false)),
            Map.entry(BAD_REQUEST, new Meaning(
                    "BAD_REQUEST", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(TOKEN_EXPIRED, new Meaning(
                    "TOKEN_EXPIRED", Next.AGAIN, PushDisposition.UNKNOWN, FetchDisposition.NO_ANSWER, false, false)),
            Map.entry(FORBIDDEN, new Meaning(
                    "FORBIDDEN", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(NOT_LEADER, new Meaning(
                    "NOT_LEADER", Next.AGAIN, PushDisposition.AGAIN, FetchDisposition.STOP, false, false)),
            Map.entry(UNAVAILABLE, new Meaning(
                    "UNAVAILABLE", Next.AGAIN, PushDisposition.UNKNOWN, FetchDisposition.NO_ANSWER, false, false)),
            Map.entry(OUTCOME_UNKNOWN, new Meaning(
                    "OUTCOME_UNKNOWN", Next.AGAIN, PushDisposition.UNKNOWN, FetchDisposition.STOP, false, false)),
            Map.entry(INCARNATION_TOO_LOW, new Meaning(
                    "INCARNATION_TOO_LOW", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(UNKNOWN_WORKER, new Meaning(
                    "UNKNOWN_WORKER", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(WORKER_CONFLICT, new Meaning(
                    "WORKER_CONFLICT", Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false)),
            Map.entry(INTERNAL, new Meaning(
                    "INTERNAL", Next.FINAL, PushDisposition.MOVE, FetchDisposition.MISSING, false, false)));

    private static final Meaning UNKNOWN =
            new Meaning(null, Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false);

    private Status() {}

    private static Meaning of(int status) {
        return MEANINGS.getOrDefault(status, UNKNOWN);
    }

    /** The name of a status, for messages to people. */
    public static String name(int status) {
        return known(status) ? of(status).name() : "unknown status " + status;
    }

    /** Whether this program has the number. */
    public static boolean known(int status) {
        return MEANINGS.containsKey(status);
    }

    /** What to do next; a number from the future is FINAL, as INTERNAL is. */
    public static Next next(int status) {
        return of(status).next();
    }

    /** Whether the same call may succeed later, unchanged (a RetryError in Python). */
    public static boolean again(int status) {
        return next(status) == Next.AGAIN;
    }

    /** What a push does about it; what is not known cannot be helped by another place. */
    public static PushDisposition push(int status) {
        return of(status).push();
    }

    /** What a reader makes of it. */
    public static FetchDisposition fetch(int status) {
        return of(status).fetch();
    }

    /** Whether the renewal of a lease ends for it, where a master says it. */
    public static boolean endsLease(int status) {
        return of(status).endsLease();
    }

    /** Whether a task that reads reports a fetch failure for it, so that maps run again. */
    public static boolean rerunsMaps(int status) {
        return of(status).rerun();
    }

    /** Whether it is the token that was refused for good: no other try, worker or master changes that. */
    public static boolean barred(int status) {
        return status == UNAUTHENTICATED || status == FORBIDDEN;
    }
}
