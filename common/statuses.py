"""Numeric statuses of the wire, and what each means to whom.

Made from common/wire.toml by `python -m tests.write_tables`; change it there.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique
from typing import NamedTuple


@unique
class Status(IntEnum):
    """Answers on the data plane and the control plane; the wire carries the number."""

    OK = 0
    SOFT_SPLIT = 1  #: accepted; ask for the next epoch
    SLOW_DOWN = 2  #: accepted; shrink the window
    HARD_SPLIT = 10  #: not accepted; revive and send again with the same batch number
    STALE_INCARNATION = 11  #: the push names an earlier or later start of this worker
    SEALED = 12  #: the epoch or file accepts nothing more
    COMMITTED = 13  #: the masters have said the final word on this generation
    FAILED_COPY = 14  #: an earlier write or sync of this copy failed; the copy is not used any more
    REPLICA_FAILED = 15  #: the other copy could not be written
    INCOMPLETE = 16  #: this copy lacks batches that were acknowledged; other copies have them
    UNKNOWN_STREAM = 20  #: no such stream in this incarnation; open again
    UNKNOWN_FILE = 21  #: this worker has no such file or epoch
    NOT_SEALED = 22  #: the file exists but was never sealed
    APPLICATION_GONE = 30  #: unknown or expired application instance
    UNKNOWN_SHUFFLE = 31
    UNKNOWN_GENERATION = 32
    NOT_COMMITTED = 33  #: the long poll ran out before the commit
    NEED_WINNERS = 34  #: the winning attempts are not known; the caller may name them
    CONFLICT = 35  #: contradicts what was registered or committed before
    CALL_TOO_OLD = 36  #: the answer table has forgotten this client's call; it was not applied
    CALL_REUSED = 37  #: same client id and call number, another request
    GENERATION_CLOSED = 38  #: the generation cannot be opened now
    NO_ROOM = 50  #: no worker or directory can take it
    DISK_FULL = 51
    DISK_FAILED = 52
    BUSY = 53  #: a bound is reached for the moment; try again
    QUOTA_EXCEEDED = 54  #: the application or its user holds as much as it may
    DATA_LOST = 70  #: acknowledged data that no copy has any more
    CORRUPT = 71  #: bytes do not match their checksum or totals
    BAD_ORDER = 72  #: partitions of a region came unsorted, or regions out of turn
    BAD_FRAME = 90
    BAD_VERSION = 91
    WRONG_CLUSTER = 92
    UNAUTHENTICATED = 93
    TOO_LARGE = 94
    BAD_REQUEST = 95
    TOKEN_EXPIRED = 96  #: was good; show a newer one
    FORBIDDEN = 97  #: the token is good, and not for this
    NOT_LEADER = 110
    UNAVAILABLE = 111  #: no leader, or no quorum, or the server is starting or stopping
    OUTCOME_UNKNOWN = 112  #: may or may not have been applied; repeat with the same call number
    INCARNATION_TOO_LOW = 113
    UNKNOWN_WORKER = 114
    WORKER_CONFLICT = 115  #: name or directory belongs to another worker
    INTERNAL = 120


@unique
class Next(Enum):
    """What a caller does next after a status."""

    DONE = "it was accepted"
    AGAIN = "the same call may succeed later, unchanged"
    ELSEWHERE = "the same call will be refused here; another place, epoch or stream will do"
    FINAL = "the same call will be refused again"


@unique
class Loop(Enum):
    """What continues for ever unless a status ends it."""

    LEASE = "the renewal of an application's lease"
    HEARTBEATS = "the heartbeats of a worker; it registers again then"
    REGISTRATION = "the registration of a worker that is unknown to the masters and has no data"


@unique
class PushDisposition(Enum):
    """What a push session does about a batch, or about all batches of a frame with that status."""

    KEPT = "the worker has it"
    MOVE = "another place will take it: revive"
    AGAIN = "not now: send it again to the same place, later and less at a time"
    DAMAGED = "it did not arrive as it was sent: send it again to the same place, then elsewhere"
    UNKNOWN = "it is unknown whether the worker has the batch: send it again to the same place, then elsewhere"
    STOP = "no worker takes it; the task has to decide"


@unique
class FetchDisposition(Enum):
    """What a reader makes of an answer to its request for files."""

    NO_ANSWER = "the connection was refused or lost, or the worker restarted, is busy, or needs a newer token"
    MISSING = "the data is not there or not right: another copy is asked"
    UNREADABLE = "it cannot be read now, such as from a DFS that is not mounted; it is not lost"
    STOP = "no copy will do; the task has to decide"


class Meaning(NamedTuple):
    """What a status means. `error` is the name of its class in errors.py, `code` what Connect calls it;
    `moves_map`: the writer of a MAP file starts again on the next worker."""

    next: Next
    error: str
    code: str
    push: PushDisposition
    moves_map: bool
    fetch: FetchDisposition
    ends: tuple[Loop, ...]


#: Every status is in it.
MEANINGS: dict[Status, Meaning] = {
    Status.OK: Meaning(Next.DONE, "GiveUpError", "internal", PushDisposition.KEPT, False, FetchDisposition.STOP, ()),
    Status.SOFT_SPLIT: Meaning(
        Next.DONE, "GiveUpError", "internal", PushDisposition.KEPT, False, FetchDisposition.STOP, ()
    ),
    Status.SLOW_DOWN: Meaning(
        Next.DONE, "GiveUpError", "internal", PushDisposition.KEPT, False, FetchDisposition.STOP, ()
    ),
    Status.HARD_SPLIT: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.STOP, ()
    ),
    Status.STALE_INCARNATION: Meaning(
        Next.ELSEWHERE,
        "RerouteError",
        "internal",
        PushDisposition.MOVE,
        True,
        FetchDisposition.NO_ANSWER,
        (Loop.HEARTBEATS,),
    ),
    Status.SEALED: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.STOP, ()
    ),
    Status.COMMITTED: Meaning(
        Next.FINAL, "AbortedError", "failed_precondition", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.FAILED_COPY: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.MISSING, ()
    ),
    Status.REPLICA_FAILED: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.STOP, ()
    ),
    Status.INCOMPLETE: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.MISSING, ()
    ),
    Status.UNKNOWN_STREAM: Meaning(
        Next.ELSEWHERE, "UnknownStreamError", "internal", PushDisposition.STOP, False, FetchDisposition.NO_ANSWER, ()
    ),
    Status.UNKNOWN_FILE: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.STOP, True, FetchDisposition.MISSING, ()
    ),
    Status.NOT_SEALED: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.STOP, True, FetchDisposition.MISSING, ()
    ),
    Status.APPLICATION_GONE: Meaning(
        Next.FINAL,
        "ApplicationGoneError",
        "not_found",
        PushDisposition.STOP,
        False,
        FetchDisposition.STOP,
        (Loop.LEASE,),
    ),
    Status.UNKNOWN_SHUFFLE: Meaning(
        Next.FINAL, "GiveUpError", "not_found", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.UNKNOWN_GENERATION: Meaning(
        Next.FINAL, "GiveUpError", "not_found", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.NOT_COMMITTED: Meaning(
        Next.AGAIN, "RetryError", "failed_precondition", PushDisposition.AGAIN, False, FetchDisposition.STOP, ()
    ),
    Status.NEED_WINNERS: Meaning(
        Next.FINAL, "GiveUpError", "failed_precondition", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.CONFLICT: Meaning(
        Next.FINAL, "ConflictError", "already_exists", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.CALL_TOO_OLD: Meaning(
        Next.FINAL, "GiveUpError", "failed_precondition", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.CALL_REUSED: Meaning(
        Next.FINAL, "GiveUpError", "already_exists", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.GENERATION_CLOSED: Meaning(
        Next.FINAL, "GiveUpError", "failed_precondition", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.NO_ROOM: Meaning(
        Next.FINAL, "NoRoomError", "resource_exhausted", PushDisposition.MOVE, True, FetchDisposition.STOP, ()
    ),
    Status.DISK_FULL: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.STOP, ()
    ),
    Status.DISK_FAILED: Meaning(
        Next.ELSEWHERE, "RerouteError", "internal", PushDisposition.MOVE, True, FetchDisposition.UNREADABLE, ()
    ),
    Status.BUSY: Meaning(
        Next.AGAIN, "RetryError", "unavailable", PushDisposition.AGAIN, True, FetchDisposition.NO_ANSWER, ()
    ),
    Status.QUOTA_EXCEEDED: Meaning(
        Next.FINAL, "QuotaExceededError", "resource_exhausted", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.DATA_LOST: Meaning(
        Next.FINAL, "DataLostError", "internal", PushDisposition.STOP, False, FetchDisposition.MISSING, ()
    ),
    Status.CORRUPT: Meaning(
        Next.FINAL, "CorruptError", "internal", PushDisposition.DAMAGED, True, FetchDisposition.MISSING, ()
    ),
    Status.BAD_ORDER: Meaning(
        Next.FINAL, "GiveUpError", "internal", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.BAD_FRAME: Meaning(
        Next.FINAL, "ProtocolError", "invalid_argument", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.BAD_VERSION: Meaning(
        Next.FINAL, "ProtocolError", "invalid_argument", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.WRONG_CLUSTER: Meaning(
        Next.FINAL,
        "ProtocolError",
        "failed_precondition",
        PushDisposition.STOP,
        False,
        FetchDisposition.STOP,
        (Loop.REGISTRATION,),
    ),
    Status.UNAUTHENTICATED: Meaning(
        Next.FINAL, "UnauthenticatedError", "unauthenticated", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.TOO_LARGE: Meaning(
        Next.FINAL, "ProtocolError", "resource_exhausted", PushDisposition.STOP, False, FetchDisposition.MISSING, ()
    ),
    Status.BAD_REQUEST: Meaning(
        Next.FINAL,
        "ProtocolError",
        "invalid_argument",
        PushDisposition.STOP,
        False,
        FetchDisposition.STOP,
        (Loop.REGISTRATION,),
    ),
    Status.TOKEN_EXPIRED: Meaning(
        Next.AGAIN,
        "TokenExpiredError",
        "unauthenticated",
        PushDisposition.UNKNOWN,
        True,
        FetchDisposition.NO_ANSWER,
        (),
    ),
    Status.FORBIDDEN: Meaning(
        Next.FINAL, "ForbiddenError", "permission_denied", PushDisposition.STOP, False, FetchDisposition.STOP, ()
    ),
    Status.NOT_LEADER: Meaning(
        Next.AGAIN, "NotLeaderError", "unavailable", PushDisposition.AGAIN, False, FetchDisposition.STOP, ()
    ),
    Status.UNAVAILABLE: Meaning(
        Next.AGAIN, "RetryError", "unavailable", PushDisposition.UNKNOWN, True, FetchDisposition.NO_ANSWER, ()
    ),
    Status.OUTCOME_UNKNOWN: Meaning(
        Next.AGAIN, "OutcomeUnknownError", "unavailable", PushDisposition.UNKNOWN, False, FetchDisposition.STOP, ()
    ),
    Status.INCARNATION_TOO_LOW: Meaning(
        Next.FINAL,
        "IncarnationTooLowError",
        "failed_precondition",
        PushDisposition.STOP,
        False,
        FetchDisposition.STOP,
        (Loop.HEARTBEATS,),
    ),
    Status.UNKNOWN_WORKER: Meaning(
        Next.FINAL, "GiveUpError", "not_found", PushDisposition.STOP, False, FetchDisposition.STOP, (Loop.HEARTBEATS,)
    ),
    Status.WORKER_CONFLICT: Meaning(
        Next.FINAL,
        "ConflictError",
        "already_exists",
        PushDisposition.STOP,
        False,
        FetchDisposition.STOP,
        (Loop.REGISTRATION,),
    ),
    Status.INTERNAL: Meaning(
        Next.FINAL, "GiveUpError", "internal", PushDisposition.MOVE, True, FetchDisposition.MISSING, ()
    ),
}
