"""Clients that give the masters commands without pause, and note in a ledger what was acknowledged.

Each client registers shuffles, commits them (sometimes against a rival with other winners) and unregisters them,
one command after the other. Unregister answers how many generations it dropped: an acknowledged command that was
forgotten, or a retried one that was applied twice, shows as a wrong number.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Self

from google.protobuf.message import Message

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import ConflictError, HoldfastError, RetryError
from holdfast.common.formats.layouts import MapAssignment, MapWinner, MapWinners, bitmap_bytes
from holdfast.common.ids import AttemptId, Epoch, WorkerId
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.tools.bare import register_application, register_shuffle, shuffle_key
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.ledger import Ledger, ShuffleState
from holdfast.tools.drills.support.report import Report

#: A command not answered within this hangs. No latency: masters that start on a busy machine take their time.
COMMAND_SECONDS_MAX = 120.0
_PARTITIONS = 12
#: Shuffles that a client leaves alive before it must drop some.
_ALIVE_MAX = 12


class Traffic:
    """`clients` tasks under one application; they run after `resume` and stop after `pause`."""

    def __init__(self, cluster: LocalCluster, clients: int, rng: random.Random, report: Report) -> None:
        self.ledger = Ledger()
        self.instance = rng.randbytes(16)
        self._cluster = cluster
        self._admin = ControlClient(cluster.endpoints, cluster.credentials)
        self._report = report
        self._go = asyncio.Event()
        self._idle = [asyncio.Event() for _ in range(clients)]
        self._clients = [_Client(self, number, random.Random(rng.random())) for number in range(clients)]
        self._tasks: list[asyncio.Task[None]] = []
        self._answered = asyncio.Condition()

    async def __aenter__(self) -> Self:
        """Register the application and start the clients, standing still."""
        reply = await register_application(self._admin, self.instance, "drill", deadline_s=COMMAND_SECONDS_MAX)
        for client in self._clients:
            client.connect(self._cluster.endpoints, servers.owner(self._cluster, reply))
        self._tasks = [awaited(self._run(client)) for client in self._clients]
        return self

    def resume(self) -> None:
        """Let the clients go on."""
        self._go.set()

    async def pause(self) -> None:
        """Let every client end its current command, and stop. Raises TimeoutError."""
        self._go.clear()
        async with asyncio.timeout(2 * COMMAND_SECONDS_MAX):
            await asyncio.gather(*(idle.wait() for idle in self._idle))
        for task in self._tasks:
            if task.done():
                task.result()

    async def answered(self, more: int) -> None:
        """Wait until that many further commands were acknowledged. Raises TimeoutError."""
        wanted = self.ledger.acknowledged + more
        async with asyncio.timeout(COMMAND_SECONDS_MAX), self._answered:
            await self._answered.wait_for(lambda: self.ledger.acknowledged >= wanted)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        await self._admin.close()

    async def check(self) -> None:
        """Compare the ledger with what the masters say; call while paused."""
        client = self._clients[0]
        request = pb.ListShufflesRequest(instance=self.instance, limit=1_000_000)
        reply = await self._admin.call("Admin/ListShuffles", request, deadline_s=COMMAND_SECONDS_MAX)
        listed = {shuffle.key.shuffle: shuffle.state for shuffle in reply.shuffles}
        for sentence in self.ledger.violations(listed):
            self._report.check("acknowledged commands present", False, sentence)
        self._report.checks["acknowledged commands present"] += len(self.ledger.entries)
        for shuffle, winners in list(self.ledger.committed()):
            manifest = pb.GetManifestRequest(key=self.key(shuffle), holder=self.instance)
            found = await client.call("Shuffles/GetManifest", manifest)
            same = MapWinners.decode(found.winners_array) == MapWinners.decode(winners)
            self._report.check("committed winners equal", same, f"shuffle {shuffle} has other winners than committed")
        for one in self._clients:
            await one.repeat(self._report)
        self.ledger.forget_gone()

    def key(self, shuffle: int) -> pb.ShuffleKey:
        """The key of a shuffle of this drill."""
        return shuffle_key(self.instance, shuffle)

    async def _run(self, client: _Client) -> None:
        idle = self._idle[client.number]
        while True:
            idle.set()
            await self._go.wait()
            idle.clear()
            try:
                await client.step(self._report)
            except RetryError as error:
                self._report.check("commands answered", False, f"a command was never answered: {error}")
            except HoldfastError as error:
                self._report.check("commands answered", False, f"a command was refused: {error}")
            async with self._answered:
                self._answered.notify_all()


class _Client:
    """One client of the masters, with shuffles of its own."""

    def __init__(self, traffic: Traffic, number: int, rng: random.Random) -> None:
        self.number = number
        self._traffic = traffic
        self._rng = rng
        self._next = number << 20
        #: shuffle -> a worker it may name; not committed yet
        self._open: dict[int, int] = {}
        self._committed: list[int] = []
        self._call = pb.CallId()
        self._last: pb.UnregisterShuffleRequest | None = None

    def connect(self, endpoints: str, credentials: Credentials | None) -> None:
        """Show this from now on; nothing is asked yet."""
        self._control, self._rival = ControlClient(endpoints, credentials), ControlClient(endpoints, credentials)

    async def call(self, method: str, request: Message) -> Any:
        """Give one command, retried by the client library until it is answered."""
        return await self._control.call(method, request, deadline_s=COMMAND_SECONDS_MAX)

    async def close(self) -> None:
        """Close both connections."""
        await self._control.close()
        await self._rival.close()

    async def step(self, report: Report) -> None:
        """Give one command of a random kind and note what came of it."""
        if self._committed and len(self._open) + len(self._committed) >= _ALIVE_MAX:
            await self._unregister(report)
        elif self._open and self._rng.random() < 0.5:
            await self._commit(report)
        else:
            await self._register()

    async def _register(self) -> None:
        shuffle, self._next = self._next, self._next + 1
        self._traffic.ledger.attempt(shuffle, ShuffleState.OPEN)
        reply = await register_shuffle(
            self._control, self._traffic.instance, shuffle, _PARTITIONS, maps=1, deadline_s=COMMAND_SECONDS_MAX
        )
        self._traffic.ledger.acknowledge(shuffle, ShuffleState.OPEN)
        self._open[shuffle] = MapAssignment.decode(reply.assignment_array).workers[0]

    async def _commit(self, report: Report) -> None:
        shuffle, worker = self._open.popitem()
        self._traffic.ledger.attempt(shuffle, ShuffleState.COMMITTED)
        said = [self._winners(worker)]
        clients = [self._control]
        if self._rng.random() < 0.2:
            said.append(self._winners(worker))
            clients.append(self._rival)
        results = await asyncio.gather(*map(self._try_commit, clients, said, [shuffle] * len(said)))
        accepted = [winners for winners, won in zip(said, results, strict=True) if won]
        good = len(accepted) == 1
        report.check("one of two rivals commits", good, f"{len(accepted)} of {len(said)} commits of {shuffle} accepted")
        if good:
            self._traffic.ledger.acknowledge(shuffle, ShuffleState.COMMITTED, accepted[0])
            self._committed.append(shuffle)

    async def _try_commit(self, control: ControlClient, winners: bytes, shuffle: int) -> bool:
        key, holder = self._traffic.key(shuffle), self._traffic.instance
        request = pb.CommitRequest(key=key, winners_array=winners, holder=holder)
        try:
            await control.call("Shuffles/Commit", request, deadline_s=COMMAND_SECONDS_MAX)
        except ConflictError:
            return False
        return True

    async def _unregister(self, report: Report) -> None:
        shuffle = self._committed.pop(0)
        request = pb.UnregisterShuffleRequest(key=self._traffic.key(shuffle), holder=self._traffic.instance)
        request.call.CopyFrom(self._next_call())
        self._traffic.ledger.attempt(shuffle, ShuffleState.GONE)
        reply = await self.call("Shuffles/UnregisterShuffle", request)
        self._traffic.ledger.acknowledge(shuffle, ShuffleState.GONE)
        wrong = f"unregistering {shuffle} dropped {reply.dropped} generations: forgotten before, or applied twice"
        report.check("applied exactly once", reply.dropped == 1, wrong)
        self._last = request

    async def repeat(self, report: Report) -> None:
        """Send the last numbered command again: it must get its first answer, and another one of its number none."""
        if self._last is None:
            return
        reply = await self.call("Shuffles/UnregisterShuffle", self._last)
        wrong = f"a repeated call was answered with {reply.dropped}, not as the first time"
        report.check("repeated calls get their first answer", reply.dropped == 1, wrong)
        other = pb.UnregisterShuffleRequest(call=self._last.call, key=self._traffic.key(self._next), holder=b"")
        try:
            await self.call("Shuffles/UnregisterShuffle", other)
            refused = False
        except HoldfastError as error:
            refused = error.status is Status.CALL_REUSED
        report.check("a used call number is refused", refused, "another command got the answer of a used call number")

    def _next_call(self) -> pb.CallId:
        """Ids of our own, so that a command can be repeated after masters were killed."""
        if not self._call.client:
            self._call = pb.CallId(client=self._rng.randbytes(16), raft_index=self._control.raft_index)
        self._call.number += 1
        return self._call

    def _winners(self, worker: int) -> bytes:
        """Winners of one map that differ from all others: the attempt number is random."""
        bitmap = self._rng.randbytes(bitmap_bytes(_PARTITIONS) - 1) + b"\x0f"
        attempt = AttemptId(self._rng.getrandbits(63))
        winner = MapWinner(
            attempt=attempt, epoch=Epoch(0), workers=(WorkerId(worker),), batches=3, size_bytes=300, partitions=bitmap
        )
        return MapWinners(_PARTITIONS, (winner,)).encode()
