"""Where workers can be reached: what a reply of the masters said, refreshed when it proves stale.

Rules: worker ids are for ever, addresses are not. One object per writer or reader (pushes: per shuffle), on the loop.
Called by writer.py, push_writer.py and the readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.client.connection.runtime import runtime
from holdfast.client.core.read.fetch import WorkerState
from holdfast.client.core.read.read_book import Sight, region_of
from holdfast.common.errors import RetryError
from holdfast.common.ids import WorkerId
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.worker_states import ALIVE, DRAINING

if TYPE_CHECKING:
    from holdfast.client.connection.push_credit import WorkerLink
    from holdfast.client.connection.ticket import Ticket

#: The masters elect a leader in about a second; a writer that cannot reach them has its ring to go on with.
ASK_SECONDS = 5.0


class Addresses:
    """Data-plane addresses of workers, "host:port" by worker id."""

    def __init__(
        self,
        ticket: Ticket,
        known: Mapping[WorkerId, str],
        on_sights: Callable[[Mapping[WorkerId, Sight]], None] | None = None,
    ) -> None:
        """`on_sights` gets the masters' view of all workers after each new request."""
        self._ticket = ticket
        self._known = dict(known)
        self._on_sights = on_sights

    async def connect(self, worker: WorkerId) -> WorkerLink:
        """Return a connection to the worker, asking the masters where it is if it is not where it was.

        Raises RetryError if it cannot be reached.
        """
        address = self._known.get(worker)
        try:
            return await self._reach(worker, self.address(worker))
        except RetryError as refused:
            error = refused
        try:
            await self.refresh()
        except RetryError as silent:
            raise RetryError(f"{error}; the masters do not answer either: {silent}") from error
        now = self._known.get(worker)
        if now is None or now == address:
            raise error
        return await self._reach(worker, now)

    def learn(self, known: Mapping[WorkerId, str]) -> None:
        """Take note of what a reply of the masters named."""
        self._known.update(known)

    def address(self, worker: WorkerId) -> str:
        """Return "host:port" of a worker; raises RetryError if it was never named."""
        found = self._known.get(worker)
        if found is None:
            raise RetryError(f"the address of worker {worker} is not known")
        return found

    def open_connection(self, worker: WorkerId) -> WorkerLink | None:
        """Return the connection to the worker if there is one already."""
        address = self._known.get(worker)
        found = None if address is None else runtime().peers(self._ticket).open_link(address)
        return found if found is not None and found.hello.worker == worker else None

    async def _reach(self, worker: WorkerId, address: str) -> WorkerLink:
        client = await runtime().peers(self._ticket).link(address)
        if client.hello.worker != worker:
            raise RetryError(f"worker {client.hello.worker} answers at {address}, where worker {worker} was")
        return client

    async def refresh(self) -> dict[WorkerId, WorkerState]:
        """Ask the masters for all workers; returns those that are alive. Raises RetryError if no master answers."""
        reply = await runtime().call(self._ticket, "Admin/ListWorkers", pb.ListWorkersRequest(), ASK_SECONDS)
        for worker in reply.workers:
            self._known[WorkerId(worker.worker)] = worker.data_address
        sights = listed_sights(reply.workers)
        if self._on_sights is not None:
            self._on_sights(sights)
        return {worker: WorkerState.ALIVE if sight.alive else WorkerState.LOST for worker, sight in sights.items()}


def known_addresses(workers: Iterable[pb.WorkerAddress]) -> dict[WorkerId, str]:
    """Return the addresses that a reply of the masters names."""
    return {WorkerId(worker.worker): worker.address for worker in workers}


def sights_of(workers: Iterable[pb.WorkerAddress]) -> dict[WorkerId, Sight]:
    """The workers in a reply of the masters."""
    return {WorkerId(each.worker): Sight(each.alive, each.draining, region_of(each.place)) for each in workers}


def listed_sights(workers: Iterable[pb.WorkerInfo]) -> dict[WorkerId, Sight]:
    """The workers in the masters' list of all workers."""
    return {
        WorkerId(each.worker): Sight(each.state in (ALIVE, DRAINING), each.state == DRAINING, region_of(each.place))
        for each in workers
    }
