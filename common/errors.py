"""Numeric statuses of the wire and the one tree of exceptions, sorted by what the caller should do.

A status number never changes its meaning and is never reused. Decisions are made by status or class, never by text.
`error_for` is the only place that turns a status into an exception, `HoldfastError.status` the only way back.
"""

from __future__ import annotations

from enum import IntEnum, unique


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

    def __init__(self, message: str = "", *, status: Status | None = None) -> None:
        super().__init__(message or self.__class__.__name__)
        if status is not None:
            self.status = status


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


_CLASS_OF: dict[Status, type[HoldfastError]] = {
    Status.HARD_SPLIT: RerouteError,
    Status.STALE_INCARNATION: RerouteError,
    Status.SEALED: RerouteError,
    Status.FAILED_COPY: RerouteError,
    Status.REPLICA_FAILED: RerouteError,
    Status.UNKNOWN_STREAM: UnknownStreamError,
    Status.UNKNOWN_FILE: RerouteError,
    Status.NOT_SEALED: RerouteError,
    Status.DISK_FULL: RerouteError,
    Status.DISK_FAILED: RerouteError,
    Status.APPLICATION_GONE: ApplicationGoneError,
    Status.NO_ROOM: NoRoomError,
    Status.QUOTA_EXCEEDED: QuotaExceededError,
    Status.INCARNATION_TOO_LOW: IncarnationTooLowError,
    Status.COMMITTED: AbortedError,
    Status.CONFLICT: ConflictError,
    Status.WORKER_CONFLICT: ConflictError,
    Status.DATA_LOST: DataLostError,
    Status.CORRUPT: CorruptError,
    Status.BUSY: RetryError,
    Status.NOT_COMMITTED: RetryError,
    Status.UNAVAILABLE: RetryError,
    Status.NOT_LEADER: NotLeaderError,
    Status.OUTCOME_UNKNOWN: OutcomeUnknownError,
    Status.BAD_FRAME: ProtocolError,
    Status.BAD_VERSION: ProtocolError,
    Status.WRONG_CLUSTER: ProtocolError,
    Status.UNAUTHENTICATED: UnauthenticatedError,
    Status.TOKEN_EXPIRED: TokenExpiredError,
    Status.FORBIDDEN: ForbiddenError,
    Status.TOO_LARGE: ProtocolError,
    Status.BAD_REQUEST: ProtocolError,
}


def error_for(status: int, message: str = "") -> HoldfastError:
    """Return the exception that stands for a status received from the wire; unknown numbers become INTERNAL."""
    try:
        known = Status(status)
    except ValueError:
        return HoldfastError(f"unknown status {status}: {message}")
    return _CLASS_OF.get(known, GiveUpError)(message or known.name, status=known)
