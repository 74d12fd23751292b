"""Every host restarted in turn, in order, while maps push, the masters commit and readers read: nothing runs again.

A round restarts all workers, one host after the other: SIGTERM, by which a worker hands on what is open there; half the
time their drain was asked for and waited for before, as `holdfast drain HOST` does. They are started again, and the
next host follows when the masters have them back, something was read that was written meanwhile, and partitions are
open again. All the time drivers register shuffles of both kinds, push, commit and read them. Every worker must end by
itself with exit status 0 and because nothing was open there; no partition may be lost, no attempt fail, each map's
first attempt must win, and what is read must be exactly what was pushed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.client.session import Session
from holdfast.client.shuffle import MapShuffle
from holdfast.client.write.status import MapStatus, PushStatus
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.tasks import awaited
from holdfast.tools.drills.push import RECORDS
from holdfast.tools.drills.support import jobs, servers
from holdfast.tools.drills.support.report import DrillError, Report, Step

#: Drivers of REDUCE partitions, and of MAP ones.
PUSHING, MAPPING = 2, 1
#: How long a map takes, in all, so that restarts fall into it, and in how many parts it writes.
_MAP_SECONDS = 1.0
_STEPS = 8
#: A worker that has not ended after so long is stuck: `worker.drain_timeout` is shorter.
_END_SECONDS_MAX = 90.0
#: Until something that was begun after a restart has been read.
_READ_SECONDS_MAX = 240.0
_LOOK_SECONDS = 0.1
#: What a worker writes that ended as it should.
_SAFE = "nothing is open here any more"


def workers(copies: int) -> int:
    """How many workers the drill wants: those that are left must hold the copies on different hosts."""
    return copies + 1


@dataclass(slots=True)
class _Load:
    """The drivers: each runs shuffles, one after the other, until it is stopped."""

    session: Session
    report: Report
    seed: int
    copies: int
    _stopping: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _read: asyncio.Condition = field(default_factory=asyncio.Condition)
    #: moments at which shuffles began that were read to their end
    _began: list[float] = field(default_factory=list)
    #: set when a driver has pushed the first part of a shuffle, whose partitions are open now
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def __aenter__(self) -> Self:
        for number in range(PUSHING + MAPPING):
            one = self._push_one if number < PUSHING else self._map_one
            self._tasks.append(awaited(self._drive(number, one)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        done, late = await asyncio.wait(self._tasks, timeout=_READ_SECONDS_MAX)
        self.report.check("nothing hangs", not late, f"{len(late)} of {len(done | late)} drivers do not end")

    async def read_since(self, moment: float) -> None:
        """Wait until a shuffle was read that began after `moment`. Raises DrillError."""
        with self.report.until(f"nothing that was begun was read within {_READ_SECONDS_MAX:.0f} s"):
            async with asyncio.timeout(_READ_SECONDS_MAX), self._read:
                await self._read.wait_for(lambda: any(began >= moment for began in self._began))

    async def opened(self) -> None:
        """Wait until the next shuffle has partitions that are open. Raises DrillError."""
        self._opened.clear()
        with self.report.until(f"nothing was pushed within {_READ_SECONDS_MAX:.0f} s"):
            async with asyncio.timeout(_READ_SECONDS_MAX):
                await self._opened.wait()

    async def _drive(self, number: int, one: Callable[[int], None]) -> None:
        shuffle = 0
        while not self._stopping:
            began = time.monotonic()
            try:
                await asyncio.to_thread(one, hash((self.seed, number, shuffle)))
            except HoldfastError as error:
                self.report.check("no client gets an error", False, f"{type(error).__name__}: {error}")
            else:
                self.report.check("no client gets an error", True, "")
                async with self._read:
                    self._began.append(began)
                    self._read.notify_all()
            shuffle += 1

    # Both kinds, in threads.

    def _push_one(self, seed: int) -> None:
        shuffle = self.session.register_reduce_shuffle(jobs.PARTITIONS, jobs.MAPS, replication=self.copies)
        data = {map_id: jobs.records_of(seed, map_id, RECORDS) for map_id in range(jobs.MAPS)}
        writers = {map_id: shuffle.writer(map_id, attempt=map_id, buffer_bytes=1 * MIB) for map_id in data}
        for step in range(_STEPS):
            for map_id, writer in writers.items():
                for record in data[map_id][step::_STEPS]:
                    writer.write(*record)
                writer.flush()
            if step == 0:
                self._loop.call_soon_threadsafe(self._opened.set)
            time.sleep(_MAP_SECONDS / _STEPS)
        statuses: list[PushStatus] = [writer.close() for writer in writers.values()]
        shuffle.commit(statuses)
        jobs.check_epochs(self.report, shuffle)
        self._read_and_judge(shuffle, seed, shuffle.manifest().winners.attempts)

    def _map_one(self, seed: int) -> None:
        shuffle = self.session.register_map_shuffle(jobs.PARTITIONS, jobs.MAPS, replication=self.copies)
        statuses: list[MapStatus] = []
        for map_id in range(jobs.MAPS):
            records = jobs.records_of(seed, map_id, RECORDS)
            with shuffle.writer(map_id, map_id) as writer:
                for step in range(_STEPS):
                    writer.write_region(sorted(records[step::_STEPS]))
                    time.sleep(_MAP_SECONDS / _STEPS / jobs.MAPS)
                statuses.append(writer.close())
        shuffle.commit(statuses)
        winners = shuffle.manifest().winners.maps
        self.report.counts["map files begun again elsewhere"] += sum(each.epoch > 0 for each in winners)
        self._read_and_judge(shuffle, seed, [each.attempt for each in winners])

    def _read_and_judge(self, shuffle: ReduceShuffle | MapShuffle, seed: int, winners: Sequence[int]) -> None:
        jobs.check_attempts(self.report, winners)
        found = jobs.contents(shuffle.reader(range(jobs.PARTITIONS)))
        jobs.check_contents(self.report, shuffle, jobs.wanted_of(seed, range(jobs.PARTITIONS), RECORDS), found)
        self.report.counts["shuffles"] += 1
        shuffle.unregister()


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step, *, copies: int) -> None:
    """Run the rounds. Raises DrillError when something does not happen in time."""
    async with ControlClient(cluster.endpoints, cluster.credentials) as control:
        with Session(cluster.endpoints, app="drill rolling", credentials=cluster.credentials) as session:
            async with _Load(session, report, rng.getrandbits(32), copies) as load:
                await load.read_since(0.0)
                for _ in range(report.rounds):
                    hosts = list(servers.by_host(cluster.workers).values())
                    for together in rng.sample(hosts, len(hosts)):
                        await load.opened()
                        began = time.monotonic()
                        if rng.random() < 0.5:
                            await drain(control, together, report)
                        await restart(together, report)
                        await load.read_since(began)
                    report.done += 1
                    step(f"{report.counts['shuffles']} shuffles, {report.failed} broken promises")


async def drain(control: ControlClient, workers: Sequence[Server], report: Report) -> None:
    """Ask the masters to drain workers and wait until they may be restarted. Raises DrillError."""
    began = time.monotonic()
    names = [worker.name for worker in workers]
    await control.call("Admin/DrainWorkers", pb.DrainWorkersRequest(workers=names))
    waits: list[str] = []
    while time.monotonic() - began < _END_SECONDS_MAX:
        listed: pb.ListWorkersReply = await control.call("Admin/ListWorkers", pb.ListWorkersRequest())
        drains = [each.drain for each in listed.workers if each.name in names]
        if all(each.restart for each in drains):
            report.time("drain, until a restart is safe", time.monotonic() - began)
            return
        waits = [each.waits for each in drains if not each.restart]
        await asyncio.sleep(_LOOK_SECONDS)
    raise DrillError(f"{', '.join(names)} are not drained after {_END_SECONDS_MAX:.0f} s: {'; '.join(waits)}")


async def restart(workers: Sequence[Server], report: Report) -> None:
    """End workers in order and start them again; return when the masters have them back. Raises DrillError."""
    await asyncio.gather(*(_end(worker, report) for worker in workers))
    began = time.monotonic()
    await servers.start(workers)
    with report.until("the masters do not accept the workers"):
        await servers.registered(workers)
    report.time("start, until the masters have them back", time.monotonic() - began)
    report.counts["restarts"] += len(workers)


async def _end(worker: Server, report: Report) -> None:
    began = time.monotonic()
    status = await asyncio.to_thread(worker.stop, _END_SECONDS_MAX)
    report.time("SIGTERM, until the process has ended", time.monotonic() - began)
    report.event(f"ended {worker.name} in order")
    if status is not None:  # unknown on another host
        report.check("workers end by themselves", status == 0, f"{worker.name} ended with {status}")
    if log := worker.log_tail():
        stopping = (line for line in reversed(log.splitlines()) if f" {LogEvent.WORKER_STOPPING} " in line)
        reason = next(stopping, "it does not say why")
        report.check("workers end when that is safe", _SAFE in reason, f"{worker.name} ended otherwise: {reason}")
