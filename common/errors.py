"""Numeric statuses of the wire and the one tree of exceptions, sorted by what the caller should do.

A status number never changes its meaning and is never reused. Decisions are made by status or class, never by text.
`error_for` is the only place that turns a status into an exception, `HoldfastError.status` the only way back.

What is final. `MEANINGS` says of every status what the caller does next, and which of the loops that must not end it
ends all the same. It counts only where a master or worker answered with it (`told`): whatever else comes from an
address, such as the page of a proxy, cut bytes or silence, is no answer to the call and ends nothing. Both languages
have the table: tests/golden/statuses.txt.
"""

from __future__ import annotations

import copy
from enum import Enum, IntEnum, unique
from typing import NamedTuple, Self


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
    FAILED_COPY = 14  #: an earlier write or sync of this copy failed; it is given up for good
    REPLICA_FAILED = 15  #: the other copy could not be written

    UNKNOWN_STREAM = 20  #: no such stream in this incarnation; open again
    UNKNOWN_FILE = 21  #: this worker has no such file or epoch
    NOT_SEALED = 22  #: the file exists but was never sealed

    APPLICATION_GONE = 30  #: unknown or expired application instance
    UNKNOWN_SHUFFLE = 31
    UNKNOWN_GENERATION = 32
    NOT_COMMITTED = 33  #: the long poll ran out before the commit
    NEED_WINNERS = 34  #: nobody has said which attempts won; the asker may
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


class HoldfastError(Exception):
    """Base of everything Holdfast raises. `status` is the number that stands for it on the wire."""

    status: Status = Status.INTERNAL
    #: a master or worker answered with this status; False where this process came to it by itself
    told: bool = False

    def __init__(self, message: str = "", *, status: Status | None = None) -> None:
        super().__init__(message or self.__class__.__name__)
        if status is not None:
            self.status = status

    def reworded(self, message: str) -> Self:
        """Return the same error with another message and no traceback: status, `told` and all else are kept."""
        fresh = copy.copy(self)
        fresh.args = (message,)
        return fresh


class ConfigError(HoldfastError):
    """A setting or argument is wrong; the message says which and what to write instead. CLI exit code 2."""

    status = Status.BAD_REQUEST


class RetryError(HoldfastError):
    """The same call may succeed later, unchanged (with the same call number)."""

    status = Status.UNAVAILABLE


class NotLeaderError(RetryError):
    """Asked a follower. `leader` is the HTTP address "host:port" of the leader, or "" while none is known."""

    status = Status.NOT_LEADER

    def __init__(self, message: str = "", *, leader: str = "", status: Status | None = None) -> None:
        super().__init__(message or f"not the leader; the leader is {leader or 'not known'}", status=status)
        self.leader = leader


class OutcomeUnknownError(RetryError):
    """The command may or may not have been applied; repeating it with the same call number is safe."""

    status = Status.OUTCOME_UNKNOWN


class NotMasterError(RetryError):
    """Something answered, and not as a master of this cluster does: look for the leader elsewhere, and here later."""


class OtherClusterError(NotMasterError):
    """A master of another cluster answered; `cluster_id` is that cluster."""

    def __init__(self, message: str = "", *, cluster_id: str = "", status: Status | None = None) -> None:
        super().__init__(message or f"this is a master of another cluster, {cluster_id}", status=status)
        self.cluster_id = cluster_id


class TokenExpiredError(RetryError):
    """The token that was shown has come to its end; a newer one may do."""

    status = Status.TOKEN_EXPIRED


class RerouteError(HoldfastError):
    """This place will not take or give it; another epoch, worker or stream will."""

    status = Status.HARD_SPLIT


class UnknownStreamError(RerouteError):
    """The worker restarted or dropped the stream: open it again."""

    status = Status.UNKNOWN_STREAM


class GiveUpError(HoldfastError):
    """No retry helps; the task or the job has to decide."""

    status = Status.INTERNAL


class ApplicationGoneError(GiveUpError):
    """The application instance is unknown or its lease ended."""

    status = Status.APPLICATION_GONE


class IncarnationTooLowError(GiveUpError):
    """The masters know this worker by a later start. `lowest` is the lowest incarnation that they accept now."""

    status = Status.INCARNATION_TOO_LOW

    def __init__(self, message: str = "", *, lowest: int = 0, status: Status | None = None) -> None:
        super().__init__(message or f"incarnation too low; the lowest accepted is {lowest}", status=status)
        self.lowest = lowest


class NoRoomError(GiveUpError):
    """No worker or directory has room; the message says which limit was met."""

    status = Status.NO_ROOM


class DfsError(HoldfastError):
    """The DFS store did not do what it was asked. `passing`: it may later, unchanged, and was asked more than once."""

    status = Status.UNAVAILABLE

    def __init__(self, message: str = "", *, passing: bool = False, status: Status | None = None) -> None:
        super().__init__(message, status=status)
        self.passing = passing


class QuotaExceededError(GiveUpError):
    """The application or its user holds as much as it may; the message says which quota, and what holds most."""

    status = Status.QUOTA_EXCEEDED


class UnauthenticatedError(GiveUpError):
    """No token was shown where one is needed, or none of this cluster."""

    status = Status.UNAUTHENTICATED


class ForbiddenError(GiveUpError):
    """The bearer of this token may not do that."""

    status = Status.FORBIDDEN


class ConflictError(GiveUpError):
    """The request contradicts what the masters already hold."""

    status = Status.CONFLICT


class AbortedError(GiveUpError):
    """The generation is committed with another attempt of this map: this one ends without a status."""

    status = Status.COMMITTED


class DataError(GiveUpError):
    """Data is missing or wrong. The message names shuffle, partition, epoch and chunk or region."""

    status = Status.CORRUPT


class DataLostError(DataError):
    """Acknowledged data that no copy has any more."""

    status = Status.DATA_LOST


class CorruptError(DataError):
    """Bytes that do not match their checksum or totals."""

    status = Status.CORRUPT


class ProtocolError(HoldfastError):
    """The other side sent something that is not our protocol, or not our version of it."""

    status = Status.BAD_FRAME


class Next(Enum):
    """What whoever is answered with a status does next."""

    DONE = "done"  #: it was accepted
    AGAIN = "again"  #: the same call may succeed later, unchanged
    ELSEWHERE = "elsewhere"  #: the same call will be refused here; another place, epoch or stream will do
    FINAL = "final"  #: the same call will be refused again


class Loop(Enum):
    """What goes on for ever, whatever comes, unless a status ends it."""

    LEASE = "lease"  #: the renewal of an application's lease
    STANDING = "standing"  #: the heartbeats of a worker; it registers again then
    WORKER = "worker"  #: the registration of a worker that no master ever knew and that holds nothing


class Meaning(NamedTuple):
    """What a status means to the caller."""

    next: Next
    error: type[HoldfastError]
    ends: tuple[Loop, ...] = ()


_AGAIN, _ELSEWHERE = Meaning(Next.AGAIN, RetryError), Meaning(Next.ELSEWHERE, RerouteError)
_FINAL, _PROTOCOL = Meaning(Next.FINAL, GiveUpError), Meaning(Next.FINAL, ProtocolError)

#: The one table of what is final and for whom; every status is in it.
MEANINGS: dict[Status, Meaning] = {
    Status.OK: Meaning(Next.DONE, GiveUpError),
    Status.SOFT_SPLIT: Meaning(Next.DONE, GiveUpError),
    Status.SLOW_DOWN: Meaning(Next.DONE, GiveUpError),
    Status.HARD_SPLIT: _ELSEWHERE,
    Status.STALE_INCARNATION: Meaning(Next.ELSEWHERE, RerouteError, (Loop.STANDING,)),
    Status.SEALED: _ELSEWHERE,
    Status.COMMITTED: Meaning(Next.FINAL, AbortedError),
    Status.FAILED_COPY: _ELSEWHERE,
    Status.REPLICA_FAILED: _ELSEWHERE,
    Status.UNKNOWN_STREAM: Meaning(Next.ELSEWHERE, UnknownStreamError),
    Status.UNKNOWN_FILE: _ELSEWHERE,
    Status.NOT_SEALED: _ELSEWHERE,
    Status.APPLICATION_GONE: Meaning(Next.FINAL, ApplicationGoneError, (Loop.LEASE,)),
    Status.UNKNOWN_SHUFFLE: _FINAL,
    Status.UNKNOWN_GENERATION: _FINAL,
    Status.NOT_COMMITTED: _AGAIN,
    Status.NEED_WINNERS: _FINAL,
    Status.CONFLICT: Meaning(Next.FINAL, ConflictError),
    Status.CALL_TOO_OLD: _FINAL,
    Status.CALL_REUSED: _FINAL,
    Status.GENERATION_CLOSED: _FINAL,
    Status.NO_ROOM: Meaning(Next.FINAL, NoRoomError),
    Status.DISK_FULL: _ELSEWHERE,
    Status.DISK_FAILED: _ELSEWHERE,
    Status.BUSY: _AGAIN,
    Status.QUOTA_EXCEEDED: Meaning(Next.FINAL, QuotaExceededError),
    Status.DATA_LOST: Meaning(Next.FINAL, DataLostError),
    Status.CORRUPT: Meaning(Next.FINAL, CorruptError),
    Status.BAD_ORDER: _FINAL,
    Status.BAD_FRAME: _PROTOCOL,
    Status.BAD_VERSION: _PROTOCOL,
    Status.WRONG_CLUSTER: Meaning(Next.FINAL, ProtocolError, (Loop.WORKER,)),
    Status.UNAUTHENTICATED: Meaning(Next.FINAL, UnauthenticatedError),
    Status.TOO_LARGE: _PROTOCOL,
    Status.BAD_REQUEST: Meaning(Next.FINAL, ProtocolError, (Loop.WORKER,)),
    Status.TOKEN_EXPIRED: Meaning(Next.AGAIN, TokenExpiredError),
    Status.FORBIDDEN: Meaning(Next.FINAL, ForbiddenError),
    Status.NOT_LEADER: Meaning(Next.AGAIN, NotLeaderError),
    Status.UNAVAILABLE: _AGAIN,
    Status.OUTCOME_UNKNOWN: Meaning(Next.AGAIN, OutcomeUnknownError),
    Status.INCARNATION_TOO_LOW: Meaning(Next.FINAL, IncarnationTooLowError, (Loop.STANDING,)),
    Status.UNKNOWN_WORKER: Meaning(Next.FINAL, GiveUpError, (Loop.STANDING,)),
    Status.WORKER_CONFLICT: Meaning(Next.FINAL, ConflictError, (Loop.WORKER,)),
    Status.INTERNAL: _FINAL,
}


def error_for(status: int, message: str = "") -> HoldfastError:
    """Return the exception that stands for a status received from the wire; unknown numbers become INTERNAL."""
    try:
        known = Status(status)
    except ValueError:
        error = HoldfastError(f"unknown status {status}: {message}")
    else:
        error = MEANINGS[known].error(message or known.name, status=known)
    error.told = True
    return error


def ends(error: HoldfastError, loop: Loop) -> bool:
    """Whether this error ends the loop: only a status that a master or worker answered with does."""
    return error.told and loop in MEANINGS[error.status].ends


def worth_another_try(error: HoldfastError) -> bool:
    """Whether the same call may succeed later: unless a master or worker said that it will not."""
    return not error.told or MEANINGS[error.status].next is Next.AGAIN
