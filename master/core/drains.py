"""What keeps draining workers from being restarted or removed, and which workers a person means.

Rules: pure; kept in the leader's memory, so that a new leader has it after one check and a heartbeat of every worker.
A worker may be restarted when no open partition is placed on it and nothing is being written there; it may be removed
when it keeps nothing besides, or where its host goes away at a time nothing of which others have too few copies
(docs/internals/adr/0022-drain.md). Until everything is reported its state stays. Called by
master/control/draining.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.common.errors import error_for
from holdfast.common.sizes import counted
from holdfast.common.statuses import Status
from holdfast.common.worker_states import GONE
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state.commands import WorkerRef
from holdfast.master.core.state.records import Worker

#: Workers that a refusal names.
_NAMED_MAX = 20


class Placed(NamedTuple):
    """Open partitions on one worker: how many, of how many shuffles. `rings`: open MAP shuffles whose maps may still
    come to it, where all others of their ring refuse them."""

    epochs: int = 0
    shuffles: int = 0
    rings: int = 0


class Kept(NamedTuple):
    """What a draining worker says that it has: unsealed epochs and files, shuffles of which it keeps anything."""

    writing: int
    shuffles: int


class DrainVerdict(NamedTuple):
    """Whether a worker may be restarted, and removed; what is missing for the next of the two, "" where nothing is."""

    restart: bool
    removal: bool
    waits: str


class Drains:
    """What is placed on the draining workers, as the leader last looked, and what they kept when that was most."""

    def __init__(self) -> None:
        self._placed: dict[WorkerRef, Placed] = {}
        #: when, and how many shuffles
        self._most: dict[WorkerRef, tuple[int, int]] = {}
        #: of workers whose host goes away at a time: how many shuffles would lose a copy with them
        self._needed: dict[WorkerRef, int] = {}
        #: how often workers had been lost or back when that was counted
        self._lives = 0

    def looked(
        self, draining: Iterable[Worker], epochs: Counter[int], shuffles: Counter[int], rings: Counter[int]
    ) -> None:
        """Take what was found of all workers that drain, by number."""
        self._placed = {ref_of(each): Placed(epochs[each.id], shuffles[each.id], rings[each.id]) for each in draining}
        self._most = {ref: most for ref, most in self._most.items() if ref in self._placed}

    def looked_for_copies(self, needed: Mapping[WorkerRef, int], lives: int) -> None:
        """Take for how many shuffles each worker whose host goes away is needed, as workers had been lost and back so
        often when the look began."""
        self._needed, self._lives = dict(needed), lives

    def needed(self, worker: Worker, kept: Kept, lives: int) -> Kept:
        """Return what would be lost with it of what it keeps: of the rest others have their copies. Where workers were
        lost since, by `lives`, it is needed until that was looked at."""
        found = self._needed.get(ref_of(worker), kept.shuffles)
        return kept._replace(shuffles=min(kept.shuffles, found if lives == self._lives else max(found, 1)))

    def heard(self, worker: Worker, kept: Kept, now_ms: int) -> None:
        """A draining worker said what it keeps."""
        if kept.shuffles >= self._most.get(ref_of(worker), (0, 0))[1]:
            self._most[ref_of(worker)] = now_ms, kept.shuffles

    def reach(self, worker: Worker, kept: Kept | None, removal: bool, now_ms: int) -> str:
        """Say whether a worker may be removed when its host goes away, by how shuffles have gone so far: reached, in
        time, late, or unknown while none has."""
        left = worker.leaves_ms - now_ms
        if removal:
            return "reached"
        if left <= 0:
            return "late"
        since, most = self._most.get(ref_of(worker), (now_ms, 0))
        gone = most - kept.shuffles if kept is not None else 0
        if kept is None or gone <= 0:
            return "unknown"
        return "in time" if (now_ms - since) * kept.shuffles <= left * gone else "late"

    def placed(self, worker: Worker) -> Placed | None:
        """Return what is placed on this start of a worker; None before the first check of its drain."""
        return self._placed.get(ref_of(worker)) if worker.draining_ms else None

    def forget(self, worker: Worker) -> None:
        """What was seen of it counts no more."""
        self._placed.pop(ref_of(worker), None)
        self._most.pop(ref_of(worker), None)
        self._needed.pop(ref_of(worker), None)


def ref_of(worker: Worker) -> WorkerRef:
    """Name a start of a worker."""
    return WorkerRef(worker.id, worker.incarnation)


def held(newest: Iterable[PlacedEpoch], workers: frozenset[int]) -> Counter[int]:
    """Count the epochs that have a copy on each of these workers."""
    found: Counter[int] = Counter()
    for each in newest:
        for worker in each.workers:
            if worker in workers:
                found[worker] += 1
    return found


def judge(placed: Placed | None, kept: Kept | None, others: bool) -> DrainVerdict:
    """Say how far a drain is; `others` says whether another worker takes its data."""
    waits = ""
    if not others:
        waits = "no other worker takes its data, so nothing can be handed on: start one, or cancel the drain"
    elif placed is None:
        waits = "the leader has not checked yet"
    elif placed.epochs:
        partitions = counted(placed.epochs, "open partition")
        waits = f"{partitions} of {counted(placed.shuffles, 'shuffle')} take their batches there"
    elif kept is None:
        waits = "the worker has not received the drain yet"
    elif kept.writing:
        waits = f"epochs and map files that are not sealed there: {kept.writing}"
    if waits:
        return DrainVerdict(restart=False, removal=False, waits=waits)
    assert placed is not None
    assert kept is not None
    if kept.shuffles:
        return DrainVerdict(True, False, f"it keeps data of {counted(kept.shuffles, 'shuffle')}")
    if placed.rings:
        return DrainVerdict(True, False, f"maps of {counted(placed.rings, 'open shuffle')} may still come there")
    return DrainVerdict(True, True, "")


def named(workers: Sequence[Worker], texts: Sequence[str]) -> list[Worker]:
    """Return the workers meant by names of hosts, by names of workers where no host has that name, or by numbers where
    neither has; each once. A host means its workers without those that are gone, unless all are, and comes first
    because its first worker often has its name: who is about to stop a machine must not have drained one of several.

    Raises HoldfastError (UNKNOWN_WORKER) with those that there are.
    """
    by_name = {each.name: each for each in workers}
    by_number = {str(each.id): each for each in workers}
    by_host: dict[str, list[Worker]] = {}
    gone_of_host: dict[str, list[Worker]] = {}
    for each in workers:
        (gone_of_host if each.state == GONE else by_host).setdefault(each.host, []).append(each)
    found: dict[int, Worker] = {}
    for text in texts:
        worker = by_name.get(text) or by_number.get(text)
        meant = by_host.get(text) or ([worker] if worker is not None else gone_of_host.get(text, []))
        if not meant:
            names = sorted(by_name)
            more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            there = f"there are {', '.join(names[:_NAMED_MAX])}{more}" if names else "none is known"
            raise error_for(Status.UNKNOWN_WORKER, f'there is no worker or host "{text[:255]}"; {there}')
        found |= {each.id: each for each in meant}
    return list(found.values())
