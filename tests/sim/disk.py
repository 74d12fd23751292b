"""A worker's disk, and the thin store on it that stands for worker/storage (whose own tests use real files).

The disk keeps what a real one would: after kill -9 everything that was written, after a power loss what was synced and
any beginning of the rest; a failed sync drops what it should have brought down, for good; who dies in the middle of a
write leaves a torn batch. The store does what reduce_store.py, reduce_seal.py and reduce_recovery.py do, by the same
rules; whether an epoch of an earlier start can be vouched for, what a batch is, and whether one is cut, is asked of the
product.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import CorruptError, HoldfastError, NoRoomError
from holdfast.common.formats.batch import HEADER, parse_batch, whole_batch_bytes
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey
from holdfast.common.sizes import UsageTotals
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import EpochState
from holdfast.worker.core.write.seen_batches import PushDecision
from holdfast.worker.core.write.space import Space
from holdfast.worker.server.membership.worker_identity import KeptIdentity
from holdfast.worker.storage.engine.rounds import Missing
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.recovery.reduce_recovery import Left, is_cut
from holdfast.worker.storage.store import DirectoryStatus
from tests.sim.clock import Life, Violation, VirtualLoop
from tests.support.storage_faults import Inline

#: Batches of a chunk, on even and on odd workers: few, so that epochs have several, and copies have others.
CHUNK_BATCHES = (2, 3)


class Name(NamedTuple):
    """A batch, as acknowledgements name it."""

    key: EpochKey
    map: int
    attempt: int
    number: int


@dataclass(eq=False)
class Pile:
    """What was written of one epoch and is not sealed."""

    ack: Ack
    incarnation: int
    boot: bytes
    batches: list[bytes] = field(default_factory=list)
    #: so many of them survive a power loss
    synced: int = 0
    #: a sync failed: what was not down then never will be
    rotten: int | None = None


@dataclass
class Sealed:
    """The index's entry of an epoch."""

    answer: SealedEpoch
    chunks: list[list[bytes]] = field(default_factory=list)


class Disk:
    """What outlives a worker's process."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.rng = rng
        self.uid = bytes((number,)) * 16
        self.chunk_batches = CHUNK_BATCHES[number % 2]
        self.directory = bytes((number, 1)) * 8
        self.incarnation = 0
        self.boots = 1
        self.piles: dict[EpochKey, Pile] = {}
        self.index: dict[EpochKey, Sealed] = {}
        self.final: dict[ShuffleKey, None] = {}
        self.failed: dict[EpochKey, None] = {}
        #: (worker, Raft index), as worker_identity.py keeps it
        self.standing: KeptIdentity | None = None
        self.full = False
        self.sick = 0.0
        #: appends until the process dies in the middle of one
        self.armed: int | None = None
        #: for the oracle: every batch that ever was in the kernel, and on the platter
        self.written: set[Name] = set()
        self.platter: set[Name] = set()
        #: and every epoch of which a write or sync failed
        self.poisoned: set[EpochKey] = set()

    @property
    def boot(self) -> bytes:
        return b"boot%d" % self.boots

    def shuffles(self) -> list[ShuffleKey]:
        """Every shuffle of which anything is here."""
        return sorted({key.shuffle for part in (self.index, self.piles, self.failed) for key in part} | {*self.final})

    def power_loss(self) -> None:
        """The machine goes down: of what was not synced some beginning may be left, the last batch cut."""
        self.boots += 1
        for key, pile in list(self.piles.items()):
            end = len(pile.batches) if pile.rotten is None else pile.rotten
            keep = self.rng.randint(min(pile.synced, end), end)
            del pile.batches[keep:]
            if keep > pile.synced and self.rng.random() < 0.5:
                pile.batches[-1] = pile.batches[-1][: self.rng.randrange(len(pile.batches[-1]) + 1)]
            if not pile.batches:
                del self.piles[key]

    def wipe(self) -> None:
        """The directory is replaced by an empty one."""
        self.directory = self.directory[:8] + self.rng.randbytes(8)
        self.piles, self.index, self.final, self.failed = {}, {}, {}, {}
        self.poisoned.clear()


def is_whole(batch: bytes) -> bool:
    """Whether a batch was not cut when it was written, and is one at all."""
    try:
        return whole_batch_bytes(memoryview(batch), 0) == len(batch)
    except CorruptError:
        return False


def key_of(state: EpochState) -> EpochKey:
    return EpochKey(state.shuffle, state.partition, state.epoch)


def name_of(key: EpochKey, batch: bytes | memoryview) -> Name:
    _, _, _, map_id, attempt, number, _, _ = HEADER.unpack_from(batch)
    return Name(key, map_id, attempt, number)


class Store:
    """The REDUCE partitions of one start of a worker; its `reduce` is itself, as PushService finds it."""

    def __init__(
        self,
        disk: Disk,
        life: Life,
        loop: VirtualLoop,
        crash: Callable[[], None],
        deleted: Callable[[ShuffleKey], None],
    ) -> None:
        self.disk, self._life, self._loop, self._crash, self._deleted = disk, life, loop, crash, deleted
        self.worker_uid, self.boot_id, self.files = disk.uid, disk.boot.decode(), 0
        self.reduce = self
        self.full = False
        self.sealing: dict[EpochKey, Future[dict[EpochKey, SealedEpoch]]] = {}
        self._mine: dict[EpochKey, Pile] = {}
        self.speed = 0.01
        self.away = None
        #: one directory, and nowhere to move to; its `choose` and `step`
        self.tiering = self

    # writing

    def choose(self, hint: int, ack: Ack) -> int | None:
        return None if self.disk.full else 0

    def step(self, now: float) -> list[tuple[int, int]]:
        return []

    def look(self, share: float, reserve: int) -> list[Space | None]:
        return [Space(0, 1 << 41, 0 if self.disk.full else 1 << 40, 0, 0, 0, share)]

    def limits_met(self, share: float, reserve: int, least: int) -> list[str]:
        return ["the disk is full" if self.disk.full else ""]

    def held(self) -> Iterator[tuple[ShuffleKey, UsageTotals]]:
        """What is sealed; what is open write/reduce.py counts."""
        return ((key.shuffle, UsageTotals(sealed.answer.size_bytes, 1)) for key, sealed in self.disk.index.items())

    def has_file(self, state: EpochState) -> bool:
        return key_of(state) in self._mine

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[tuple[int, int]]]:
        disk = self.disk
        keys = [key for part in (disk.index, disk.piles, disk.failed) for key in part if key.shuffle == shuffle]
        return shuffle in disk.final, [(key.partition, key.epoch) for key in keys if key not in self._mine]

    def begin(self, state: EpochState) -> None:
        key = key_of(state)
        if key in self.disk.index:
            raise Violation(f"{self._life.host} opens {key}, which is sealed")
        if key in self.disk.piles:
            raise Violation(f"{self._life.host} incarnation {self.disk.incarnation} appends to {key} of an earlier one")
        self._mine[key] = Pile(state.ack, self.disk.incarnation, self.disk.boot)

    def append(self, decision: PushDecision, rows: bytes | memoryview, body: memoryview) -> list[tuple[int, Status]]:
        disk = self.disk
        if not self._life.alive:
            return []
        taken = [index for index, state in enumerate(decision.states) if state is not None]
        if disk.full:
            return [(index, Status.NO_ROOM) for index in taken]
        if disk.sick and disk.rng.random() < disk.sick:
            self.disk.poisoned.update(key_of(state) for state in decision.states if state is not None)
            for index in taken:
                self.give_up(decision.states[index], OSError(5, "a write failed"))
            return [(index, Status.FAILED_COPY) for index in taken]
        torn = self._torn(len(taken))
        offset = 0
        for entry, state in zip(decision.push.entries, decision.states, strict=True):
            piece = bytes(body[offset : offset + entry[3]])
            offset += entry[3]
            if state is not None and torn:
                self._put(key_of(state), piece)
                torn -= 1
            elif state is not None:
                self._put(key_of(state), piece[: disk.rng.randrange(len(piece))])
                break
        return []

    def _torn(self, count: int) -> int:
        """How many batches are written before the process dies; -1 for all of them."""
        disk = self.disk
        if disk.armed is None:
            return -1
        disk.armed -= 1
        if disk.armed >= 0:
            return -1
        disk.armed = None
        self._crash()
        return disk.rng.randint(0, count)

    def _put(self, key: EpochKey, piece: bytes) -> None:
        if key in self.disk.index:
            raise Violation(f"{self._life.host} appends to {key} after its seal")
        pile = self._mine[key]
        self.disk.piles.setdefault(key, pile)
        pile.batches.append(piece)
        if is_whole(piece):
            self.disk.written.add(name_of(key, piece))

    def flush(self, states: Sequence[EpochState]) -> list[tuple[EpochState, Status]]:
        return []

    def give_up(self, state: EpochState | None, error: Exception) -> None:
        assert state is not None
        if (key := key_of(state)) in self._mine:
            self.mark_failed(key)

    def mark_failed(self, key: EpochKey) -> None:
        """Given up for good: the mark is synced."""
        if self._life.alive:
            self.disk.failed[key] = None

    def sync(self, decision: PushDecision) -> list[Future[Missing]]:
        future: Future[Missing] = Future()
        piles = {(key := key_of(state)): self._mine[key] for state in decision.states if state is not None}
        counts = {key: len(pile.batches) for key, pile in piles.items()}

        def done() -> None:
            if self.bring_down(piles, counts) is None:
                future.set_result(frozenset())
                return
            missing = [key for key, pile in piles.items() if self._mine.get(key) is pile]
            for key in missing:
                self.mark_failed(key)
            future.set_result(frozenset(missing))

        self._loop.on(self._life, self.disk.rng.uniform(0.0, self.speed), done)
        return [future]

    def bring_down(self, piles: dict[EpochKey, Pile], counts: dict[EpochKey, int]) -> OSError | None:
        """Sync files; one for which it failed is never tried again."""
        disk = self.disk
        for key, pile in piles.items():
            down = pile.synced >= counts[key]  # a seal was faster
            if pile.rotten is None and not down and disk.sick and disk.rng.random() < disk.sick:
                pile.rotten = pile.synced
                disk.poisoned.add(key)
        if any(self.refuses(pile) for pile in piles.values()):
            return OSError(5, "a sync failed")
        for key, pile in piles.items():
            pile.synced = max(pile.synced, counts[key])
            end = pile.synced if pile.rotten is None else min(pile.rotten, pile.synced)
            disk.platter.update([name_of(key, batch) for batch in pile.batches[:end]])
        return None

    @staticmethod
    def refuses(pile: Pile) -> bool:
        """Whether a sync of this file failed."""
        return pile.rotten is not None

    # sealing

    def seal(
        self, shuffle: ShuffleKey, final: bool, epochs: Sequence[tuple[int, int]]
    ) -> list[tuple[EpochKey, Future[dict[EpochKey, SealedEpoch]] | SealedEpoch]]:
        disk = self.disk
        told: list[tuple[EpochKey, Future[dict[EpochKey, SealedEpoch]] | SealedEpoch]] = []
        todo: dict[EpochKey, None] = {}
        job: Future[dict[EpochKey, SealedEpoch]] = Future()
        for partition, epoch in epochs:
            key = EpochKey(shuffle, PartitionId(partition), Epoch(epoch))
            if key in self.sealing:
                told.append((key, self.sealing[key]))
            elif key in disk.index:
                told.append((key, disk.index[key].answer))
            elif key in disk.piles or key in disk.failed or key in self._mine:
                todo[key] = None
                self.sealing[key] = job
                told.append((key, job))
            else:
                told.append((key, SealedEpoch(key.partition, key.epoch, Status.UNKNOWN_FILE)))
        if todo or (final and self.past(shuffle)[1] and shuffle not in disk.final):
            self._loop.on(
                self._life, disk.rng.uniform(0.0, self.speed), lambda: self.run_seal(job, shuffle, final, list(todo))
            )
        return told

    def run_seal(
        self, job: Future[dict[EpochKey, SealedEpoch]], shuffle: ShuffleKey, final: bool, keys: list[EpochKey]
    ) -> None:
        """The whole job: sync everything, one transaction, the answer."""
        disk = self.disk
        for key in keys:
            self.sealing.pop(key, None)
        if disk.full and disk.rng.random() < 0.5:
            job.set_exception(NoRoomError("the disk is full", status=Status.DISK_FULL))
            return
        sealed = {key: self.seal_one(key) for key in keys}
        disk.index.update(sealed)
        if final:
            disk.final[shuffle] = None
        for key in keys:
            disk.piles.pop(key, None)
            self._mine.pop(key, None)
        answers = {key: one.answer for key, one in sealed.items()}
        # A crash may come between the transaction and the answer.
        self._loop.on(self._life, disk.rng.uniform(0.0, self.speed), lambda: job.set_result(answers))

    def seal_one(self, key: EpochKey) -> Sealed:
        """Make one epoch final."""
        disk = self.disk
        pile = disk.piles.get(key)
        if key in disk.failed:
            return self._end(key, Status.FAILED_COPY)
        if pile is None:
            return self._end(key, Status.UNKNOWN_FILE)
        batches = pile.batches
        if key not in self._mine:
            left = Left(key, ack=pile.ack, boots={pile.boot})
            if left.doubt(disk.boot):
                return self._end(key, Status.DATA_LOST)
            found = self.recovered(key, pile)
            if found is None:
                return self._end(key, Status.DATA_LOST)
            pile.batches = batches = found
        if self.bring_down({key: pile}, {key: len(pile.batches)}) is not None:
            disk.failed[key] = None
            return self._end(key, Status.FAILED_COPY)
        if not batches:
            return self._end(key, Status.UNKNOWN_FILE)
        chunks = [batches[at : at + disk.chunk_batches] for at in range(0, len(batches), disk.chunk_batches)]
        crc_sum = sum(HEADER.unpack_from(batch)[7] for batch in batches) & 0xFFFF_FFFF_FFFF_FFFF
        size = sum(map(len, batches))
        answer = SealedEpoch(key.partition, key.epoch, Status.OK, size, len(batches), len(chunks), crc_sum)
        return Sealed(answer, chunks)

    def recovered(self, key: EpochKey, pile: Pile) -> list[bytes] | None:
        """The batches that an earlier start left, each once; None if they are damaged. See reduce_recovery.py."""
        data = memoryview(b"".join(pile.batches))
        seed = partition_seed(key.shuffle, key.partition)
        found: dict[Name, bytes] = {}
        at = 0
        while at < len(data):
            try:
                _, end = parse_batch(data, at, seed)
            except CorruptError:
                if pile.boot == self.disk.boot and not is_cut(data, at):
                    return None
                break
            piece = bytes(data[at:end])
            found.setdefault(name_of(key, piece), piece)
            at = end
        return list(found.values())

    @staticmethod
    def _end(key: EpochKey, status: Status) -> Sealed:
        return Sealed(SealedEpoch(key.partition, key.epoch, status))

    def finish_jobs(self) -> None:
        """Nothing is left to take in."""

    def hangs(self, shuffle: ShuffleKey) -> str:
        """These disks always end what they began."""
        return ""

    def tick(self) -> None:
        """Nothing to let go of."""

    # what registration.py asks and says

    def dfs(self) -> None:
        """There is none."""

    def directories(self) -> list[DirectoryStatus]:
        free = 0 if self.disk.full else 1 << 40
        return [
            DirectoryStatus(
                id=self.disk.directory,
                path=f"/{self._life.host}",
                tier="SSD",
                capacity_bytes=1 << 40,
                used_bytes=0,
                free_bytes=free,
                healthy=True,
                problem="",
            )
        ]

    def shuffles(self) -> list[ShuffleKey]:
        return self.disk.shuffles()

    def folders(self) -> set[ShuffleKey]:
        return set()

    def lanes(self) -> list[tuple[Path, Inline]]:
        return [(Path(self._life.host), Inline())]

    def forget(self, keys: Iterable[ShuffleKey]) -> Future[int]:
        """Delete shuffles; one that is being sealed goes when it is asked about next."""
        disk = self.disk
        busy = {key.shuffle for key in self.sealing}
        for shuffle in [key for key in keys if key not in busy]:
            self._deleted(shuffle)
            disk.final.pop(shuffle, None)
            for part in (disk.index, disk.piles, disk.failed, self._mine):
                for key in [key for key in part if key.shuffle == shuffle]:
                    del part[key]
        return _zero()

    def remove_leftovers(self, keys: Iterable[ShuffleKey]) -> Future[int]:
        """Of MAP partitions only."""
        return _zero()

    # reading

    def chunks(self, key: EpochKey) -> list[list[bytes]]:
        """The chunks of a sealed epoch. Raises HoldfastError."""
        sealed = self.disk.index.get(key)
        if sealed is None:
            known = key in self.disk.piles or key in self.disk.failed
            raise HoldfastError(f"{key}", status=Status.NOT_SEALED if known else Status.UNKNOWN_FILE)
        if sealed.answer.status != Status.OK:
            raise HoldfastError(f"{key}", status=sealed.answer.status)
        return sealed.chunks


def _zero() -> Future[int]:
    future: Future[int] = Future()
    future.set_result(0)
    return future
