"""One seed: a cluster, a job of shuffles, faults for a while, then calm in which everything must finish.

The safety act lasts FAULT_SECONDS of virtual time; which kinds of faults a seed has is drawn first, so that many seeds
have few kinds and their stories are short. Then all faults end, and the job must end within CALM_SECONDS. At the very
end every worker is killed and started again: what was read once must be read again, seals must be answered the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from holdfast.client.status import PushStatus, push_winners_of
from holdfast.common.errors import DataError, HoldfastError
from holdfast.common.frame import FrameType
from holdfast.common.ids import NO_WORKER, Generation, Instance, RaftIndex, ShuffleId, ShuffleKey
from holdfast.common.messages import Ack, Hello, Role
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.reduce_layouts import ReduceManifest
from holdfast.common.reduce_messages import Seal, SealFlag
from holdfast.master.core.moves import moved_count
from holdfast.worker.core.reduce import Limits
from tests.sim.client import HOLDER, Executor, Plan, Reader, ShuffleHere, commit, manifest_of, push, wired
from tests.sim.clock import Violation, VirtualLoop, here, pause, virtual_time
from tests.sim.masters import Cluster
from tests.sim.network import Dialer, Network
from tests.sim.oracle import Oracle
from tests.sim.worker import SimWorker

FAULT_SECONDS = 8.0
CALM_SECONDS = 240.0
INSTANCE = Instance(b"i" * 16)
#: Weights of the kinds of faults.
FAULTS = {
    "kill": 4,
    "power": 2,
    "inside": 3,
    "full": 2,
    "sick": 2,
    "wipe": 1,
    "master": 3,
    "isolate": 3,
    "cut": 5,
    "weather": 4,
    "executor": 2,
    "all": 1,
}


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
    limits: Limits
    faults: tuple[str, ...]
    pace: float
    #: seconds that a sync or seal takes at most
    speed: float


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
        limits=Limits(soft, soft * 2),
        faults=tuple(sorted(kinds)),
        pace=rng.choice((0.2, 0.6, 1.5)),
        speed=rng.choice((0.01, 0.1, 0.6)),
    )


class Scenario:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.shape = shape_of(rng)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, rng)
        self.oracle = Oracle(self.loop)
        self.calm = False
        self.attempts = 0
        self.reads = 0
        self.lost_reads = 0
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        """Play it; raises Violation."""
        asyncio.set_event_loop(None)
        try:
            with virtual_time(self.loop, self.seed), wired(self.network):
                self.loop.run_until_complete(self._main())
        finally:
            self._sweep()

    def _sweep(self) -> None:
        """Let go of what still runs."""
        self.loop.broken = None
        self.loop.over = True
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        with virtual_time(self.loop, self.seed), wired(self.network):
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=10.0) if tasks else pause(0))
        self.loop.close()

    async def _main(self) -> None:
        self.cluster = Cluster(self.loop, self.rng, self.network, 3)
        self.cluster.start()
        shape = self.shape
        self.workers = [
            SimWorker(number, self.loop, self.network, self.rng, self.oracle, shape.limits)
            for number in range(1, shape.workers + 1)
        ]
        for index, worker in enumerate(self.workers):
            self.oracle.workers[index] = worker
            worker.on_crash = self._died
            worker.speed = shape.speed
            worker.start()
        self.executors = [Executor(f"x{number}", self.network) for number in range(1, 3)]
        self.driver = Executor("driver", self.network)
        await pause(2.0)
        self.loop.call_later(self.rng.expovariate(1 / shape.pace), self._fault)
        self.loop.call_later(FAULT_SECONDS, self._end_faults)
        job = self.driver.run(self._job())
        done, _ = await asyncio.wait((job,), timeout=FAULT_SECONDS + CALM_SECONDS)
        if not done:
            raise Violation(f"the job does not end although all faults have: {job.get_stack()[-1:]} {self.where}")
        job.result()
        self._end_faults()
        await pause(1.0)
        for shuffle in self.cluster.final().every_shuffle():
            if shuffle.committed_ms:
                manifest = ReduceManifest.decode(shuffle.manifest)
                self.oracle.committed(shuffle.key, shuffle.partitions, moved_count(shuffle.moves), manifest)
        await pause(0.1)  # the clock raises what the oracle found
        for worker in self.workers:
            worker.pushes.reduce.check()

    # The job.

    where = ""

    async def _job(self) -> None:
        control = here.get().runtime.control()  # type: ignore[attr-defined]
        application = pb.RegisterApplicationRequest(instance=INSTANCE, name="sim", user="u", holder=HOLDER)
        await control.call("Shuffles/RegisterApplication", application, CALM_SECONDS)
        last, number = await self._shuffle(control, 0), 1
        while not self.calm:
            last, number = await self._shuffle(control, number), number + 1
        await self._again(control, *last)

    async def _shuffle(self, control: Any, number: int) -> tuple[ShuffleHere, bytes, bool]:
        shape, rng = self.shape, self.rng
        key = ShuffleKey(INSTANCE, ShuffleId(number), Generation(0))
        shuffle = await self._registered(control, key)
        self.where = f"{key}: maps"
        statuses = await self._maps(shuffle)
        winners = push_winners_of(statuses, key, shape.partitions).encode()
        self.where = f"{key}: commit"
        whole, first = True, rng.random()
        if first < 0.3:
            await commit(control, shuffle, winners)
        # Who reads meanwhile may have nothing to offer, and wait for the driver's commit.
        offered = [winners if first < 0.6 else b"" for _ in self.executors]
        own = self.driver.run(commit(control, shuffle, winners)) if first >= 0.6 else None
        self.where = f"{key}: read"
        picked: dict[int, int] = {status.map: status.attempt for status in statuses}
        tasks = [
            each.run(self._read(shuffle, offer, picked)) for each, offer in zip(self.executors, offered, strict=True)
        ]
        for task in tasks:
            await asyncio.wait((task,))
        if own is not None:
            await own
        for task in tasks:
            whole &= not task.cancelled() and task.result()
        if not any(task.cancelled() for task in tasks):
            return shuffle, winners, whole
        return shuffle, winners, await self._read(shuffle, winners, picked)

    async def _registered(self, control: Any, key: ShuffleKey) -> ShuffleHere:
        shape = self.shape
        request = pb.RegisterShuffleRequest(
            key=pb.ShuffleKey(instance=key.instance, shuffle=key.shuffle, generation=0),
            kind=pb.PARTITION_KIND_REDUCE,
            partitions=shape.partitions,
            maps=shape.maps,
            copies=shape.copies,
            ack=shape.ack,
            holder=HOLDER,
        )
        while True:
            try:
                reply = await control.call("Shuffles/RegisterShuffle", request, 60.0)
            except HoldfastError as error:
                if self.calm and self.loop.now > FAULT_SECONDS + 60:
                    raise Violation(f"{key} cannot be registered: {error}") from error
                await pause(0.3)
                continue
            return ShuffleHere(key, shape.ack, shape.partitions, shape.maps, reply)

    async def _maps(self, shuffle: ShuffleHere) -> list[PushStatus]:
        tasks = [asyncio.create_task(self._map(shuffle, number)) for number in range(self.shape.maps)]
        return [await task for task in tasks]

    async def _map(self, shuffle: ShuffleHere, number: int) -> PushStatus:
        """Run attempts until one ends well; sometimes two at once, of which one becomes the winner."""
        tries = 0
        while True:
            pair = [self._attempt(shuffle, number) for _ in range(2 if self.rng.random() < 0.3 else 1)]
            await asyncio.wait(
                pair, return_when=asyncio.FIRST_COMPLETED if self.rng.random() < 0.5 else "ALL_COMPLETED"
            )
            ended = [task for task in pair if task.done() and not task.cancelled() and task.exception() is None]
            if ended:
                return self.rng.choice(ended).result()
            for task in pair:
                if task.done() and not task.cancelled() and not isinstance(task.exception(), HoldfastError):
                    raise task.exception() or AssertionError
            tries += self.calm
            if tries > 8:
                raise Violation(f"map {number} of {shuffle.key} does not end well: {pair}")
            await pause(0.3)

    def _attempt(self, shuffle: ShuffleHere, number: int) -> asyncio.Task[PushStatus]:
        rng, shape = self.rng, self.shape
        self.attempts += 1
        attempt = self.attempts
        records = []
        for index in range(rng.randint(0, shape.records)):
            partition = rng.randrange(shape.partitions)
            payload = b"%d.%d.%d.%d" % (number, attempt, partition, index)
            records.append((partition, payload + b"x" * rng.choice((0, 10, 100))))
        book: dict[int, Counter[bytes]] = {}
        for partition, payload in records:
            book.setdefault(partition, Counter())[payload] += 1
        self.oracle.pushed[number, attempt] = book
        executor = rng.choice(self.executors)
        plan = Plan(number, attempt, records, shape.press, shape.pause if rng.random() < 0.7 else shape.pause * 4)
        return executor.run(push(executor, shuffle, plan, rng))

    async def _read(self, shuffle: ShuffleHere, winners: bytes, picked: dict[int, int]) -> bool:
        """Read everything; returns whether it could be."""
        control = here.get().runtime.control()  # type: ignore[attr-defined]
        reply = await manifest_of(control, shuffle, winners)
        reader = Reader(self.network, shuffle, reply, list(range(shuffle.partitions)))
        if reader.winners.attempts != tuple(picked[each] for each in sorted(picked)):
            raise Violation(f"{shuffle.key} is committed with other winners")
        self.reads += 1
        try:
            await reader.read()
        except DataError as error:
            self.lost_reads += 1
            if not self.oracle.may_lose(shuffle.ack):
                raise Violation(f"nothing happened that may lose data, and: {error}") from error
            return False
        for partition, got in reader.records.items():
            self.oracle.read(picked, partition, got, shuffle.key)
        self.manifest = reader.manifest
        self.picked = picked
        return True

    async def _again(self, control: Any, shuffle: ShuffleHere, winners: bytes, whole: bool) -> None:
        """After a restart of every worker: the same data, the same answers to seals."""
        self.where = "the last look"
        if not whole:
            return
        for worker in self.workers:
            worker.crash(False)
            worker.start()
        await pause(4.0)
        if not await self._read(shuffle, winners, self.picked) and not any("wiped" in w.sins for w in self.workers):
            raise Violation("what was read once cannot be read after a restart")
        for worker in self.workers:
            asked: list[tuple[int, int]] = [
                (each.partition, each.epoch)
                for each in self.manifest.epochs
                if worker.number in (each.primary.worker, each.replica.worker) and worker.number != NO_WORKER
            ]
            link = await Dialer.connect(worker.name, 1, Hello(role=Role.MASTER, cluster_id="sim"))
            seal = Seal(shuffle=shuffle.key, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=asked)
            await link.request(FrameType.SEAL, seal.encode())

    # Faults.

    def _fault(self) -> None:
        if self.calm:
            return
        rng, kinds = self.rng, self.shape.faults
        if kinds:
            kind = rng.choices(kinds, [FAULTS[each] for each in kinds])[0]
            self.faults[kind] += 1
            self.network.note("fault", kind)
            getattr(self, f"_{kind}")(rng.choice(self.workers))
        self.loop.call_later(rng.expovariate(1 / self.shape.pace), self._fault)

    def _later(self, seconds: float, act: Any, *values: Any) -> None:
        self.loop.call_later(self.rng.uniform(0.05, seconds), act, *values)

    def _kill(self, worker: SimWorker, power: bool = False) -> None:
        if worker.life.alive:
            worker.crash(power)
            self._later(4.0, worker.start)

    def _power(self, worker: SimWorker) -> None:
        self._kill(worker, True)

    def _inside(self, worker: SimWorker) -> None:
        worker.disk.armed = self.rng.randrange(4)

    def _died(self, worker: SimWorker) -> None:
        worker.crash(False)
        self._later(4.0, worker.start)

    def _full(self, worker: SimWorker) -> None:
        worker.disk.full = True
        worker.sins["full"] = None
        self._later(3.0, self._emptied, worker)

    @staticmethod
    def _emptied(worker: SimWorker) -> None:
        worker.disk.full = False

    def _sick(self, worker: SimWorker) -> None:
        worker.disk.sick = self.rng.choice((0.05, 0.5))
        worker.sins["sick"] = None
        self._later(2.0, self._cured, worker)

    @staticmethod
    def _cured(worker: SimWorker) -> None:
        worker.disk.sick = 0.0

    def _wipe(self, worker: SimWorker) -> None:
        if worker.life.alive:
            worker.crash(True)
            worker.disk.wipe()
            worker.sins["wiped"] = None
            self._later(4.0, worker.start)

    def _master(self, _: SimWorker) -> None:
        master = self.cluster.leader if self.rng.random() < 0.7 else self.rng.choice([*self.cluster.masters.values()])
        if master is not None and master.life.alive:
            self.cluster.crash(master)
            self._later(3.0, self.cluster.boot, master)

    def _isolate(self, _: SimWorker) -> None:
        master = self.cluster.leader if self.rng.random() < 0.8 else self.rng.choice([*self.cluster.masters.values()])
        if master is not None and master.life.alive:
            self.cluster.isolate(master, self.rng.uniform(0.5, 3.0))

    def _cut(self, _: SimWorker) -> None:
        names = [*self.cluster.names, *[each.name for each in self.workers], *[each.name for each in self.executors]]
        one, other = self.rng.sample(names, 2)
        until = self.loop.now + self.rng.uniform(0.2, 5.0)
        self.network.cuts[one, other] = until
        if self.rng.random() < 0.4:
            self.network.cuts[other, one] = until

    def _weather(self, _: SimWorker) -> None:
        rng, weather = self.rng, self.network.weather
        weather.drop = rng.choice((0.0, 0.01, 0.1))
        weather.repeat = rng.choice((0.0, 0.05, 0.3))
        weather.turn = rng.choice((0.0, 0.0, 0.02, 0.2))
        weather.slow = rng.choice((0.002, 0.05, 0.5))
        weather.reorder = rng.random() < 0.5

    def _executor(self, _: SimWorker) -> None:
        executor = self.rng.choice(self.executors)
        executor.crash()
        executor.start()

    def _all(self, _: SimWorker) -> None:
        power = self.rng.random() < 0.5 and "power" in self.shape.faults
        for worker in self.workers:
            self._kill(worker, power)

    def _end_faults(self) -> None:
        """From now on everything works."""
        self.calm = True
        network = self.network
        network.weather.drop = network.weather.repeat = network.weather.turn = 0.0
        network.weather.slow, network.weather.reorder = 0.002, False
        network.cuts.clear()
        for worker in self.workers:
            worker.disk.full, worker.disk.sick, worker.disk.armed = False, 0.0, None
            worker.start()
        for master in self.cluster.masters.values():
            self.cluster.boot(master)


def run_seed(seed: int) -> tuple[str | None, Scenario]:
    """What went wrong, if anything, and the scenario as it ended."""
    scenario = Scenario(seed)
    try:
        scenario.run()
    except Violation as violation:
        return str(violation), scenario
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, HoldfastError) as error:
        return f"{type(error).__name__}: {error}", scenario
    return None, scenario
