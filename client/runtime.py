"""The one event-loop thread of this process, and what lives on it: buffers, connections to workers, control clients.

Rules: made when first needed and made anew after a fork (a pid check: threads do not survive a fork, and sockets
must not be shared), so it works in the forked Python workers of Spark. Everything else in the client that is called
from any thread goes through `run`. Connections are kept for the next reader or writer of this process. Called by
session.py, writer.py and reader.py.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.limits import MIB
from holdfast.common.messages import Hello, Role
from holdfast.common.net.buffers import BufferPool
from holdfast.common.net.frame_client import FrameClient
from holdfast.common.net.tasks import awaited
from holdfast.common.proto import holdfast_pb2 as pb

if TYPE_CHECKING:
    from holdfast.client.fetch_options import FetchOptions
    from holdfast.client.reads import Reads
    from holdfast.client.shuffle import Ticket
    from holdfast.common.net.control import ControlClient
    from holdfast.common.security.shown import Credentials

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Memory for bodies of incoming frames. They are copied and given back at once, so a few frames per connection do.
POOL_BYTES = 64 * MIB
#: A local worker answers in under a millisecond; one that swaps or restarts gets this long.
CONNECT_SECONDS = 5.0
#: How long close() waits for connections to end in order before the process goes.
CLOSE_SECONDS = 2.0


class Runtime:
    """An event loop in a daemon thread. Get the one of this process with `runtime()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-client", daemon=True)
        self._thread.start()
        self._pool: BufferPool | None = None
        self._links: dict[_Link, asyncio.Task[FrameClient]] = {}
        self._controls: dict[tuple[str, _Bearer], ControlClient] = {}
        #: one for each bearer, with the newest of his tokens that anybody here had
        self._credentials: dict[_Bearer, Credentials] = {}
        #: what readers know of the workers, by cluster and settings; see reads_of, which keeps it short
        self.reads: dict[tuple[str, FetchOptions], Reads] = {}

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; from any thread but the loop's own.

        An interrupt of the waiting thread cancels the coroutine.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    # The rest runs on the loop.

    async def link(self, address: str, ticket: Ticket) -> FrameClient:
        """Return a connection to the worker at "host:port", made or shared; raises RetryError if there is none."""
        key = _link(address, ticket)
        task = self._links.get(key)
        if task is None or (task.done() and self.open_link(address, ticket) is None):
            task = self._links[key] = awaited(self._connect(address, ticket))
        return await asyncio.shield(task)

    def open_link(self, address: str, ticket: Ticket) -> FrameClient | None:
        """Return the connection to that worker if there is a living one."""
        task = self._links.get(_link(address, ticket))
        if task is None or not task.done() or task.cancelled() or task.exception() or task.result().closed:
            return None
        return task.result()

    async def _connect(self, address: str, ticket: Ticket) -> FrameClient:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ConfigError(f"not an address of a worker: {address!r}")
        if self._pool is None:
            self._pool = BufferPool(POOL_BYTES)
        hello = Hello(role=Role.CLIENT, cluster_id=ticket.cluster_id)
        shown = self._newest(ticket.credentials)
        if shown is not None and shown.half_over(time.time()):
            await self._renew(ticket, shown)
        return await FrameClient.connect(
            host.strip("[]"), int(port), hello, self._pool, timeout_seconds=CONNECT_SECONDS, shown=shown
        )

    def control(self, endpoints: str, credentials: Credentials | None = None) -> ControlClient:
        """Return the control client for these masters and this bearer; the import is late because it brings gRPC."""
        from holdfast.common.net.control import ControlClient

        shown = self._newest(credentials)
        key = (endpoints, _bearer(shown))
        client = self._controls.get(key)
        if client is None:
            client = self._controls[key] = ControlClient(endpoints, shown)
        return client

    def _newest(self, credentials: Credentials | None) -> Credentials | None:
        """What this process shows for that bearer; the two learn the newer of their tokens."""
        if credentials is None:
            return None
        known = self._credentials.setdefault(_bearer(credentials), credentials)
        known.renew(credentials.token)
        credentials.renew(known.token)
        return known

    async def _renew(self, ticket: Ticket, shown: Credentials) -> None:
        """Get a newer token while the old one is good: a task may go on for longer than the token it began with."""
        request = pb.RenewLeaseRequest(instance=ticket.instance)
        try:
            control = self.control(ticket.endpoints, ticket.credentials)
            reply = await control.call("Shuffles/RenewLease", request, deadline_s=CONNECT_SECONDS)
            shown.renew(reply.token)
        except HoldfastError as error:
            _log.warning("a token could not be renewed; the old one is used", extra={"error": str(error)})

    async def _close(self) -> None:
        links = set(self._links.values())
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and task not in links]
        for task in left:  # of writers and readers that were left behind
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for control in self._controls.values():
            await control.close()
        for link in links:
            link.cancel()
            try:
                (await link).close()
            except (asyncio.CancelledError, HoldfastError):
                continue  # never connected, or gone already

    def close(self) -> None:
        """End connections, loop and thread; the process is about to end."""
        if self.pid != os.getpid() or self.loop.is_closed():
            return
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(CLOSE_SECONDS)
        except TimeoutError:
            pass  # the process ends anyway, and the kernel closes what is left
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_SECONDS)


_Bearer = tuple[int, bytes, str]
_Link = tuple[str, str, _Bearer]


def _bearer(credentials: Credentials | None) -> _Bearer:
    return (0, b"", "") if credentials is None else (*credentials.bearer, credentials.ca_pem)


def _link(address: str, ticket: Ticket) -> _Link:
    return address, ticket.cluster_id, _bearer(ticket.credentials)


_current: Runtime | None = None
_lock = threading.Lock()


def runtime() -> Runtime:
    """Return this process's runtime, made now if there is none yet or the one known is of the process before a fork."""
    global _current  # noqa: PLW0603 - the one piece of state that a process has
    if _current is not None and _current.pid == os.getpid():
        return _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Runtime()
            atexit.register(_current.close)
        return _current


def _forget_lock() -> None:
    """A fork may copy a lock that another thread holds; the child starts with a fresh one."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)
