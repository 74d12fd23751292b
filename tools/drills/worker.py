"""A worker killed while it writes, seals and reads: what it acknowledged it still has, the rest is whole or refused.

Tasks write and seal map files on one worker and read sealed ones back, all the time. Each round kills it with -9 at a
random moment (half the time right around a seal), starts it again, and in half of the rounds kills it a second time
within a second. Then every file of the shuffle is looked at: acknowledged seals read back equal; a file whose seal was
asked for but not answered either is sealed and whole or is refused; a file that was never sealed is refused.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.ids import AttemptId, Epoch, Instance, MapFileKey, MapId, ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.tools import bare
from holdfast.tools.drills.support import map_files, servers
from holdfast.tools.drills.support.map_files import MapFile
from holdfast.tools.drills.support.report import DrillError, Report, Step

WRITERS, READERS = 3, 2
#: The longest that the tasks run before a kill; and between a start and the second kill.
_RUN_SECONDS, _SECOND_KILL_SECONDS = 0.5, 1.0
#: Any single question to the worker; it answers in milliseconds, so a longer wait is a hang.
_ANSWER_SECONDS_MAX = 30.0
#: Rounds after which a shuffle is forgotten, so that deletion runs while the worker is killed, too.
_ROUNDS_PER_SHUFFLE = 5
_FILES_PER_READ = 4
#: How a worker refuses a file that is not sealed.
_REFUSALS = {Status.UNKNOWN_FILE, Status.NOT_SEALED}


class SealState(Enum):
    """The record of a file in the drill."""

    UNSEALED = "never sealed"
    ASKED = "seal asked, not answered"
    SEALED = "seal acknowledged"


@dataclass(slots=True)
class _Drill:
    """The tasks, the files of the current shuffle, and what is known of them."""

    worker: Server
    cluster_id: str
    credentials: Credentials | None
    report: Report
    rng: random.Random
    shuffle: ShuffleKey = field(init=False)
    files: dict[MapFile, SealState] = field(default_factory=dict)
    seal_sent: asyncio.Event = field(default_factory=asyncio.Event)
    _pool: BufferPool = field(default_factory=lambda: BufferPool(64 * MIB))
    _maps: int = 0

    async def connect(self) -> FrameClient:
        return await bare.connect(self.worker.address, self.cluster_id, self._pool, self.credentials)

    async def run_until_cut(self) -> None:
        """Write, seal and read on connections of their own until each is cut by the kill."""
        await asyncio.gather(*(self._until_cut(self._write_one) for _ in range(WRITERS)),
                             *(self._until_cut(self._read_some) for _ in range(READERS)))  # fmt: skip

    async def _until_cut(self, action: Callable[[FrameClient], Coroutine[Any, Any, None]]) -> None:
        try:
            client = await self.connect()
        except RetryError:  # the kill was faster
            return
        try:
            while not client.closed:
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    await action(client)
        except TimeoutError:
            wrong = f"no answer within {_ANSWER_SECONDS_MAX:g} s to {action.__name__}"
            self.report.check("nothing hangs", False, wrong)
        except HoldfastError as error:
            self.report.check("nothing hangs", True, "")
            wrong = f"{action.__name__}: {error.status.name}: {error}"
            self.report.check("no unexpected refusal", client.closed and isinstance(error, RetryError), wrong)
        finally:
            client.abort()

    async def _write_one(self, client: FrameClient) -> None:
        self._maps += 1
        file = MapFile(MapFileKey(self.shuffle, MapId(self._maps), AttemptId(self._maps), Epoch(0)), self.report.seed)
        self.files[file] = SealState.UNSEALED
        regions, totals = file.make()
        await bare.write(client, file.key, map_files.PARTITIONS, map_files.pushes(regions))
        if self.rng.random() < 0.15:
            return  # an attempt that died: its file must never be served
        self.files[file] = SealState.ASKED
        self.seal_sent.set()
        await bare.seal(client, file.key, totals)
        self.files[file] = SealState.SEALED
        self.report.counts["seals acknowledged"] += 1

    async def _read_some(self, client: FrameClient) -> None:
        sealed = [file for file, seal_state in self.files.items() if seal_state is SealState.SEALED]
        if not sealed:
            await asyncio.sleep(0.01)
            return
        chosen = self.rng.sample(sealed, min(len(sealed), _FILES_PER_READ))
        found = await map_files.read(client, chosen)
        for file, content in zip(chosen, found, strict=True):
            self.report.check(
                "reads during traffic equal", content == file.content(), f"{file.key} reads back different"
            )

    async def check_all(self) -> None:
        """Look at every file of the shuffle. Raises TimeoutError when an answer does not come."""
        client = await self.connect()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX + 0.05 * len(self.files)):
                for file, seal_state in list(self.files.items()):
                    if seal_state is SealState.ASKED:
                        self.files[file] = await self._ask_again(client, file)
                    elif seal_state is SealState.UNSEALED:
                        await self._check_refused(client, file)
                for file in [file for file, seal_state in self.files.items() if seal_state is SealState.SEALED]:
                    await self._check_equal(client, file)
        finally:
            client.abort()
        # What is known to be refused for good need not be asked about in every round.
        self.files = {file: seal_state for file, seal_state in self.files.items() if seal_state is SealState.SEALED}

    async def _ask_again(self, client: FrameClient, file: MapFile) -> SealState:
        _, totals = file.make()
        try:
            sealed = await bare.seal(client, file.key, totals)
        except HoldfastError as error:
            refused = error.status in _REFUSALS
            wrong = f"{file.key}: asked again, its seal says {error.status.name}: {error}"
            self.report.check("unacknowledged seals whole or refused", refused, wrong)
            await self._check_refused(client, file)
            return SealState.UNSEALED
        wrong = f"{file.key} is sealed with other totals"
        self.report.check("unacknowledged seals whole or refused", sealed.totals == totals, wrong)
        self.report.counts["unanswered seals that were done"] += 1
        return SealState.SEALED

    async def _check_refused(self, client: FrameClient, file: MapFile) -> None:
        try:
            await map_files.read(client, [file])
        except HoldfastError as error:
            refused = error.status in _REFUSALS
            self.report.check("unsealed files refused", refused, f"{file.key}: {error.status.name}: {error}")
        else:
            self.report.check("unsealed files refused", False, f"{file.key} was never sealed but is served")

    async def _check_equal(self, client: FrameClient, file: MapFile) -> None:
        try:
            (found,) = await map_files.read(client, [file])
        except HoldfastError as error:
            wrong = f"{file.key}: sealed, but not readable: {error.status.name}: {error}"
            self.report.check("acknowledged seals read back equal", False, wrong)
            return
        wrong = f"{file.key} reads back different"
        self.report.check("acknowledged seals read back equal", found == file.content(), wrong)


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run `report.rounds` rounds on the first worker. Raises DrillError when something does not happen in time."""
    worker = cluster.workers[0]
    instance = Instance(rng.randbytes(16))
    async with ControlClient(cluster.endpoints, cluster.credentials) as admin:
        reply = await bare.register_application(admin, instance, "drill")
    credentials = servers.owner(cluster, reply)
    async with ControlClient(cluster.endpoints, credentials) as control:
        state = _Drill(worker, reply.cluster_id, credentials, report, rng)
        for number in range(report.rounds):
            if number % _ROUNDS_PER_SHUFFLE == 0:
                await _next_shuffle(control, state, instance, number // _ROUNDS_PER_SHUFFLE)
            await _round(worker, state, rng)
            report.done += 1
            step(f"{len(state.files)} sealed files, {report.failed} broken promises")


async def _next_shuffle(control: ControlClient, state: _Drill, instance: Instance, number: int) -> None:
    """Register the next shuffle and unregister the one before."""
    if number:
        old = bare.shuffle_key(instance, number - 1)
        await control.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=old, holder=instance))
    registered = await bare.register_shuffle(control, instance, number, map_files.PARTITIONS)
    state.shuffle = bare.key_of(instance, number, registered)
    state.files = {}


async def _round(worker: Server, state: _Drill, rng: random.Random) -> None:
    report = state.report
    with report.until("the masters do not accept the worker"):
        await servers.registered([worker], _ANSWER_SECONDS_MAX)
    traffic = awaited(state.run_until_cut())
    await asyncio.sleep(rng.uniform(0.0, _RUN_SECONDS))
    if rng.random() < 0.5:  # around a seal, where most is at stake
        state.seal_sent.clear()
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            await state.seal_sent.wait()
        await asyncio.sleep(rng.uniform(0.0, 0.004))
    await servers.kill([worker], report)
    with report.until("clients of the killed worker still wait"):
        async with asyncio.timeout(2 * _ANSWER_SECONDS_MAX):
            await traffic
    if rng.random() < 0.5:
        await asyncio.to_thread(worker.start, False)
        await asyncio.sleep(rng.uniform(0.0, _SECOND_KILL_SECONDS))
        await servers.kill([worker], report)
    began = time.monotonic()
    await servers.start([worker])
    report.time("worker: from exec to serving", time.monotonic() - began)
    with report.until("the restarted worker does not answer"):
        try:
            await state.check_all()
        except RetryError as error:
            raise DrillError(f"the restarted worker does not answer: {error}") from None
