"""The leader's data connections to workers, for seals and copies, and to announce shuffles that are placed there.

Rules: one connection a worker, opened once for all users, closed when this master stops leading; the least used
ones are closed beyond a bound. A connection with many answers that have no waiter any more is closed, too: it has room
for so many. Who answers must be the start of the worker that the state names: at the same address another worker may
listen, or a later start that has not registered yet, which counts as busy. Runs in the event loop. Called by asking.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial

from holdfast.common.errors import ProtocolError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_messages import Registered, Restore, Seal, SealAnswer
from holdfast.common.ids import RaftIndex
from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.master.core.state.records import Worker

LINKS_MAX = 1_024
#: Seals without an answer on one connection, and how many of them may have no waiter any more.
INFLIGHT_MAX = 1_024
ABANDONED_MAX = 256

#: Number, incarnation and address of a worker.
_Start = tuple[int, int, str]


class Links:
    """Connections by worker number."""

    def __init__(self, cluster_id: str, credentials: CredentialsProvider | None = None) -> None:
        """`credentials`: None without security."""
        self._cluster_id = cluster_id
        self._credentials = credentials
        self._pool = BufferPool(FRAME_BODY_BYTES_MAX)  # answers have no bodies, so it stays empty
        self._links: OrderedDict[int, FrameClient] = OrderedDict()
        #: by worker, seals on its connection that have no waiter any more
        self._abandoned: dict[int, int] = {}
        #: connections that are being opened
        self._opening: dict[_Start, asyncio.Task[FrameClient]] = {}

    async def seal(self, worker: Worker, seal: Seal) -> SealAnswer:
        """Return the answer of this start of the worker. Raises RetryError if it cannot be asked."""
        return await self._sealed(worker, FrameType.SEAL, seal.encode(), seal.raft_index)

    async def restore(self, worker: Worker, restore: Restore) -> SealAnswer:
        """Have this start of the worker make copies, and return its answer. Raises RetryError if it cannot be asked."""
        return await self._sealed(worker, FrameType.RESTORE, restore.encode(), restore.raft_index)

    async def _sealed(self, worker: Worker, kind: FrameType, meta: bytes, index: RaftIndex) -> SealAnswer:
        link = await self._link(worker, index)
        try:
            reply = await link.request(kind, meta)
        except asyncio.CancelledError:
            self._abandon(worker.id, link)
            raise
        return SealAnswer.decode(reply.meta)

    async def announce(self, worker: Worker, registered: Registered, index: RaftIndex) -> None:
        """Announce a shuffle that is placed there to this start of the worker. Raises RetryError if that fails."""
        link = await self._link(worker, index)
        await link.request(FrameType.REGISTERED, registered.encode())

    def close(self) -> None:
        """Close every connection; requests under way fail."""
        for link in self._links.values():
            link.abort()
        self._links.clear()
        self._opening.clear()
        self._abandoned.clear()

    def _abandon(self, worker: int, link: FrameClient) -> None:
        """Nobody waits for a seal any more; the worker may answer it still, or never."""
        if self._links.get(worker) is not link:
            return
        self._abandoned[worker] = self._abandoned.get(worker, 0) + 1
        if self._abandoned[worker] >= ABANDONED_MAX:
            link.abort()

    async def _link(self, worker: Worker, index: RaftIndex) -> FrameClient:
        link = self._links.get(worker.id)
        if link is not None and not link.closed and _is(link, worker):
            self._links.move_to_end(worker.id)
            return link
        start = (worker.id, worker.incarnation, worker.data_address)
        opening = self._opening.get(start)
        if opening is None:
            opening = self._opening[start] = awaited(self._connect(worker, index))
            opening.add_done_callback(partial(self._opened, start))
        # All callers wait for this attempt: one after the other they would wait for as many time-outs.
        return await asyncio.shield(opening)

    def _opened(self, start: _Start, opening: asyncio.Task[FrameClient]) -> None:
        wanted = self._opening.get(start) is opening
        if wanted:
            del self._opening[start]
        if opening.cancelled() or opening.exception() is not None:
            return
        link, worker = opening.result(), start[0]
        if not wanted:  # this master is no longer the leader
            link.abort()
            return
        older = self._links.pop(worker, None)
        if older is not None:
            older.abort()
        self._links[worker] = link
        self._abandoned.pop(worker, None)
        if len(self._links) > LINKS_MAX:
            oldest, link_of_oldest = self._links.popitem(last=False)
            self._abandoned.pop(oldest, None)
            link_of_oldest.abort()

    async def _connect(self, worker: Worker, index: RaftIndex) -> FrameClient:
        host, _, port = worker.data_address.rpartition(":")
        hello = Hello(role=Role.MASTER, raft_index=index, cluster_id=self._cluster_id)
        try:
            link = await FrameClient.connect(
                host.strip("[]"), int(port), hello, self._pool, inflight_max=INFLIGHT_MAX, credentials=self._credentials
            )
        except ValueError as error:
            raise ProtocolError(f'worker "{worker.name}" has no data address: {worker.data_address}') from error
        if not _is(link, worker):
            link.abort()
            found = link.hello
            if found.uid == worker.uid and found.incarnation > worker.incarnation:
                # A sign of life: what it has it can seal as soon as the masters know this start.
                text = f'worker "{worker.name}" has started again, and has not registered yet'
                raise RetryError(text, status=Status.BUSY)
            raise RetryError(
                f"at {worker.data_address} answers start {found.incarnation} of worker {found.worker} (uid "
                f"{found.uid.hex()[:8]}), not start {worker.incarnation} of {worker.id} (uid {worker.uid.hex()[:8]})"
            )
        return link


def _is(link: FrameClient, worker: Worker) -> bool:
    """Whether at the other end is this start of the worker."""
    hello = link.hello
    return (hello.worker, hello.incarnation, hello.uid) == (worker.id, worker.incarnation, worker.uid)
