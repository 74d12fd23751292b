package org.apache.spark.shuffle.holdfast.push;

import org.apache.spark.shuffle.holdfast.wire.Status;

/** What a session does about a pushed batch, or about a frame whose status stands for all of them: one table. Pure. */
enum Fate {
    /** The worker has it. */
    KEPT,
    /** Another place will take it: revive. */
    MOVE,
    /** Not now: send it again to the same place, later and less at a time. */
    AGAIN,
    /** It did not arrive as it was sent: send it again to the same place. */
    DAMAGED,
    /** Nobody knows whether the worker has it: send it again to the same place, then elsewhere. */
    UNKNOWN,
    /** Nobody will take it; the task has to decide. */
    STOP;

    /** Returns what to do about a status; what the table does not name cannot be helped by another place. */
    static Fate of(int status) {
        return switch (status) {
            case Status.OK, Status.SOFT_SPLIT, Status.SLOW_DOWN -> KEPT;
            // INTERNAL: a mistake over there; another worker may do better.
            case Status.HARD_SPLIT, Status.STALE_INCARNATION, Status.SEALED, Status.FAILED_COPY, Status.REPLICA_FAILED,
                    Status.DISK_FULL, Status.DISK_FAILED, Status.NO_ROOM, Status.INTERNAL -> MOVE;
            // Of masters: a commit is under way, and says COMMITTED or opens the way again in the end.
            case Status.BUSY, Status.NOT_COMMITTED, Status.NOT_LEADER -> AGAIN;
            case Status.CORRUPT -> DAMAGED;
            // TOKEN_EXPIRED: the worker closed the connection, and another one shows a newer token.
            case Status.UNAVAILABLE, Status.OUTCOME_UNKNOWN, Status.TOKEN_EXPIRED -> UNKNOWN;
            default -> STOP;
        };
    }
}
