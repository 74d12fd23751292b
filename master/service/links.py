"""The leader's data connections to workers, for seals.

Rules: one connection a worker, opened when it is first needed, closed when this master stops leading; the least used
ones are closed beyond a bound. Who answers must be the start of the worker that the state names: at the same address
another worker may listen, or a later start that has not registered yet. Runs in the event loop. Called by sealing.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from holdfast.common.errors import ProtocolError, RetryError
from holdfast.common.frame import FrameType
from holdfast.common.ids import RaftIndex
from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.messages import Hello, Role
from holdfast.common.net.buffers import BufferPool
from holdfast.common.net.frame_client import FrameClient
from holdfast.common.reduce_messages import Seal, SealAnswer
from holdfast.common.security.shown import Shown
from holdfast.master.core.records import Worker

LINKS_MAX = 1_024
_CONNECT_S = 2.0


class Links:
    """Connections by worker number."""

    def __init__(self, cluster_id: str, shown: Shown | None = None) -> None:
        """`shown` is what workers want to see; None without security."""
        self._cluster_id = cluster_id
        self._shown = shown
        self._pool = BufferPool(FRAME_BODY_BYTES_MAX)  # answers have no bodies, so it stays empty
        self._links: OrderedDict[int, FrameClient] = OrderedDict()
        self._turns: dict[int, asyncio.Lock] = {}

    async def seal(self, worker: Worker, seal: Seal) -> SealAnswer:
        """Return the answer of this start of the worker. Raises RetryError if it cannot be asked."""
        link = await self._link(worker, seal.raft_index)
        reply = await link.request(FrameType.SEAL, seal.encode())
        return SealAnswer.decode(reply.meta)

    def close(self) -> None:
        """Close every connection; requests under way fail."""
        for link in self._links.values():
            link.abort()
        self._links.clear()

    async def _link(self, worker: Worker, index: RaftIndex) -> FrameClient:
        async with self._turns.setdefault(worker.id, asyncio.Lock()):
            link = self._links.get(worker.id)
            if link is None or link.closed or link.hello.incarnation != worker.incarnation:
                if link is not None:
                    del self._links[worker.id]
                    link.abort()
                link = self._links[worker.id] = await self._connect(worker, index)
            self._links.move_to_end(worker.id)
            if len(self._links) > LINKS_MAX:
                self._links.popitem(last=False)[1].abort()
            return link

    async def _connect(self, worker: Worker, index: RaftIndex) -> FrameClient:
        host, _, port = worker.data_address.rpartition(":")
        hello = Hello(role=Role.MASTER, raft_index=index, cluster_id=self._cluster_id)
        try:
            link = await FrameClient.connect(
                host.strip("[]"), int(port), hello, self._pool, timeout_seconds=_CONNECT_S, shown=self._shown
            )
        except ValueError as error:
            raise ProtocolError(f'worker "{worker.name}" has no data address: {worker.data_address}') from error
        if (link.hello.worker, link.hello.incarnation) != (worker.id, worker.incarnation):
            link.abort()
            raise RetryError(
                f"at {worker.data_address} answers start {link.hello.incarnation} of worker {link.hello.worker}, "
                f"not start {worker.incarnation} of {worker.id}"
            )
        return link
