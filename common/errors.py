"""The one tree of exceptions, sorted by what the caller should do.

Decisions are made by status (statuses.py) or class, never by text.
`error_for` is the only place that turns a status into an exception, `HoldfastError.status` the only way back.

What is final. `MEANINGS` says of every status what the caller does next, and which of the loops that must not end it
ends all the same. It counts only where a master or worker answered with it (`from_server`): whatever else comes from an
address, such as the page of a proxy, cut bytes or silence, is no answer to the call and ends nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

from holdfast.common.statuses import MEANINGS, Loop, Next, Status


class HoldfastError(Exception):
    """Base of everything Holdfast raises. `status` is its number on the wire, `code` its stable name, `docs` its place
    in the documentation."""

    status: Status = Status.INTERNAL
    #: a master or worker answered with this status; False where this process came to it by itself
    from_server: bool = False

    def __init__(self, message: str = "", *, status: Status | None = None) -> None:
        super().__init__(message or self.__class__.__name__)
        if status is not None:
            self.status = status

    @property
    def code(self) -> str:
        """What to compare and to search for, such as "NO_ROOM": the name of the status; the class's if that says more,
        as "StartError"."""
        own, status = type(self), self.status
        says_all = ERRORS[status] is own and status is not Status.INTERNAL
        return status.name if self.from_server or says_all or status is not own.status else own.__name__

    @property
    def docs(self) -> str:
        """Where the documentation says what it means and what to do."""
        return f"docs/operate/troubleshooting.md#{self.code}"

    def reworded(self, message: str) -> Self:
        """Return the same error with another message and no traceback: status, `from_server` and all else are kept."""
        fresh = copy.copy(self)
        fresh.args = (message,)
        return fresh


class ConfigError(HoldfastError):
    """A setting or argument is wrong; the message names it and a correct value."""

    status = Status.BAD_REQUEST


class RetryError(HoldfastError):
    """The same call may succeed later, unchanged."""

    status = Status.UNAVAILABLE


class NotLeaderError(RetryError):
    """Asked a follower. `leader` is the HTTP address "host:port" of the leader, or "" while none is known."""

    status = Status.NOT_LEADER

    def __init__(self, message: str = "", *, leader: str = "", status: Status | None = None) -> None:
        super().__init__(message or f"not the leader; the leader is {leader or 'not known'}", status=status)
        self.leader = leader


class OutcomeUnknownError(RetryError):
    """The command may have been applied; repeating it with the same call number is safe."""

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
    """A retry does not help; the task or the job has to handle it."""

    status = Status.INTERNAL


class ApplicationGoneError(GiveUpError):
    """The application instance is unknown or its lease expired."""

    status = Status.APPLICATION_GONE


class IncarnationTooLowError(GiveUpError):
    """The masters have a later start of this worker. `lowest` is the lowest incarnation that they accept now."""

    status = Status.INCARNATION_TOO_LOW

    def __init__(self, message: str = "", *, lowest: int = 0, status: Status | None = None) -> None:
        super().__init__(message or f"incarnation too low; the lowest accepted is {lowest}", status=status)
        self.lowest = lowest


class NoRoomError(GiveUpError):
    """No worker or directory has room; the message names the limit."""

    status = Status.NO_ROOM


class DfsError(HoldfastError):
    """The DFS store did not do what it was asked. `passing`: it may later, unchanged, and was asked more than once."""

    status = Status.UNAVAILABLE

    def __init__(self, message: str = "", *, passing: bool = False, status: Status | None = None) -> None:
        super().__init__(message, status=status)
        self.passing = passing


class QuotaExceededError(GiveUpError):
    """Application or user reached a quota; the message names it and the largest holder."""

    status = Status.QUOTA_EXCEEDED


class UnauthenticatedError(GiveUpError):
    """No token was shown where one is needed, or none of this cluster."""

    status = Status.UNAUTHENTICATED


class ForbiddenError(GiveUpError):
    """The bearer of this token may not do that."""

    status = Status.FORBIDDEN


class ConflictError(GiveUpError):
    """The request contradicts state that the masters already have."""

    status = Status.CONFLICT


class AbortedError(GiveUpError):
    """The generation was committed with another attempt of this map: this attempt has no status."""

    status = Status.COMMITTED


class DataError(GiveUpError):
    """Data is missing or wrong. The message names shuffle, partition, epoch and chunk or region."""

    status = Status.CORRUPT


class DataLostError(DataError):
    """No copy has the acknowledged data any more."""

    status = Status.DATA_LOST


class CorruptError(DataError):
    """Data does not match its checksum or totals."""

    status = Status.CORRUPT


class ProtocolError(HoldfastError):
    """The peer sent data of another protocol, or of another version."""

    status = Status.BAD_FRAME


def _classes(of: type[HoldfastError]) -> Iterator[tuple[str, type[HoldfastError]]]:
    yield of.__name__, of
    for each in of.__subclasses__():
        yield from _classes(each)


_BY_NAME = dict(_classes(HoldfastError))
#: The class of each status.
ERRORS = {status: _BY_NAME[meaning.error] for status, meaning in MEANINGS.items()}


def error_for(status: int, message: str = "") -> HoldfastError:
    """Return the exception of a status received from the wire; unknown numbers become INTERNAL."""
    try:
        known = Status(status)
    except ValueError:
        error = HoldfastError(f"unknown status {status}: {message}")
    else:
        error = ERRORS[known](message or known.name, status=known)
    error.from_server = True
    return error


def ends(error: HoldfastError, loop: Loop) -> bool:
    """Whether this error ends the loop: only a status that a master or worker answered with does."""
    return error.from_server and loop in MEANINGS[error.status].ends


def worth_another_try(error: HoldfastError) -> bool:
    """Whether the same call may succeed later: unless a master or worker said that it will not."""
    return not error.from_server or MEANINGS[error.status].next is Next.AGAIN
