"""Decides which copies of committed epochs are made again, where, and in which order they are carried out.

Rules
* A copy is gone once its worker has been lost for longer than `worker.restore_after`, or has not had it any more for
  so long, as the disk where it was is another one now; before, it is waited for. One
  that failed is gone, too; one that was never placed was promised to nobody. An epoch that has no copy left, or nothing
  in it, is left alone. Where a host goes away at a time (`drain --by`) its copies are gone already, and can be read.
* A place for a copy is in the manifest before it is made: NOT_SEALED there says that it is being made. So any leader
  goes on where the one before was, and a reader takes it for what it is, a copy that cannot be read yet.
* Nothing is taken out of a manifest while there is room: a worker that is back has its copy still. Where an epoch names
  as many as it can, what failed goes first, then what is gone. What is incomplete stays: its worker may have it sealed,
  and would answer for it if it were to make a copy.
* Those with the fewest copies left come first. A worker sends to one and takes from one at a time. What failed is tried
  alone, behind the others, and of another source. A worker that has no room for it again and again has failed.
* Copying is worth it for a shuffle that lives for longer than copying takes: who has lived for so long is taken for one
  that will, so short ones are left alone.

Pure. Driven by master/control/restoring.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import WorkerId
from holdfast.common.limits import COPIES_MAX, MIB, RESTORE_EPOCHS_MAX
from holdfast.common.statuses import Status
from holdfast.master.core.seals import EpochKey

#: A copy of a shuffle: worker, partition, epoch.
CopyKey = tuple[int, int, int]
#: One request copies so much, or one epoch: others wait for its worker meanwhile, and what fails is copied again.
REQUEST_BYTES = 256 * MIB


class Short(NamedTuple):
    """An epoch that needs more copies than it has and will have."""

    #: in the manifest
    row: int
    #: who has a copy, or will have one
    stay: tuple[int, ...]
    #: who had one: it is gone, or the copy failed
    left_by: tuple[int, ...]
    #: copies that can be read now
    left: int
    missing: int
    size_bytes: int


class Copying(NamedTuple):
    """A copy that has its place and is to be made."""

    #: copies that can be read now
    left: int
    partition: int
    epoch: int
    size_bytes: int
    target: int
    #: who has it sealed, and is there; where nobody is, who is to make it, and may have done so unheard
    sources: tuple[int, ...]

    @property
    def key(self) -> EpochKey:
        """Of the epoch."""
        return self.partition, self.epoch


@dataclass(slots=True)
class Shortage:
    """What a manifest lacks. `epochs` of it have fewer copies that can be read than were asked for."""

    epochs: int = 0
    short: list[Short] = field(default_factory=list)
    copying: list[Copying] = field(default_factory=list)
    #: who is gone, is there, and has a copy, or may have one, of what the others have too few of
    needed: set[int] = field(default_factory=set)

    @property
    def missing_bytes(self) -> int:
        """What is to be copied for which there is no place yet."""
        return sum(each.missing * each.size_bytes for each in self.short)

    @property
    def left(self) -> int:
        """The fewest copies that any of these epochs has."""
        return min([*[each.left for each in self.short], *[each.left for each in self.copying]], default=COPIES_MAX)


class Absent(NamedTuple):
    """Which copies cannot be read now: of workers that are `lost`, and `without`, (worker, partition, epoch) that a
    living worker does not have any more. Of those that are `gone` and `gone_without` none is waited for any more."""

    lost: Collection[int] = frozenset()
    gone: Collection[int] = frozenset()
    without: Collection[CopyKey] = frozenset()
    gone_without: Collection[CopyKey] = frozenset()

    def is_lost(self, epoch: EpochResult, copy: CopyResult) -> bool:
        """Whether a copy cannot be read now."""
        return copy.worker in self.lost or (copy.worker, epoch.partition, epoch.epoch) in self.without

    def is_gone(self, epoch: EpochResult, copy: CopyResult) -> bool:
        """Whether it is not waited for any more."""
        return copy.worker in self.gone or (copy.worker, epoch.partition, epoch.epoch) in self.gone_without


def shortage(
    epochs: Sequence[EpochResult], wanted: int, absent: Absent, host_of: Callable[[int], Hashable]
) -> Shortage:
    """Look through a manifest of a shuffle that should have so many copies. Copies on one host count as one: a worker
    that was lost may be back where its copy was made again by another worker of its host."""
    found = Shortage()
    for row, each in enumerate(epochs):
        if any(copy.status is Status.UNKNOWN_FILE for copy in each.copies):
            continue  # nothing was acknowledged in it
        sealed = [copy for copy in each.readable if not absent.is_lost(each, copy)]
        most = min(wanted, len(each.copies))
        found.epochs += len(_apart(sealed, host_of)) < most
        there = [copy for copy in each.copies if not absent.is_gone(each, copy) and (copy.readable or copy.unsealed)]
        stay = _apart(there, host_of)
        # The longest has all that was acknowledged, whatever became of the others; it is waited for, unless it is gone.
        awaited = [copy for copy in each.readable if not (absent.is_lost(each, copy) and absent.is_gone(each, copy))]
        size = max((copy.size_bytes for copy in awaited), default=0)
        sources = tuple([copy.worker for copy in sealed if copy.size_bytes == size])
        if len(_apart([copy for copy in sealed if not absent.is_gone(each, copy)], host_of)) < most:
            found.needed |= {
                copy.worker
                for copy in each.copies
                if absent.is_gone(each, copy) and not absent.is_lost(each, copy) and _may_have(copy, sealed)
            }
        if sources and len(stay) < most:
            those = tuple([copy.worker for copy in stay])
            others = tuple([copy.worker for copy in each.copies if copy.worker not in those])
            found.short.append(Short(row, those, others, len(sealed), most - len(stay), size))
        found.copying += [
            Copying(len(sealed), each.partition, each.epoch, size, copy.worker, sources or (copy.worker,))
            for copy in there
            if copy.restoring
        ]
    found.copying.sort()
    return found


def _apart(copies: Sequence[CopyResult], host_of: Callable[[int], Hashable]) -> list[CopyResult]:
    """One copy of each host, those that can be read first."""
    found: dict[Hashable, CopyResult] = {}
    for copy in sorted(copies, key=lambda copy: not copy.readable):
        found.setdefault(host_of(copy.worker), copy)
    return [copy for copy in copies if copy in found.values()]


def _may_have(copy: CopyResult, sealed: Sequence[CopyResult]) -> bool:
    """Whether a worker that is there has a copy, as far as a manifest says. What is to be sealed later it has; what it
    is to make it may have unheard, which counts where there is no other."""
    return copy.readable or (copy.unsealed and not (copy.restoring and sealed))


def with_places(
    epochs: Sequence[EpochResult], places: Mapping[int, Sequence[int]], gone: Collection[int]
) -> tuple[EpochResult, ...]:
    """Return a manifest with places for more copies, by row; those that an epoch cannot name are left out."""
    return tuple([_placed(each, places[row], gone) if row in places else each for row, each in enumerate(epochs)])


def _placed(epoch: EpochResult, workers: Sequence[int], gone: Collection[int]) -> EpochResult:
    """Needless are, first to go, those that failed, and then those that are gone: of these what was never sealed."""

    def needed(copy: CopyResult) -> int:
        if copy.status is Status.INCOMPLETE:
            return 3
        if copy.worker in gone:
            return 1 + copy.readable
        return 3 if copy.readable or copy.unsealed else 0

    known = {copy.worker for copy in epoch.copies}
    more = [CopyResult(WorkerId(one), Status.NOT_SEALED, 0) for one in workers if one not in known]
    kept = list(epoch.copies)
    while len(kept) + len(more) > COPIES_MAX:
        least = min(kept, key=needed)
        if needed(least) == 3:
            more.pop()
        else:
            kept.remove(least)
    return epoch._replace(copies=(*kept, *more))


def with_restored(
    epochs: Iterable[EpochResult], heard: Mapping[int, Mapping[EpochKey, SealedEpoch]]
) -> tuple[EpochResult, ...]:
    """Return a manifest with what workers said, by their numbers, of the copies that they were to make; what is said
    already stays. Whatever one has in place of a copy has failed: it says nothing about what others have."""

    def now(epoch: EpochResult, copy: CopyResult) -> CopyResult:
        said = heard.get(copy.worker) if copy.restoring else None
        answer = said.get((epoch.partition, epoch.epoch)) if said is not None else None
        if answer is None:
            return copy
        made = answer.status is Status.OK
        return CopyResult(copy.worker, *((Status.OK, answer.size_bytes) if made else (Status.FAILED_COPY, 0)))

    return tuple([each._replace(copies=tuple([now(each, copy) for copy in each.copies])) for each in epochs])


def with_given_up(epochs: Iterable[EpochResult], target: int, keys: Collection[EpochKey]) -> tuple[EpochResult, ...]:
    """Return a manifest without these copies that a worker was to make and has no room for, where others have one."""

    def now(epoch: EpochResult, copy: CopyResult) -> CopyResult:
        ends = copy.worker == target and copy.restoring and epoch.readable and (epoch.partition, epoch.epoch) in keys
        return copy._replace(status=Status.FAILED_COPY) if ends else copy

    return tuple([each._replace(copies=tuple([now(each, copy) for copy in each.copies])) for each in epochs])


class CopyQueue:
    """What is to be copied of one shuffle, by the worker that makes the copies, fewest copies left first."""

    def __init__(self, copying: Iterable[Copying], tries: Mapping[EpochKey, int]) -> None:
        """`copying` is sorted; `tries`: how often copying an epoch has failed."""
        self._tries = tries
        self._of: dict[int, list[Copying]] = {}
        for each in copying:
            self._of.setdefault(each.target, []).append(each)
        for those in self._of.values():
            those.sort(key=lambda each: tries.get(each.key, 0))

    @property
    def targets(self) -> Collection[int]:
        """Who has copies to make."""
        return self._of.keys()

    def next(self, target: int, idle: Collection[int]) -> tuple[int, list[Copying]] | None:
        """Return what this worker is to copy next, and of which of those workers that have nothing to do; None if it
        cannot copy anything now."""
        for at, first in enumerate(self._of.get(target, ())[:RESTORE_EPOCHS_MAX]):
            tries = self._tries.get(first.key, 0)
            sources = [one for one in first.sources if one in idle]
            if sources:
                source = sources[tries % len(sources)]
                return source, [first] if tries else self._with(target, at, source)
        return None

    def _with(self, target: int, at: int, source: int) -> list[Copying]:
        """The one at this place, and what can be copied together with it."""
        found: list[Copying] = []
        size = 0
        for each in self._of[target][at:]:
            if source not in each.sources or self._tries.get(each.key, 0):
                continue
            size += each.size_bytes
            if found and (size > REQUEST_BYTES or len(found) == RESTORE_EPOCHS_MAX):
                break
            found.append(each)
        return found


def is_due(missing_bytes: int, bytes_per_second: int, lived_ms: int) -> bool:
    """Whether a shuffle has lived for as long as copying so much of it takes."""
    return lived_ms * bytes_per_second >= missing_bytes * 1_000
