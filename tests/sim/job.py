"""What the driver and its executors do: shuffles one after another, in several generations, written, committed, read.

Beside the job guest applications come, work and fall silent, and a watcher asks every master what it believes.
Shuffles are dropped now and then; a zombie of the driver and one of a task then try to go on with them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.client.core.read.fetch import OpenStream
from holdfast.client.write.status import PushStatus, push_winners_of
from holdfast.common.errors import ApplicationGoneError, DataError, GiveUpError, HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_layouts import ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import Seal, SealFlag
from holdfast.common.ids import Generation, Instance, RaftIndex, ShuffleId, ShuffleKey, StateId
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.worker.storage.layout import EpochKey
from tests.sim.client import HOLDER, Executor, Plan, Reader, ShuffleHere, commit, manifest_of, push
from tests.sim.clock import Violation, here, pause
from tests.sim.network import Dialer

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

INSTANCE = Instance(b"i" * 16)
GUESTS = tuple(Instance(letter * 16) for letter in (b"g", b"j", b"k", b"l", b"n", b"o"))
GUEST_HOLDER = b"G" * 16
#: The driver's lease outlasts all faults, if the masters hear its renewals.
LEASE_MS = 6_000
GUEST_LEASE_MS = 1_500
#: In calm an unknown lease is over, and everything dropped is deleted, after so long.
FORGET_SECONDS = 60.0
_UNKNOWN = frozenset({Status.UNKNOWN_SHUFFLE, Status.UNKNOWN_GENERATION, Status.APPLICATION_GONE})


@dataclass
class Done:
    """A committed generation, and what a first reader found."""

    shuffle: ShuffleHere
    winners: bytes
    picked: dict[int, int]
    whole: bool
    manifest: ReduceManifest | None = None


class Job:
    """The work of one world."""

    def __init__(self, world: Scenario) -> None:
        self.world = world
        self.rng = world.rng
        #: where it is, for people
        self.where = ""
        self.attempts = self.reads = self.lost_reads = 0
        #: committed and not dropped
        self._living: dict[ShuffleKey, Done] = {}
        #: registered, as the driver was told, and not dropped
        self._known: dict[ShuffleKey, ShuffleHere] = {}
        self._zombies: list[asyncio.Task[Any]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._guests_came: list[Instance] = []
        #: set by the scenario
        self.guests: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """All of it; runs as the driver."""
        control = _control()
        application = pb.RegisterApplicationRequest(
            instance=INSTANCE, name="sim", user="u", holder=HOLDER, lease_ms=LEASE_MS
        )
        await control.call("Shuffles/RegisterApplication", application, 240.0)
        self._keeper = asyncio.create_task(self._keep_lease(control))
        number = generation = 0
        while True:
            done = await self._shuffle(control, ShuffleKey(INSTANCE, ShuffleId(number), Generation(generation)))
            if done is not None and self.world.calm:
                break
            if self.rng.random() < 0.4:
                await self._tidy(control)
            if done is None or self.rng.random() < (0.25 if done.whole else 0.7):
                generation += 1
            else:
                number, generation = number + 1, 0
        if self.world.bucket is not None:
            await self._before_anybody_starts_anew()
        await self._again()
        if self.world.bucket is not None:
            for worker in self.world.workers:
                await self.world.oracle.away_again(worker)
        await self._forgotten(control)

    async def _keep_lease(self, control: Any) -> None:
        """As session.py."""
        while True:
            await pause(LEASE_MS / 3_000)
            try:
                request = pb.RenewLeaseRequest(instance=INSTANCE, holder=HOLDER)
                await control.call("Shuffles/RenewLease", request, LEASE_MS / 3_000)
            except RetryError:
                continue
            except HoldfastError as error:
                self.world.oracle.fail(f"the driver's lease ended though it was renewed: {error}")
                return

    # One generation.

    async def _shuffle(self, control: Any, key: ShuffleKey) -> Done | None:
        """Write, commit and read a generation; None if the masters let us go on to the next one without a commit."""
        world, rng = self.world, self.rng
        shuffle = await self._registered(control, key)
        key = shuffle.key
        self.where = f"{key}: maps"
        if self._hasty() and rng.random() < 0.5:
            self._zombies += [self._attempt(shuffle, number) for number in range(shuffle.maps)]
            await self._given_up(control, shuffle, [])
            return None
        statuses = await self._maps(shuffle)
        if statuses is None:
            await self._given_up(control, shuffle, [])
            return None
        if rng.random() < 0.08 and await self._skipped(control, key):
            return None
        winners = push_winners_of(statuses, key, shuffle.partitions).encode()
        if self._hasty():
            done = Done(shuffle, winners, {}, False)
            beside = [world.driver.run(commit(control, shuffle, winners))]
            beside += [each.run(self._glance(done)) for each in world.executors if rng.random() < 0.5]
            await self._given_up(control, shuffle, beside)
            return None
        picked: dict[int, int] = {status.map: status.attempt for status in statuses}
        done = Done(shuffle, winners, picked, True)
        self.where = f"{key}: commit"
        first = rng.random()
        if first < 0.3:
            await commit(control, shuffle, done.winners)
        # Who reads meanwhile may have nothing to offer, and wait for the driver's commit.
        offered = [done.winners if first < 0.6 else b"" for _ in world.executors]
        own = world.driver.run(commit(control, shuffle, done.winners)) if first >= 0.6 else None
        self.where = f"{key}: read"
        tasks = [each.run(self._read(done, offer)) for each, offer in zip(world.executors, offered, strict=True)]
        for task in tasks:
            await asyncio.wait((task,))
        if own is not None:
            await own
        for task in tasks:
            done.whole &= not task.cancelled() and task.result()
        if any(task.cancelled() for task in tasks):
            done.whole = await self._read(done, done.winners)
        self._living[key] = done
        return done

    def _hasty(self) -> bool:
        """Whether the driver gives up what it is at."""
        share = self.world.shape.hasty
        return share > 0 and not self.world.calm and self.rng.random() < share

    async def _given_up(self, control: Any, shuffle: ShuffleHere, beside: list[asyncio.Task[None]]) -> None:
        """A generation is dropped, with those before it, while it is written, committed, read, or moved."""
        self.where = f"{shuffle.key}: given up"
        await pause(self.rng.choice((0.05, 0.5, 2.5)) * self.rng.random())
        await self._drop(control, shuffle.key)
        if beside:
            await asyncio.wait(beside)

    async def _skipped(self, control: Any, key: ShuffleKey) -> bool:
        """Report that an open generation has lost data; whether the masters agree and opened the next."""
        after = ShuffleKey(key.instance, key.shuffle, Generation(key.generation + 1))
        try:
            await control.call("Shuffles/RegisterShuffle", self._request(after, failed_before=True), 60.0)
        except RetryError:
            return False
        except HoldfastError as error:
            if error.status not in (Status.GENERATION_CLOSED, Status.NO_ROOM):  # there may be no worker for a moment
                raise
            return False
        if not self.world.shape.faults:
            raise Violation(f"nothing has failed, and {after} is opened beside {key}")
        return True

    def _request(self, key: ShuffleKey, *, failed_before: bool = False) -> pb.RegisterShuffleRequest:
        shape = self.world.shape
        return pb.RegisterShuffleRequest(
            key=key_message(key),
            kind=pb.PARTITION_KIND_REDUCE,
            partitions=shape.partitions,
            maps=shape.maps,
            copies=shape.copies,
            ack=shape.ack,
            ack_copies=shape.ack_copies,
            holder=HOLDER if key.instance == INSTANCE else GUEST_HOLDER,
            failed_before=failed_before,
        )

    async def _registered(self, control: Any, key: ShuffleKey) -> ShuffleHere:
        world, shape = self.world, self.world.shape
        while True:
            try:
                reply = await control.call("Shuffles/RegisterShuffle", self._request(key), 60.0)
            except RetryError as error:
                if world.long_calm:
                    raise Violation(f"{key} cannot be registered: {error}") from error
            except HoldfastError as error:
                # There may be no worker for a moment.
                if error.status is not Status.NO_ROOM or (world.long_calm and not shape.capacity):
                    raise Violation(f"{key} cannot be registered: {error}") from error
            else:
                whole = key._replace(state=StateId(reply.state))
                known = ShuffleHere(whole, shape.ack, shape.partitions, shape.maps, reply, ack_copies=shape.ack_copies)
                self._known[whole] = known
                return self._known[whole]
            await pause(0.3)

    async def _maps(self, shuffle: ShuffleHere) -> list[PushStatus] | None:
        """Every map; None if one finds no room."""
        tasks = [asyncio.create_task(self._map(shuffle, number)) for number in range(shuffle.maps)]
        found = [status for status in [await task for task in tasks] if status is not None]
        return found if len(found) == len(tasks) else None

    async def _map(self, shuffle: ShuffleHere, number: int) -> PushStatus | None:
        """Run attempts until one ends well; sometimes two at once, of which one becomes the winner. None if workers are
        so small that there is no room, which the job makes by giving the shuffle up."""
        tries = 0
        while True:
            pair = [self._attempt(shuffle, number) for _ in range(2 if self.rng.random() < 0.3 else 1)]
            await asyncio.wait(
                pair, return_when=asyncio.FIRST_COMPLETED if self.rng.random() < 0.5 else "ALL_COMPLETED"
            )
            ended = [task for task in pair if task.done() and not task.cancelled() and task.exception() is None]
            if ended:
                return self.rng.choice(ended).result()
            errors = [task.exception() for task in pair if task.done() and not task.cancelled()]
            for error in errors:
                if not isinstance(error, HoldfastError):
                    raise error or AssertionError
            if self.world.shape.capacity and any(isinstance(error, NoRoomError) for error in errors):
                return None
            if not self.world.shape.faults:
                raise Violation(f"nothing has failed but map {number} of {shuffle.key}: {pair}")
            tries += self.world.calm
            if tries > 8:
                raise Violation(f"map {number} of {shuffle.key} does not end well: {pair}")
            await pause(0.3)

    def _attempt(self, shuffle: ShuffleHere, number: int, host: Executor | None = None) -> asyncio.Task[PushStatus]:
        rng, shape = self.rng, self.world.shape
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
        self.world.oracle.pushed[number, attempt] = book
        executor = host or rng.choice(self.world.executors)
        plan = Plan(number, attempt, records, shape.press, shape.pause if rng.random() < 0.7 else shape.pause * 4)
        self.world.oracle.kept[number, attempt] = plan.kept
        return executor.run(push(executor, shuffle, plan, rng))

    # Reading.

    async def _read(self, done: Done, winners: bytes) -> bool:
        """Read everything; returns whether it could be."""
        shuffle, oracle, world = done.shuffle, self.world.oracle, self.world
        reply = await manifest_of(_control(), shuffle, winners)
        manifest = ReduceManifest.decode(reply.manifest_array)
        oracle.named(shuffle.key, manifest, ReduceWinners.decode(reply.winners_array))
        whole = True
        for partitions, maps in self._pieces(shuffle):
            reader = Reader(world.network, shuffle, reply, partitions, maps)
            reader.on_broken = partial(self._broken, shuffle.key)
            if reader.winners.attempts != tuple(done.picked[each] for each in sorted(done.picked)):
                raise Violation(f"{shuffle.key} is committed with other winners")
            self.reads += 1
            try:
                await reader.read()
            except RetryError as error:
                if world.long_calm:
                    raise Violation(f"{shuffle.key} cannot be read though all faults have ended: {error}") from error
                return await self._read(done, winners)  # nobody could say where the workers are; the task runs again
            except DataError as error:
                self.lost_reads += 1
                whole = False
                if not oracle.may_lose(shuffle.ack, shuffle.key):
                    raise Violation(f"nothing happened that may lose data, and: {error}") from error
                continue
            except GiveUpError as error:
                if world.long_calm or world.bucket is None or error.status is not Status.DISK_FAILED:
                    raise Violation(f"{shuffle.key} cannot be read: {error}") from error
                return await self._read(done, winners)  # the DFS was away for too long for a task, which runs again
            wanted = {each: attempt for each, attempt in done.picked.items() if maps is None or each in maps}
            for partition, got in reader.records.items():
                oracle.read(wanted, partition, got, shuffle.key)
        if whole:
            done.manifest = manifest
        return whole

    def _broken(self, shuffle: ShuffleKey, stream: OpenStream[Any], error: HoldfastError) -> None:
        """A stream has ended: what is sealed is not lost, though a reader would try again."""
        if error.status is Status.DATA_LOST:
            self.world.oracle.called_lost(stream.worker, [EpochKey(shuffle, *each) for each in stream.files], error)

    async def read_beside(self) -> None:
        """Read what is committed, again and again, until it is dropped or faults have ended."""
        while not self.world.calm:
            await pause(self.rng.uniform(0.0, 0.2))
            if not self._living:
                continue
            done = self.rng.choice([*self._living.values()])
            try:
                await self._read(done, done.winners)
            except (HoldfastError, Violation):
                if done.shuffle.key in self._living:
                    raise

    async def _glance(self, done: Done) -> None:
        """Begin to read what is dropped meanwhile: whatever comes, it is no answer."""
        with suppress(HoldfastError):
            reply = await manifest_of(_control(), done.shuffle, done.winners)
            every = list(range(done.shuffle.partitions))
            await Reader(self.world.network, done.shuffle, reply, every).read()

    def _pieces(self, shuffle: ShuffleHere) -> list[tuple[list[int], range | None]]:
        """All partitions of all maps; at once, by ranges of partitions, or by ranges of maps."""
        rng, every = self.rng, list(range(shuffle.partitions))
        how = rng.random()
        if how < 0.2:
            at = rng.randrange(shuffle.maps)
            return [(every, maps) for maps in (range(at), range(at, shuffle.maps)) if len(maps)]
        if how < 0.3:
            at = rng.randrange(shuffle.partitions)
            return [(some, None) for some in (every[:at], every[at:]) if some]
        return [(every, None)]

    async def _before_anybody_starts_anew(self) -> None:
        """Faults have ended: what was to go from the DFS goes, and what is there can be read, by those who met them;
        but for a worker whose index had a fatal error, which only a start mends."""
        self.where = "the DFS, before the last look"
        await self._until_gone(lambda: self.world.oracle.left_on_dfs(at_all=False))
        for done in [each for each in self._living.values() if each.whole][:2]:
            readable = await self._read(done, b"") or any(worker.store.failing for worker in self.world.workers)
            if not readable and not self.world.oracle.meddling:
                raise Violation(f"{done.shuffle.key} was read once, and cannot be read in calm")

    async def _again(self) -> None:
        """After a restart of every worker: the same data, the same answers to seals."""
        self.where = "the last look"
        kept = [done for done in self._living.values() if done.whole][-2:]
        if not kept:
            return
        for worker in self.world.workers:
            worker.crash(False)
            worker.start()
        await pause(4.0)
        for done in kept:
            if not await self._read(done, done.winners) and not self.world.oracle.meddling:
                raise Violation(f"{done.shuffle.key} was read once, and cannot be read after a restart")
        for worker in self.world.workers:
            await self._sealed_again(worker, kept[-1])

    @staticmethod
    async def _sealed_again(worker: Any, done: Done) -> None:
        assert done.manifest is not None, "it was read"
        asked: list[tuple[int, int]] = [
            (each.partition, each.epoch)
            for each in done.manifest.epochs
            if any(copy.worker == worker.number and not copy.restoring for copy in each.copies)
        ]
        seal = Seal(shuffle=done.shuffle.key, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=asked)
        while True:
            try:
                link = await Dialer.connect(worker.name, 1, Hello(role=Role.MASTER, cluster_id="sim"))
                await link.request(FrameType.SEAL, seal.encode())
            except RetryError:
                await pause(0.5)  # the masters have not accepted its start yet
            else:
                return

    # Dropping.

    async def _tidy(self, control: Any) -> None:
        """Look at an old generation again, or drop some."""
        old = [*self._living][:-1]
        if not old:
            return
        key = self.rng.choice(old)
        if self.rng.random() < 0.3:
            done = self._living[key]
            self.where = f"{key}: read again"
            if not await self._read(done, b"") and done.whole and not self.world.oracle.meddling:
                raise Violation(f"{key} was read once, and cannot be read again")
            return
        doomed = await self._drop(control, key)
        if self.rng.random() < 0.5:
            self._zombies.append(self._attempt(doomed[-1], self.rng.randrange(doomed[-1].maps)))

    async def _drop(self, control: Any, key: ShuffleKey) -> list[ShuffleHere]:
        """Drop a generation and all before it; return them."""
        self.where = f"{key}: dropped"
        doomed = [
            self._known.pop(each)
            for each in [*self._known]
            if each.shuffle == key.shuffle and each.generation <= key.generation
        ]
        for shuffle in doomed:
            self._living.pop(shuffle.key, None)
        request = pb.UnregisterShuffleRequest(key=key_message(key), holder=HOLDER)
        dropped = await control.call("Shuffles/UnregisterShuffle", request, 240.0)
        if dropped.dropped != len(doomed):
            raise Violation(f"{len(doomed)} generations up to {key} were known, {dropped.dropped} were dropped")
        for shuffle in doomed:
            await self._is_dropped(control, shuffle)
        return doomed

    async def _is_dropped(self, control: Any, shuffle: ShuffleHere) -> None:
        """Zombies of the driver are told that a generation is over."""
        key = shuffle.key
        for method, request in (
            ("Shuffles/RegisterShuffle", self._request(key)),
            ("Shuffles/GetManifest", pb.GetManifestRequest(key=key_message(key), holder=HOLDER)),
        ):
            try:
                await control.call(method, request, 240.0)
            except HoldfastError as error:
                # Without a worker for the moment a registration is refused before anybody looks closer.
                if error.status not in (Status.GENERATION_CLOSED, Status.UNKNOWN_GENERATION, Status.NO_ROOM):
                    raise Violation(f"{key} was dropped; {method} says {error}") from error
            else:
                raise Violation(f"{key} was dropped, and {method} answers as if it were there")

    async def guest(self, instance: Instance) -> None:
        """An application that registers, pushes, and is not heard of again."""
        control, key = _control(), ShuffleKey(instance, ShuffleId(0), Generation(0))
        shape = self.world.shape
        try:
            await control.call("Shuffles/RegisterApplication", _guest(instance))
            self._guests_came.append(instance)
            reply = await control.call("Shuffles/RegisterShuffle", self._request(key))
            key = key._replace(state=StateId(reply.state))
            shuffle = ShuffleHere(key, shape.ack, shape.partitions, shape.maps, reply, GUEST_HOLDER)
            statuses = [await self._attempt(shuffle, number, self.world.guest) for number in range(shuffle.maps)]
            if self.rng.random() < 0.5:
                await commit(control, shuffle, push_winners_of(statuses, key, shuffle.partitions).encode())
        except HoldfastError:
            return  # its lease may have ended while nobody could be reached

    async def _forgotten(self, control: Any) -> None:
        """In the end nobody has anything left of what is over, and it does not come again."""
        self.where = "forgetting"
        if self._zombies:
            await asyncio.wait(self._zombies)
        # Where the directories are full for good a guest would go on trying, and not fall silent.
        for guest in self.guests:
            guest.cancel()
        await self._until_gone(self._left)
        if self.world.bucket is not None:
            self.world.bucket.may_clean = True
            await self._until_gone(lambda: self.world.oracle.left_on_dfs(at_all=True))
        for instance in self._guests_came:
            try:
                await control.call("Shuffles/RegisterApplication", _guest(instance), 240.0)
            except ApplicationGoneError:
                continue
            raise Violation("an instance that is over was registered again")

    async def _until_gone(self, left: Callable[[], str]) -> None:
        end = self.world.loop.now + FORGET_SECONDS
        while why := left():
            if self.world.loop.now > end:
                raise Violation(why)
            await pause(0.5)

    def _left(self) -> str:
        """What should have been forgotten and is there; "" if nothing is."""
        state = self.world.cluster.truth()
        if any(instance in state.applications for instance in GUESTS):
            return "the lease of an application that fell silent does not end"
        for worker in self.world.workers:
            for key in worker.shuffles():
                if state.shuffle(key) is None:
                    return f"{worker.name} still has {key}, which was dropped"
            if half := worker.half_copies():
                return f"{worker.name} still has {half[0]}, which nobody copies any more"
        return self.world.oracle.left_on_dfs(at_all=False)

    async def watch(self) -> None:
        """Ask any master about what was registered: none may say that it is unknown."""
        world, rng = self.world, self.rng
        while not world.calm:
            await pause(rng.uniform(0.05, 0.5))
            if not self._known:
                continue
            key = [*self._known][-1]
            request = pb.GetManifestRequest(key=key_message(key), holder=HOLDER)
            name = rng.choice(world.cluster.names)
            try:
                await world.network.ask(name, "Shuffles/GetManifest", request, 2.0)
            except HoldfastError as error:
                if error.status in _UNKNOWN and key in self._known:
                    world.oracle.fail(f"{name} says of {key}, which is registered: {error}")


def _control() -> Any:
    return here.get().runtime.control()  # type: ignore[attr-defined]


def _guest(instance: Instance) -> pb.RegisterApplicationRequest:
    return pb.RegisterApplicationRequest(
        instance=instance, name="guest", user="u", holder=GUEST_HOLDER, lease_ms=GUEST_LEASE_MS
    )
