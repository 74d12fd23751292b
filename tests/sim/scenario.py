"""One seed: a cluster, a job of shuffles, faults for a while, then calm in which everything must finish.

The safety act lasts FAULT_SECONDS of virtual time; which kinds of faults a seed has is drawn first, so that many seeds
have few kinds and their stories are short. Then all faults end, and the job must end within CALM_SECONDS. At the very
end every worker is killed and started again: what was read once must be read again, seals must be answered the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from holdfast.common.config.config import TiersSection
from holdfast.common.config.settings import Ratio
from holdfast.common.dfs.urls import StoreKind
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import ReduceManifest, ReduceWinners
from holdfast.worker.core.write.reduce import SplitLimits
from tests.sim.asker import ask_again
from tests.sim.client import Executor
from tests.sim.clock import Violation, VirtualLoop, overheard, pause, virtual_time
from tests.sim.env.dfs import Bucket
from tests.sim.env.sockets import UnixSockets
from tests.sim.families import MAP_SEEDS, family_of, of_family
from tests.sim.job import GUESTS, Job
from tests.sim.map_job import MapJob, mapper
from tests.sim.masters import Cluster
from tests.sim.mischief import FAULTS, Mischief
from tests.sim.network import Network
from tests.sim.oracle import Oracle
from tests.sim.wiring import wired
from tests.sim.worker import BODY_BYTES, CHECK_SECONDS, SimWorker

MAP_CAPACITY = 200_000
FAULT_SECONDS = 8.0
CALM_SECONDS = 240.0


_KINDS = {"s3": StoreKind.S3, "hdfs": StoreKind.HDFS}


@dataclass
class Shape:
    """The size of things in this seed."""

    workers: int
    maps: int
    partitions: int
    copies: int
    ack: Ack
    records: int
    press: int
    pause: float
    limits: SplitLimits
    faults: tuple[str, ...]
    pace: float
    #: seconds that a sync or seal takes at most
    speed: float
    #: bytes for bodies of pushes, per worker
    memory: int
    #: of the directories of each worker, and the bytes that each may take (0: all)
    tiers: tuple[str, ...]
    capacity: int
    tier_rules: TiersSection
    segment_bytes: int
    #: the share of events after which the cores are checked
    checks: float = 0.2
    executors: int = 2
    #: the last directory of several may take all that there is
    roomy: bool = False
    #: all directories of a worker are on one disk, where the worker makes them
    shared: bool = False
    #: the share of shuffles that the driver gives up while they are committed, or soon after
    hasty: float = 0.0
    #: a worker that has died is started again within so many seconds
    restart: float = 4.0
    #: how often workers ask what they may delete
    check_seconds: float = CHECK_SECONDS
    #: seconds that a message takes at most, until faults have ended
    slow: float = 0.002
    #: files that a worker keeps open for readers, and for writers
    open_files: int = 512
    #: so many read what is committed, again and again
    readers: int = 0
    #: applications that fall silent while they write, or soon after
    guests: int = 1
    #: seals that were answered are asked for again
    asks: bool = False
    #: the DFS, if there is one: "s3" or "hdfs"
    dfs: str = ""
    fault_seconds: float = FAULT_SECONDS
    #: what a worker had that is lost for so long is copied again; "0s": never
    restore_after: str = "0s"
    #: so many copies hold a push before it is acknowledged; 0: all
    ack_copies: int = 0
    #: so many workers share a host
    per_host: int = 1


#: The share of seeds in which many push at once into windows of a single body, with two copies: who could wait for one
#: another then does. Drawn apart, so that all other seeds are what they were.
CROWDED_SHARE = 0.08


def crowded(seed: int, shape: Shape) -> Shape:
    """The shape of a seed, or of a crowd of it."""
    rng = random.Random(f"crowd {seed}")
    if rng.random() >= CROWDED_SHARE:
        return shape
    return replace(
        shape,
        faults=shape.faults[: rng.choice((0, 1))],
        maps=rng.choice((6, 8)),
        executors=rng.choice((3, 4)),
        workers=rng.choice((2, 3)),
        copies=2,
        records=25,
        press=1 << 20,
        pause=0.0,
        memory=2 * BODY_BYTES,
    )


def shape_of(rng: random.Random) -> Shape:
    soft = rng.choice((400, 1500, 1 << 30))
    kinds = rng.sample(list(FAULTS), rng.choice((0, 1, 2, 3, 5, len(FAULTS))))
    return Shape(
        workers=rng.choice((2, 3, 3, 4)),
        maps=rng.choice((1, 2, 4)),
        partitions=rng.choice((1, 2, 5)),
        copies=rng.choice((1, 2, 2)),
        ack=rng.choice((Ack.MEMORY, Ack.WRITTEN, Ack.WRITTEN, Ack.SYNCED)),
        records=rng.choice((3, 10, 25)),
        press=rng.choice((60, 400, 1 << 20)),
        pause=rng.choice((0.0, 0.02, 0.2)),
        limits=SplitLimits(soft, soft * 2),
        faults=tuple(sorted(kinds)),
        pace=rng.choice((0.2, 0.6, 1.5)),
        speed=rng.choice((0.01, 0.1, 0.6)),
        memory=rng.choice((2 * BODY_BYTES, 1 << 20)),
        tiers=rng.choice((("SSD",), ("SSD",), ("SSD", "HDD"), ("SSD", "SSD"), ("MEMORY", "HDD"))),
        capacity=rng.choice((0, 0, 30_000)),
        tier_rules=TiersSection(reviewer="accepting", high_watermark=Ratio(0.5), low_watermark=Ratio(0.2)),
        segment_bytes=rng.choice((2_500, 6_000, 64 << 20)),
    )


class Scenario:
    """The world of one seed."""

    def __init__(self, seed: int, level: Ack | None = None) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        shape = crowded(seed, shape_of(rng))
        has_maps = family_of(seed) == MAP_SEEDS
        if has_maps and shape.capacity:  # for two applications
            shape = replace(shape, capacity=MAP_CAPACITY)
        shape = of_family(seed, shape)
        self.shape = shape if level is None else replace(shape, ack=level)
        self.loop = VirtualLoop()
        self.loop.sockets = UnixSockets(self.loop, rng)
        self.network = Network(self.loop, rng)
        self.network.weather.slow = self.shape.slow
        self.oracle = Oracle(self.loop)
        self.bucket = Bucket(_KINDS[shape.dfs], self.loop, rng) if shape.dfs else None
        self.calm = self.over = False
        self.mischief = Mischief(self)
        self.job = Job(self)
        self.maps = MapJob(self) if has_maps else None
        self.workers: list[SimWorker] = []

    @property
    def long_calm(self) -> bool:
        """Whether nothing has been wrong for so long that everything must work."""
        return self.calm and self.loop.now > self.shape.fault_seconds + 60

    def run(self) -> None:
        """Play it; raises Violation."""
        asyncio.set_event_loop(None)
        try:
            with self._simulated():
                self.loop.run_until_complete(self._main())
        finally:
            self._sweep()

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        with (
            virtual_time(self.loop, self.seed),
            wired(self.network, self.shape.check_seconds),
            overheard(self.loop),
        ):
            yield

    def _sweep(self) -> None:
        """Let go of what still runs."""
        self.loop.broken = None
        self.loop.over = True
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        with self._simulated():
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=10.0) if tasks else pause(0))
        for worker in self.workers:
            worker.end()
        self.loop.close()

    async def _main(self) -> None:
        self.cluster = Cluster(self.loop, self.rng, self.network, 3, self.bucket, self.shape.restore_after)
        self.cluster.start()
        self.oracle.truth = self.cluster.truth
        if self.bucket is not None:
            self.oracle.see_dfs(self.bucket)
        shape = self.shape
        self.workers = [
            SimWorker(number, self.loop, self.network, self.rng, self.oracle, shape, self.bucket)
            for number in range(1, shape.workers + 1)
        ]
        for index, worker in enumerate(self.workers):
            self.oracle.workers[index] = worker
            worker.on_crash = self.mischief.died
            worker.start()
        self.executors = [Executor(f"x{number}", self.network) for number in range(1, shape.executors + 1)]
        others = ("driver", "guest", "watcher", "admin")
        self.driver, self.guest, watcher, self.admin = [Executor(name, self.network) for name in others]
        await pause(2.0)
        self.mischief.go_on()
        self.loop.call_later(shape.fault_seconds, self._end_faults)
        job = self.driver.run(self.job.run())
        self.job.guests = [self.guest.run(self.job.guest(instance)) for instance in GUESTS[: shape.guests]]
        beside = [*self.job.guests]
        beside.append(watcher.run(self.job.watch()))
        beside += [watcher.run(self.job.read_beside()) for _ in range(shape.readers)]
        if shape.asks:
            beside.append(watcher.run(ask_again(self)))
        mapping = mapper(self) if self.maps is not None else None
        if mapping is not None and self.maps is not None:
            beside.append(mapping.run(self.maps.run()))
        done, _ = await asyncio.wait((job,), timeout=shape.fault_seconds + CALM_SECONDS)
        if done and mapping is not None and self.maps is not None:
            done, _ = await asyncio.wait(beside[-1:], timeout=CALM_SECONDS)
            if not done:
                raise Violation(f"the maps do not end although all faults have: {self.maps.where}")
            beside[-1].result()
            await mapping.run(self.maps.again())
        if not done:
            told = f"{job.get_stack()[-1:]} {self.job.where}"
            raise Violation(f"the job does not end although all faults have: {told}")
        job.result()
        for task in beside:
            if task.done() and not task.cancelled():
                task.result()
        self._end_faults()
        await pause(1.0)
        if shape.per_host > 1:
            await self._all_alive()
        for shuffle in self.cluster.final().every_shuffle():
            if shuffle.committed_ms and shuffle.manifest:
                manifest = ReduceManifest.decode(shuffle.manifest)
                self.oracle.committed(shuffle, manifest, ReduceWinners.decode(shuffle.winners))
        await pause(0.1)  # the clock raises what the oracle found
        for worker in self.workers:
            worker.pushes.reduce.check()
            # A copy that is full, sealed early, or of a shuffle that was dropped refuses by itself.
            whole = shape.limits.hard_bytes > 1 << 30 and not shape.hasty
            if whole and not shape.faults and worker.counters.forwards_failed:
                raise Violation(f"nothing has failed, but {worker.counters.forwards_failed} forwards of {worker.name}")

    async def _all_alive(self) -> None:
        """The masters hear from every worker again, whoever of its host speaks for it."""
        end = self.loop.now + 60.0
        silent = ["all"]
        while silent and self.loop.now < end:
            await pause(1.0)
            workers = self.cluster.truth().workers
            silent = [each.name for each in self.workers if not (each.number in workers and workers[each.number].alive)]
        if silent:
            raise Violation(f"nothing is wrong, and the masters do not hear from {silent}")

    def _end_faults(self) -> None:
        self.calm = True
        self.mischief.end()


def run_seed(seed: int, level: Ack | None = None) -> tuple[str | None, Scenario]:
    """What went wrong, if anything, and the scenario as it ended. `level`: of acknowledgements, else the seed's own."""
    scenario = Scenario(seed, level)
    try:
        scenario.run()
    except Violation as violation:
        return str(violation), scenario
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, HoldfastError) as error:
        return f"{type(error).__name__}: {error}", scenario
    return None, scenario
