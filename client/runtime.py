"""The one event-loop thread of this process, and what lives on it: buffers, connections to workers, control clients.

Rules: made when first needed and made anew after a fork (a pid check: threads do not survive a fork, and sockets
must not be shared), so it works in the forked Python workers of Spark. Everything else in the client that is called
from any thread goes through `run`. Connections are kept for the next reader or writer of this process. Called by
session.py, writer.py and reader.py.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.ids import RaftIndex
from holdfast.common.limits import MIB
from holdfast.common.messages import Hello, Role
from holdfast.common.net.buffers import BufferPool
from holdfast.common.net.frame_client import FrameClient

if TYPE_CHECKING:
    from holdfast.client.fetch_options import FetchOptions
    from holdfast.client.reads import Reads
    from holdfast.common.net.control import ControlClient

T = TypeVar("T")

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
        self._links: dict[tuple[str, str], asyncio.Task[FrameClient]] = {}
        self._controls: dict[str, ControlClient] = {}
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

    async def link(self, address: str, cluster_id: str, raft_index: int = 0) -> FrameClient:
        """Return a connection to the worker at "host:port", made or shared; raises RetryError if there is none."""
        key = (address, cluster_id)
        task = self._links.get(key)
        if task is None or (task.done() and self.open_link(address, cluster_id) is None):
            task = self._links[key] = asyncio.create_task(self._connect(address, cluster_id, raft_index))
        return await asyncio.shield(task)

    def open_link(self, address: str, cluster_id: str) -> FrameClient | None:
        """Return the connection to that worker if there is a living one."""
        task = self._links.get((address, cluster_id))
        if task is None or not task.done() or task.cancelled() or task.exception() or task.result().closed:
            return None
        return task.result()

    async def _connect(self, address: str, cluster_id: str, raft_index: int) -> FrameClient:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ConfigError(f"not an address of a worker: {address!r}")
        if self._pool is None:
            self._pool = BufferPool(POOL_BYTES)
        hello = Hello(role=Role.CLIENT, cluster_id=cluster_id, raft_index=RaftIndex(raft_index))
        return await FrameClient.connect(
            host.strip("[]"), int(port), hello, self._pool, timeout_seconds=CONNECT_SECONDS
        )

    def control(self, endpoints: str) -> ControlClient:
        """Return the control client for these masters; the import is late because it brings gRPC."""
        from holdfast.common.net.control import ControlClient

        client = self._controls.get(endpoints)
        if client is None:
            client = self._controls[endpoints] = ControlClient(endpoints)
        return client

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
