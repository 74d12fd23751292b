"""One commit's collection of seal answers: whom to ask for what, when it is enough, and the manifest that follows.

Rules
* Every epoch that was ever placed is asked for on every worker that holds a copy.
* A worker that is away is waited for until its caller skips it, but not for epochs of which another copy is known.
* What a worker said nothing of may be said later (`with_late`), by the same rules; what was said stays.
* A copy is known if it is sealed, or if its worker never had a batch of it: what was acknowledged to a winner is on all
  copies that are not incomplete, so then nothing was.
* A copy that is incomplete is not asked for: whatever its worker has of it is no copy.
* A worker that does not have an epoch is trusted only if it has not started since, or kept all it acknowledged
  (epochs.vouches); otherwise that copy is lost.

Pure; driven by commit.py, and by master/control/late.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import NamedTuple

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import NO_WORKER, Epoch, PartitionId, WorkerId
from holdfast.common.statuses import Status
from holdfast.master.core.state.epochs import has_kept, restarted, vouches
from holdfast.master.core.state.records import Worker

EpochKey = tuple[int, int]
#: In place of a status: nothing was said.
_SILENT = 0xFFFF
#: Epochs sorted at a time.
_SLICE = 32_768
#: What a worker says of a copy that makes the others needless.
_KNOWN = frozenset({int(Status.OK), int(Status.UNKNOWN_FILE)})
_STATUSES = {int(status): status for status in Status}


class PlacedEpoch(NamedTuple):
    """One epoch of a partition, where it was placed, and at which place in the log that was."""

    partition: int
    epoch: int
    #: of its copies, the primary first
    workers: tuple[int, ...]
    placed_index: int
    #: those of them whose copies lack something that was acknowledged
    incomplete: frozenset[int] = frozenset()


class Seals:
    """What is known of the epochs of one generation, in columns of numbers: there may be millions."""

    def __init__(self, copies: int, epochs: Iterable[PlacedEpoch] = ()) -> None:
        """`copies`: so many an epoch has at most."""
        self._partitions, self._epochs = array("I"), array("I")
        self._placed = array("Q")
        #: by copy, the primary's first: worker, status, size
        self._sides = range(copies)
        self._workers = [array("I") for _ in self._sides]
        self._statuses = [array("H") for _ in self._sides]
        self._sizes = [array("Q") for _ in self._sides]
        #: row by partition and epoch, in one number
        self._rows: dict[int, int] = {}
        self._left: dict[int, _Left] = {}
        self._given_up: set[int] = set()
        self.add(epochs)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, epochs: Iterable[PlacedEpoch]) -> None:
        """Take in epochs; those that are known already stay as they are, but for copies that are incomplete by now."""
        for partition, epoch, workers, placed_index, incomplete in epochs:
            key, row = partition << 32 | epoch, len(self._rows)
            if self._rows.setdefault(key, row) != row:
                for worker in incomplete:
                    self._give_up_copy(self._rows[key], worker)
                continue
            self._partitions.append(partition)
            self._epochs.append(epoch)
            self._placed.append(placed_index)
            for side in self._sides:
                worker = workers[side] if side < len(workers) else NO_WORKER
                self._workers[side].append(worker)
                self._statuses[side].append(Status.INCOMPLETE if worker in incomplete else _SILENT)
                self._sizes[side].append(0)
                if worker != NO_WORKER and worker not in incomplete:
                    self._left.setdefault(worker, _Left()).add(row)
        assert len(self._placed) == len(self._statuses[-1]) == len(self._rows), (
            "columns are as long as there are epochs"
        )

    def _give_up_copy(self, row: int, worker: int) -> None:
        """A copy is incomplete, whatever its worker has said of it."""
        side = self._side(row, worker)
        if side is None or self._statuses[side][row] == Status.INCOMPLETE:
            return
        self._left[worker].count -= self._statuses[side][row] == _SILENT
        self._statuses[side][row], self._sizes[side][row] = Status.INCOMPLETE, 0

    @property
    def copies(self) -> int:
        """Copies of all epochs."""
        return sum(len(left.rows) for left in self._left.values())

    @property
    def settled(self) -> int:
        """Copies with an answer, or whose worker was skipped."""
        return self.copies - sum(left.count for one, left in self._left.items() if one not in self._given_up)

    @property
    def unanswered(self) -> list[int]:
        """Workers that have something to answer and were not skipped."""
        return [worker for worker, left in self._left.items() if left.count and worker not in self._given_up]

    def missing(self, worker: int, most: int) -> list[EpochKey]:
        """Return what this worker has to answer next, at most so many epochs."""
        return [(self._partitions[row], self._epochs[row]) for row in islice(self._silent(worker), most)]

    def answered(self, worker: int, record: Worker, ack: int, answers: Sequence[SealedEpoch]) -> None:
        """Take what a worker said; `record` is the start of it that answered."""
        for partition, epoch, status, size, *_ in answers:
            row = self._rows.get(partition << 32 | epoch, -1)
            side = self._side(row, worker) if row >= 0 else None
            if side is None or self._statuses[side][row] != _SILENT:
                continue
            if status == Status.UNKNOWN_FILE and not vouches(record, self._placed[row], ack):
                status = Status.DATA_LOST
            self._statuses[side][row] = status
            self._sizes[side][row] = size
            self._left[worker].count -= 1
            assert self._left[worker].count >= 0, f"worker {worker} answers for each copy once"

    def heard(self, record: Worker, ack: int, wanted: Sequence[EpochKey], answers: Sequence[SealedEpoch]) -> None:
        """Take what a worker said when it was asked for these. Raises ProtocolError if that is about others."""
        self.answered(record.id, record, ack, answers)
        if self.missing(record.id, len(wanted)) == wanted:
            raise ProtocolError(f'worker "{record.name}" answered a seal with other epochs')

    def give_up(self, worker: int) -> None:
        """Do not wait for this worker any more."""
        assert worker in self._left, f"worker {worker} was waited for"
        self._given_up.add(worker)

    def enough(self, away: Iterable[int] = ()) -> bool:
        """Whether no wait is needed, if those `away` are waited for only where they have the only copy."""
        gone = set(away)
        return all(worker in gone and self.covered(worker) for worker in self.unanswered)

    def covered(self, worker: int) -> bool:
        """Whether of everything that this worker has to answer another copy is known."""
        return all(any(self._statuses[side][row] in _KNOWN for side in self._sides) for row in self._silent(worker))

    def results(self) -> Iterator[EpochResult]:
        """Yield the final word on every epoch, by partition and epoch; copies that said nothing are UNAVAILABLE."""
        keys = iter(self._rows)
        # Sorted in slices: sorting all at once would hold up every other thread.
        for key in merge(*iter(lambda: sorted(islice(keys, _SLICE)), [])):
            row = self._rows[key]
            copies = tuple([self._copy(row, side) for side in self._sides if self._workers[side][row] != NO_WORKER])
            yield EpochResult(PartitionId(self._partitions[row]), Epoch(self._epochs[row]), copies)

    def _side(self, row: int, worker: int) -> int | None:
        return next((side for side in self._sides if self._workers[side][row] == worker), None)

    def _silent(self, worker: int) -> Iterator[int]:
        """Yield the rows that this worker has said nothing about."""
        left = self._left.get(worker, _Left())
        while left.begin < len(left.rows) and not self._is_silent(left.rows[left.begin], worker):
            left.begin += 1
        return (row for row in islice(left.rows, left.begin, None) if self._is_silent(row, worker))

    def _is_silent(self, row: int, worker: int) -> bool:
        return any(self._workers[side][row] == worker and self._statuses[side][row] == _SILENT for side in self._sides)

    def _copy(self, row: int, side: int) -> CopyResult:
        worker, status = self._workers[side][row], self._statuses[side][row]
        known = Status.UNAVAILABLE if status == _SILENT else _STATUSES[status]
        return CopyResult(WorkerId(worker), known, self._sizes[side][row])


@dataclass(slots=True)
class _Left:
    """What one worker has to answer: rows, those before `begin` answered, and how many are not."""

    rows: array[int] = field(default_factory=lambda: array("I"))
    begin: int = 0
    count: int = 0

    def add(self, row: int) -> None:
        self.rows.append(row)
        self.count += 1


class Tally(NamedTuple):
    """What a manifest says in numbers. `unsealed` are copies of which no worker said anything; `awaited` are the
    under-replicated epochs that have one."""

    epochs: int
    lost: int
    under_replicated: int
    awaited: int
    unsealed: int
    data_bytes: int


def tally(results: Sequence[EpochResult], wanted: int) -> Tally:
    """Count the copies in a manifest of a shuffle that should have so many."""
    size = sum(max(copy.size_bytes for copy in each.copies) for each in results)
    fewer = [each for each in results if each.under_replicated(wanted)]
    return Tally(
        len(results),
        sum(each.lost for each in results),
        len(fewer),
        sum(any(copy.unsealed for copy in each.copies) for each in fewer),
        sum(copy.unsealed for each in results for copy in each.copies),
        min(size, (1 << 64) - 1),
    )


def without_unwritten(results: Iterable[EpochResult], written: bytes | None) -> Iterator[EpochResult]:
    """Yield the results; a lost epoch of a partition for which no winner wrote anything is not lost: no reader needs a
    batch of it, so its copies count as never written to. `written` has a bit for each partition; None: not known."""
    for each in results:
        if written is None or not each.lost or written[each.partition >> 3] & (1 << (each.partition & 7)):
            yield each
        else:
            unwritten = (copy._replace(status=Status.UNKNOWN_FILE, size_bytes=0) for copy in each.copies)
            yield each._replace(copies=tuple(unwritten))


def unsealed(results: Iterable[EpochResult]) -> dict[int, set[EpochKey]]:
    """Return, by worker, the epochs of a manifest that it held, and of which it said nothing."""
    found: dict[int, set[EpochKey]] = {}
    for each in results:
        for copy in each.copies:
            if copy.unsealed and not copy.restoring:
                found.setdefault(copy.worker, set()).add((each.partition, each.epoch))
    return found


def with_late(results: Iterable[EpochResult], late: Seals) -> tuple[EpochResult, ...]:
    """Return a manifest's results with what was said later of copies of which nothing had been said; what was said
    at the commit stays, whatever is said now."""
    said = {(each.partition, each.epoch): each for each in late.results()}
    return tuple([_with_late(each, said.get((each.partition, each.epoch))) for each in results])


def _with_late(known: EpochResult, said: EpochResult | None) -> EpochResult:
    if said is None:
        return known
    now = {copy.worker: copy for copy in said.copies}
    return known._replace(
        copies=tuple([now.get(copy.worker, copy) if copy.unsealed else copy for copy in known.copies])
    )


def may_have_lost(epochs: Iterable[PlacedEpoch], workers: Mapping[int, Worker], ack: int) -> bool:
    """Whether some epoch has no copy on a worker that is alive and has kept what it acknowledged."""
    for placed in epochs:
        copies = [workers.get(worker) for worker in placed.workers if worker not in placed.incomplete]
        if not any(copy is not None and copy.alive and has_kept(copy, placed.placed_index, ack) for copy in copies):
            return True
    return False


def left_behind(epochs: Iterable[PlacedEpoch], workers: Mapping[int, Worker]) -> dict[int, list[EpochKey]]:
    """Return, by worker, the epochs that these workers held before their latest start: nothing is added to them."""
    found: dict[int, list[EpochKey]] = {}
    for placed in epochs:
        for number in placed.workers:
            worker = workers.get(number)
            if worker is not None and restarted(worker, placed.placed_index):
                found.setdefault(number, []).append((placed.partition, placed.epoch))
    return found
