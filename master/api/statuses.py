"""How a status of common/statuses.py is sent over gRPC and over HTTP (Connect).

Callers decide by the number; the code only makes generic tools (load balancers, curl, grpcurl) say something sensible.
"""

from __future__ import annotations

from holdfast.common.errors import HoldfastError, IncarnationTooLowError, NotLeaderError, ProtocolError
from holdfast.common.net.methods import LEADER_KEY, LOWEST_KEY, STATUS_KEY
from holdfast.common.statuses import MEANINGS, Status

#: Connect's code, which is gRPC's name in lower case -> HTTP status.
_HTTP = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
}


def code_of(status: int) -> str:
    """Return Connect's code for a status, such as "unavailable"."""
    return MEANINGS[Status(status)].code


def http_status_of(code: str) -> int:
    """Return the HTTP status of a code."""
    return _HTTP[code]


def bad_request(message: str) -> ProtocolError:
    """The error of an invalid request."""
    return ProtocolError(message, status=Status.BAD_REQUEST)


def metadata_of(error: HoldfastError) -> dict[str, str]:
    """Return what is sent beside the message: the status number, and the leader or the lowest incarnation."""
    headers = {STATUS_KEY: str(int(error.status))}
    if isinstance(error, NotLeaderError) and error.leader:
        headers[LEADER_KEY] = error.leader
    if isinstance(error, IncarnationTooLowError):
        headers[LOWEST_KEY] = str(error.lowest)
    return headers
