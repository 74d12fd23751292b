"""The one event-loop thread of this process, and what lives on it: buffers, connections to workers, control clients.

Rules: made when first needed and made anew after a fork (a pid check: threads do not survive a fork, and sockets
must not be shared), so it works in the forked Python workers of Spark. Everything else in the client that is called
from any thread goes through `run`. Connections (peers.py) are kept for the next reader or writer of this process, and
counted by sessions: with the last session of an application they go. Tasks have tickets and no session; of those no
more than TICKETS_MAX applications are kept.
At the end of the process the loop stops; what exit handlers still ask is done in their own thread. Called by
session.py, writer.py and reader.py.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client.connection.peers import Peers, PeersKey, Renewer, key_of
from holdfast.common.errors import HoldfastError, RetryError, TokenExpiredError, UnauthenticatedError
from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.system.tasks import background

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from holdfast.client.connection.ticket import Ticket

T = TypeVar("T")

#: Memory for bodies of incoming frames. They are copied and given back at once, so a few frames per connection do.
POOL_BYTES = 64 * MIB
#: Applications whose connections are kept though no session of theirs is open here.
TICKETS_MAX = 4
#: How long close() waits for connections to end in order before the process exits.
CLOSE_SECONDS = 2.0


class Runtime:
    """An event loop in a daemon thread. Get the one of this process with `runtime()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-client", daemon=True)
        self._thread.start()
        self._pool: BufferPool | None = None
        #: least recently used first
        self._peers: OrderedDict[PeersKey, Peers] = OrderedDict()
        self._guard = threading.Lock()
        #: held by the exit handler that turns the loop
        self._here = threading.Lock()
        #: the loop turns no more, but for what is asked with `run`
        self.ended = False
        #: what others keep as long as this process: it is made anew after a fork; each under a key of its own
        self.kept: dict[object, dict[Any, Any]] = {}

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; from any thread but the loop's own.

        An interrupt of the waiting thread cancels the coroutine. Once the loop's thread has ended, which is when the
        process does, the coroutine runs in the thread that asks: the exit handler of a program closes its session.
        """
        if self.ended:
            return self._run_here(work)
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run_here(self, work: Coroutine[Any, Any, T]) -> T:
        with self._here:
            if self._thread.is_alive():  # it hangs, and the process ends without it
                work.close()
                raise RetryError("this process is ending")
            return self.loop.run_until_complete(work)

    # Sessions.

    def open(self, ticket: Ticket, renewer: Renewer) -> Peers:
        """A session begins: what connects its application is kept until `release`. `renewer` gets a new token."""
        with self._guard:
            peers = self._of(ticket)
            peers.sessions[ticket.holder] = renewer
            return peers

    async def release(self, ticket: Ticket) -> None:
        """A session is over; with the last one of its application all that is not in use is closed, the rest later."""
        with self._guard:
            peers = self._of(ticket)
            peers.sessions.pop(ticket.holder, None)
            peers.released = True
            unheld = {key: each for key, each in self._peers.items() if each.released and not each.sessions}
            for key, each in unheld.items():
                if each.idle:
                    del self._peers[key]
        for each in unheld.values():
            await each.close_idle()

    def peers(self, ticket: Ticket) -> Peers:
        """Return what connects this process to the ticket's cluster under its name."""
        with self._guard:
            return self._of(ticket)

    def _of(self, ticket: Ticket) -> Peers:
        key = key_of(ticket)
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = Peers(ticket, self._buffers)
            self._drop_unused()
        found.saw(ticket.credentials)
        self._peers.move_to_end(key)
        return found

    def _drop_unused(self) -> None:
        unheld = [key for key, each in self._peers.items() if not each.sessions]
        for key in unheld[: max(0, len(unheld) - TICKETS_MAX)]:
            if self._peers[key].idle:
                dropped = self._peers.pop(key)
                self.loop.call_soon_threadsafe(background, dropped.close_idle())

    def _buffers(self) -> BufferPool:
        if self._pool is None:
            self._pool = BufferPool(POOL_BYTES)
        return self._pool

    # The rest runs on the loop.

    async def call(self, ticket: Ticket, method: str, request: Message, deadline_s: float, waiting: str = "") -> Any:
        """Call the leader as the ticket's application; raises as ControlClient.call.

        A token that ended, since this process slept, is no reason to fail where a session here can get another one.
        """
        peers = self.peers(ticket)
        shown = peers.credentials.token if peers.credentials is not None else ""
        end = self.loop.time() + deadline_s
        try:
            return await peers.control().call(method, request, deadline_s, waiting)
        except (TokenExpiredError, UnauthenticatedError):
            if not await peers.show_anew(shown, end - self.loop.time()):
                raise
        return await peers.control().call(method, request, end - self.loop.time(), waiting)

    async def _close(self) -> None:
        keep = {task for peers in self._peers.values() for task in peers.connecting}
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and task not in keep]
        for task in left:  # of writers and readers that were left behind
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for peers in self._peers.values():
            # A session that is still open may be closed by an exit handler: the masters are asked once more then.
            await peers.close(masters=not peers.sessions)

    def close(self) -> None:
        """End connections, loop and thread; the process is about to end."""
        if self.pid != os.getpid() or self.ended:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(CLOSE_SECONDS)
        except (TimeoutError, HoldfastError):
            pass  # the process ends anyway, and the kernel closes what is left
        self.ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_SECONDS)


_current: Runtime | None = None
_lock = threading.Lock()


def runtime() -> Runtime:
    """Return this process's runtime, created at first use, and again after a fork."""
    global _current  # noqa: PLW0603 - the one piece of state that a process has
    if _current is not None and _current.pid == os.getpid():
        return _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Runtime()
        return _current


def _forget_lock() -> None:
    """A fork may copy a lock that another thread holds; the child starts with a fresh one."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _close_at_exit() -> None:
    if _current is not None:
        _current.close()


#: With the import: exit handlers run in the opposite order, so those of programs mostly run before this one.
atexit.register(_close_at_exit)
