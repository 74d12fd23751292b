"""Classifies answers from a master's address: the one place that decides whether a master sent them.

Rules: every answer of a master names its cluster (CLUSTER_KEY), and a refusal its status as well. Whatever comes
without them, or from another cluster, says nothing about the call: NotMasterError, which is worth another try. Only
what a master of the cluster said is `from_server` (common/errors.py has what that ends). Called by http_client.py,
transports.py, control.py and client/connection/direct.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from holdfast.common.errors import (
    HoldfastError,
    IncarnationTooLowError,
    NotLeaderError,
    NotMasterError,
    OtherClusterError,
    error_for,
)
from holdfast.common.net.methods import CLUSTER_KEY, LEADER_KEY, LOWEST_KEY, STATUS_KEY, quoted_cluster
from holdfast.common.statuses import MEANINGS, Next
from holdfast.common.strict_json import read_json

_OK = 200
#: So much of the answer of another program is shown.
_SHOWN_CHARS = 200


def read_http(address: str, status: int, headers: Mapping[str, str], body: bytes, cluster_id: str) -> bytes:
    """Return the reply in an answer over HTTP, or raise what it means. `headers` have keys in lower case;
    `cluster_id` is the cluster that is meant, "" if any will do."""
    good = status == _OK and CLUSTER_KEY in headers
    message = "" if good else _message(body).strip() or f"HTTP status {status}"
    check_cluster(address, headers, cluster_id, message)
    if good:
        return body
    raise refusal(address, headers, message)


def check_cluster(address: str, headers: Mapping[str, str], cluster_id: str, message: str) -> None:
    """Raise NotMasterError unless a master of the cluster said this."""
    if CLUSTER_KEY not in headers:
        raise not_master(address, message)
    cluster = unquote(headers[CLUSTER_KEY])[:_SHOWN_CHARS]
    if quoted_cluster(cluster_id) not in ("", headers[CLUSTER_KEY]):
        raise OtherClusterError(f"{address}: is a master of another cluster, {cluster}", cluster_id=cluster)


def refusal(address: str, headers: Mapping[str, str], message: str) -> HoldfastError:
    """Return the error that a master's metadata or headers (keys in lower case) describe."""
    number = headers.get(STATUS_KEY, "")
    if not (number.isascii() and number.isdigit()):
        return not_master(address, message)
    error = error_for(int(number), message)
    if MEANINGS[error.status].next is Next.DONE:
        return not_master(address, f"it refuses with status {number}")
    if isinstance(error, NotLeaderError):
        error.leader = headers.get(LEADER_KEY, "")
    if isinstance(error, IncarnationTooLowError):
        lowest = headers.get(LOWEST_KEY, "")
        error.lowest = int(lowest) if lowest.isdigit() else 0
    return error


def not_master(address: str, reason: str) -> NotMasterError:
    """Somebody else answers there."""
    return NotMasterError(f"{address}: answers, but is no master: {reason[:_SHOWN_CHARS]}")


def _message(body: bytes) -> str:
    """The message of a Connect error body; the body itself where it is none."""
    text = body[:2000].decode("utf-8", "replace")
    try:
        error = read_json(body[:2000])
    except ValueError:
        return text
    return str(error.get("message", text)) if isinstance(error, dict) else text
