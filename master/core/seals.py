"""One commit's collection of seal answers: whom to ask for what, when it is enough, and the manifest that follows.

Rules
* Every epoch that was ever placed is asked for on every worker that holds a copy.
* A worker that is away is waited for until its caller gives it up, but not for epochs whose other copy is sealed.
* A worker that does not know an epoch is believed only if it has not started since, or kept all it acknowledged
  (epochs.vouches); otherwise that copy is lost.

Pure; driven by master/service/sealing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from holdfast.common.errors import Status
from holdfast.common.ids import NO_WORKER, Epoch, PartitionId, WorkerId
from holdfast.common.reduce_layouts import CopyResult, EpochResult
from holdfast.common.reduce_messages import SealedEpoch
from holdfast.master.core.epochs import vouches
from holdfast.master.core.records import Worker

EpochKey = tuple[int, int]


class PlacedEpoch(NamedTuple):
    """One epoch of a partition, where it was placed, and at which place in the log that was."""

    partition: int
    epoch: int
    primary: int
    replica: int
    placed_index: int


class Seals:
    """What is known of the epochs of one generation."""

    def __init__(self, epochs: Iterable[PlacedEpoch]) -> None:
        #: by partition and epoch
        self.epochs: dict[EpochKey, PlacedEpoch] = {}
        self._answers: dict[tuple[int, EpochKey], SealedEpoch] = {}
        self._open: dict[int, dict[EpochKey, None]] = {}
        self._given_up: set[int] = set()
        self.add(epochs)

    def add(self, epochs: Iterable[PlacedEpoch]) -> None:
        """Take in epochs; those that are known already stay as they are."""
        for placed in epochs:
            key = (placed.partition, placed.epoch)
            if key in self.epochs:
                continue
            self.epochs[key] = placed
            for worker in (placed.primary, placed.replica):
                if worker != NO_WORKER:
                    self._open.setdefault(worker, {})[key] = None

    @property
    def unanswered(self) -> list[int]:
        """Workers that have something to answer and were not given up."""
        return [worker for worker, left in self._open.items() if left and worker not in self._given_up]

    def missing(self, worker: int, most: int) -> list[EpochKey]:
        """Return what this worker has to answer next, at most so many epochs."""
        return list(islice(self._open.get(worker, ()), most))

    def answered(self, worker: int, record: Worker, ack: int, answers: Sequence[SealedEpoch]) -> None:
        """Take what a worker said; `record` is the start of it that answered."""
        left = self._open[worker]
        for each in answers:
            key = (each.partition, each.epoch)
            if key not in left:
                continue
            if each.status == Status.UNKNOWN_FILE and not vouches(record, self.epochs[key].placed_index, ack):
                each = each._replace(status=Status.DATA_LOST)
            self._answers[worker, key] = each
            del left[key]

    def give_up(self, worker: int) -> None:
        """Do not wait for this worker any more."""
        self._given_up.add(worker)

    def enough(self, away: Iterable[int] = ()) -> bool:
        """Whether nobody has to be waited for, if those `away` are waited for only where there is no other copy."""
        gone = set(away)
        return all(worker in gone and self._covered(worker) for worker in self.unanswered)

    def _covered(self, worker: int) -> bool:
        """Whether everything that this worker has to answer is sealed on another one."""
        for key in self._open[worker]:
            placed = self.epochs[key]
            other = placed.replica if worker == placed.primary else placed.primary
            answer = self._answers.get((other, key))
            if answer is None or answer.status != Status.OK:
                return False
        return True

    def results(self) -> list[EpochResult]:
        """Return the final word on every epoch, by partition and epoch; copies that said nothing are UNAVAILABLE."""
        return [
            EpochResult(
                PartitionId(placed.partition),
                Epoch(placed.epoch),
                self._copy(key, placed.primary),
                self._copy(key, placed.replica),
            )
            for key, placed in sorted(self.epochs.items())
        ]

    def _copy(self, key: EpochKey, worker: int) -> CopyResult:
        if worker == NO_WORKER:
            return CopyResult(NO_WORKER, Status.UNKNOWN_FILE, 0)
        answer = self._answers.get((worker, key))
        if answer is None:
            return CopyResult(WorkerId(worker), Status.UNAVAILABLE, 0)
        return CopyResult(WorkerId(worker), answer.status, answer.size_bytes)


def may_have_lost(epochs: Iterable[PlacedEpoch], workers: Mapping[int, Worker], ack: int) -> bool:
    """Whether some epoch has no copy on a worker that is alive and has kept what it acknowledged."""
    for placed in epochs:
        copies = [workers.get(worker) for worker in (placed.primary, placed.replica) if worker != NO_WORKER]
        if not any(copy is not None and copy.alive and vouches(copy, placed.placed_index, ack) for copy in copies):
            return True
    return False
