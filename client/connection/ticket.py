"""What a process needs to act for an application, and what an error of the masters means for its user.

Rules: picklable and light; the token travels sealed (carried.py). Called by sessions, shuffles, readers and writers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from holdfast.client.connection.carried import seal, share_with_active, unseal
from holdfast.client.core.write.revivals import NO_ROOM_GRACE_NS
from holdfast.client.read.fetch_options import FetchOptions
from holdfast.common.errors import HoldfastError, RetryError, TokenExpiredError
from holdfast.common.ids import Instance
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Status


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a process needs to act for an application: the masters, and the lease."""

    endpoints: str
    cluster_id: str
    instance: Instance
    holder: bytes
    #: how long pushes wait while no worker has room
    no_room_grace_ns: int = NO_ROOM_GRACE_NS
    #: how readers choose between copies
    fetch: FetchOptions = FetchOptions()
    #: what a secured cluster wants to see
    credentials: Credentials | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """With the token sealed: what is pickled is kept, shown and copied by others."""
        credentials, carried = self.credentials, None
        if credentials is not None:
            share_with_active()
            carried = credentials.ca_pem, seal(credentials.token)
        plain = self.endpoints, self.cluster_id, self.instance, self.holder, self.no_room_grace_ns, self.fetch
        return _unpickled, (plain, carried)


def _unpickled(plain: tuple[Any, ...], carried: tuple[str, bytes] | None) -> Ticket:
    """The ticket whose fields these are. Raises ConfigError where its token cannot be opened."""
    ticket = Ticket(*plain)
    return ticket if carried is None else replace(ticket, credentials=Credentials(carried[0], unseal(carried[1])))


def explain(error: HoldfastError, endpoints: str) -> str:
    """Return an error of the control plane as a sentence with what to do."""
    if error.status is Status.APPLICATION_GONE:
        return (
            f"{error}. Its session was closed (read a shuffle inside its session's `with` block), its process was "
            "stopped for longer than its lease, an administrator dropped it, or its name is another one"
        )
    if isinstance(error, RetryError) and not isinstance(error, TokenExpiredError):
        return f"{error}{'' if str(error).endswith('?') else '.'} Try `holdfast status --masters {endpoints}`."
    return str(error)
