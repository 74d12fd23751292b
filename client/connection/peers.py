"""What connects a process to a cluster as one application: a control client, links to workers, and the token shown.

Rules: one for each masters' endpoints, cluster and bearer, shared by all sessions, writers and readers of a process
that have them, and kept by runtime.py, which says when it ends. On the loop, but for `saw` and the making. Called by
runtime.py and session.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.client.connection.push_credit import WorkerLink
from holdfast.common.errors import ConfigError, HoldfastError, RetryError, TokenExpiredError, UnauthenticatedError
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.ids import NO_WORKER
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import awaited
from holdfast.common.system.waiting import said

if TYPE_CHECKING:
    from holdfast.client.connection.ticket import Ticket
    from holdfast.common.net.control import ControlClient
    from holdfast.common.security.credentials import Credentials

#: A local worker answers in under a millisecond; one that swaps or restarts gets this long.
CONNECT_SECONDS = 5.0

#: Of a session: returns another token of its application within so many seconds, or raises HoldfastError.
Renewer = Callable[[float], Awaitable[str]]
PeersKey = tuple[str, str, tuple[int, bytes, str]]


def key_of(ticket: Ticket) -> PeersKey:
    """Who shares connections: the same over renewals of a token."""
    credentials = ticket.credentials
    return (
        ticket.endpoints,
        ticket.cluster_id,
        (0, b"", "") if credentials is None else (*credentials.bearer, credentials.ca_pem),
    )


class Peers:
    """See above."""

    def __init__(self, ticket: Ticket, buffers: Callable[[], BufferPool]) -> None:
        self._ticket = ticket
        self._buffers = buffers
        self._control: ControlClient | None = None
        self._links: dict[str, asyncio.Task[WorkerLink]] = {}
        self._turn = asyncio.Lock()
        #: the newest token that anybody here had; None without security
        self.credentials: Credentials | None = ticket.credentials
        #: open sessions by their holder, with how each gets another token
        self.sessions: dict[bytes, Renewer] = {}
        #: whether a session of this application was open here
        self.released = False

    def saw(self, credentials: Credentials | None) -> None:
        """Somebody came with these: both learn the newer token."""
        if self.credentials is not None and credentials is not None:
            self.credentials.renew(credentials.token)
            credentials.renew(self.credentials.token)

    @property
    def connecting(self) -> list[asyncio.Task[WorkerLink]]:
        """The tasks in which links are made, and have been."""
        return list(self._links.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is under way on any of these connections."""
        return (self._control is None or self._control.idle) and all(map(_is_idle, self._links.values()))

    def control(self) -> ControlClient:
        """Return the control client; the import is late, since what only reads files needs none."""
        from holdfast.common.net.control import ControlClient

        if self._control is None:
            self._control = ControlClient(self._ticket.endpoints, self.credentials, cluster_id=self._ticket.cluster_id)
        return self._control

    async def link(self, address: str) -> WorkerLink:
        """Return a connection to the worker at "host:port", made or shared; raises RetryError if that fails."""
        task = self._links.get(address)
        if task is None or (task.done() and self.open_link(address) is None):
            task = self._links[address] = awaited(self._connect(address))
        return await asyncio.shield(task)

    def open_link(self, address: str) -> WorkerLink | None:
        """Return the connection to that worker if there is a living one."""
        task = self._links.get(address)
        if task is None or not task.done() or task.cancelled() or task.exception() or task.result().closed:
            return None
        return task.result()

    async def _connect(self, address: str) -> WorkerLink:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ConfigError(f"not an address of a worker: {address!r}")
        hello = Hello(role=Role.CLIENT, cluster_id=self._ticket.cluster_id)
        if self.credentials is not None and self.credentials.half_over(time.time()):
            with contextlib.suppress(TimeoutError):  # the old one is good still
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._renew(self.credentials)
        link = await WorkerLink.connect(
            host.strip("[]"),
            int(port),
            hello,
            self._buffers(),
            timeout_seconds=CONNECT_SECONDS,
            credentials=self.credentials,
        )
        if link.hello.worker == NO_WORKER:
            # It identifies itself once: kept, this connection would be useless for ever.
            link.abort()
            raise RetryError(f"the worker at {address} has not registered yet")
        return link

    async def _renew(self, credentials: Credentials) -> None:
        """Get a newer token while the old one is good: a task may go on for longer than the token it began with."""
        request = pb.RenewLeaseRequest(instance=self._ticket.instance)
        old = credentials.token
        try:
            reply = await self.control().call("Shuffles/RenewLease", request, deadline_s=CONNECT_SECONDS)
            credentials.renew(reply.token)
        except (TokenExpiredError, UnauthenticatedError):
            await self.show_anew(old, CONNECT_SECONDS)
        except HoldfastError as error:
            log_event(LogEvent.TOKEN_RENEWAL_FAILED, reason=error)

    async def show_anew(self, refused: str, seconds: float) -> bool:
        """Have a session get another token than the one that was refused, within so many seconds for all of them;
        return whether there is one."""
        if self.credentials is None:
            return False
        with contextlib.suppress(TimeoutError), said("another token for this application"):
            async with asyncio.timeout(seconds), self._turn:
                for renewer in list(self.sessions.values()) if self.credentials.token == refused else ():
                    try:
                        self.credentials.renew(await renewer(seconds))
                    except HoldfastError as error:
                        log_event(LogEvent.TOKEN_REPLACEMENT_FAILED, reason=error)
        return self.credentials.token != refused

    async def close_idle(self) -> None:
        """Close the connections that are not in use."""
        if self._control is not None and self._control.idle:
            control, self._control = self._control, None
            await control.close()
        for address, task in list(self._links.items()):
            if _is_idle(task):
                del self._links[address]
                _close(task)

    async def close(self, *, masters: bool) -> None:
        """Close every link, and with `masters` the control client, too."""
        links, self._links = self._links, {}
        for task in links.values():
            task.cancel()
            await asyncio.wait((task,))
            _close(task)
        if masters and self._control is not None:
            await self._control.close()


def _is_idle(task: asyncio.Task[WorkerLink]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().idle


def _close(task: asyncio.Task[WorkerLink]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
