"""Restored copies: what workers had that are gone is copied again, from one worker to another.

Rules
* What is short of copies is read from manifests, as is what is being copied: whoever leads goes on. How long a worker
  is gone is known to each leader since it leads, so a new one waits anew. Who goes away at a time is gone from then on.
* First the places of copies are in the log, then they are made: one command of each kind replaces a manifest
  (manifests.py). Places are chosen as those of partitions that move (placement/replace.py).
* A worker sends to one other and takes from one at a time, at `worker.restore_rate`. Whom to ask for what is decided by
  core/restoring.py. A worker that fails is left alone for growing pauses.

Runs in the event loop, while this master is the leader.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import ReplicaPlace, Restore, SealedEpoch
from holdfast.common.ids import Incarnation, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.master.control.auditing import CopyAudit, Missing
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.control.manifests import replace_manifest, with_manifest
from holdfast.master.core.drains import ref_of
from holdfast.master.core.restoring import (
    Absent,
    Copying,
    CopyQueue,
    Short,
    Shortage,
    is_due,
    shortage,
    with_given_up,
    with_places,
    with_restored,
)
from holdfast.master.core.seals import EpochKey, PlacedEpoch
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE, Shuffle, Worker
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader, WhileLeading
from holdfast.master.leader.turns import turn
from holdfast.master.leader.worker_queues import WorkerQueues
from holdfast.master.observe.counts import ShortOfCopies
from holdfast.master.placement.members import NotEnoughError
from holdfast.master.placement.replace import Moving

_PAUSE_MIN_NS, _PAUSE_MAX_NS = 10**9, 60 * 10**9
_NOWHERE_NS = 10 * 10**9
#: So often copying an epoch has failed when a worker that has no room for it gives up its place.
_FULL_MAX = 4
#: Shuffles that are looked at before others have their turn.
_SLICE = 1_000


class _Absent(NamedTuple):
    """Workers that are lost; those that have been for so long that they are not waited for, and those that go away at
    a time; the latter."""

    lost: frozenset[int]
    gone: frozenset[int]
    departing: frozenset[int]

    def concerns(self, shuffle: Shuffle) -> frozenset[int]:
        """Of these a shuffle may have had a copy that it is short of now: of one copy none can be made of itself."""
        return self.lost | self.departing if shuffle.copies_wanted > 1 else self.departing


@dataclass(slots=True)
class _Look:
    """What one look at a shuffle has found, and of which record, while who was lost and gone."""

    shuffle: Shuffle
    absent: _Absent
    missing: Missing
    found: Shortage
    since_ns: int
    #: nobody could take its copies: until then it is not tried again, unless something changes
    rests_until_ns: int = 0


class CopyRestorer(WhileLeading):
    """Has copies made of what is short of them."""

    def __init__(self, leader: Leader, fleet: Fleet, locations: Locations, asker: Asker) -> None:
        super().__init__(leader)
        section = leader.config.worker
        self._after_ns, self._rate = section.restore_after.ns, int(section.restore_rate)
        self._fleet = fleet
        self._locations = locations
        self._asker = asker
        self._audit = CopyAudit(leader, asker, self._after_ns)
        #: a queue for each worker that makes copies, apart from those of seals: copies take long
        self._queues = WorkerQueues(leader.fail)
        self._reset()

    def _reset(self) -> None:
        self._looks: dict[ShuffleKey, _Look] = {}
        #: who was not there at the last look
        self._absent = _Absent(frozenset(), frozenset(), frozenset())
        #: on which workers that go away an open shuffle is placed, or one of MAP partitions, by their records
        self._placed: dict[ShuffleKey, tuple[Shuffle, frozenset[int], frozenset[int]]] = {}
        self._queue_of: dict[ShuffleKey, CopyQueue] = {}
        self._queues.clear()
        self._audit.reset()
        #: workers that make a copy, or send one
        self._busy: set[int] = set()
        self._tries: dict[ShuffleKey, Counter[EpochKey]] = {}
        #: by worker that failed, until when it is left alone, and how long that pause is
        self._paused: dict[int, tuple[int, int]] = {}
        #: by shuffle what workers said that is not in its manifest yet
        self._heard: dict[ShuffleKey, dict[int, dict[EpochKey, SealedEpoch]]] = {}
        #: one manifest is replaced at a time: more would only be in each other's way
        self._turn = asyncio.Lock()
        self._leader.short = ShortOfCopies()

    async def _run(self) -> None:
        while self._after_ns:
            try:
                await self._look()
            except HoldfastError as error:
                log_event(LogEvent.RESTORE_FAILED, status=error.status.name, reason=error)
            await asyncio.sleep(self._leader.config.lease.tick.seconds)

    # Who is gone, and what is missing.

    def _judge(self, absent: Collection[Worker], draining: Iterable[Worker]) -> tuple[_Absent, int]:
        """Return who is not there, and in how many ns the next one of them is gone, 0 if none will be."""
        now = self._leader.now_ns()
        going = frozenset(each.id for each in draining if each.leaves_ms)
        lost = frozenset(each.id for each in absent)
        left = {
            each.id: self._after_ns - self._leader.liveness.worker_silence(now, each.id, each.incarnation)
            for each in absent
            if not each.gone and each.id not in going
        }
        removed = frozenset(each.id for each in absent if each.gone)
        gone = going.union(removed, [number for number, ns in left.items() if ns <= 0])
        return _Absent(lost, gone, going - lost), min([ns for ns in left.values() if ns > 0], default=0)

    async def _look(self) -> None:
        """Look at what is new, find places for what has none, and have copied what can be."""
        lives = self._leader.lives_changed
        workers, index, *some = self._leader.peek(_workers)
        absent, wait_ns = self._judge(*some)
        if absent == self._absent:
            absent = self._absent  # the same one is compared with in no time
        self._absent = absent
        self._audit.begin(index, workers)
        await self._look_at_all(absent, workers)
        await self._look_who_is_needed([workers[each] for each in absent.departing], lives)
        until_ns = self._leader.now_ns() + self._leader.config.lease.tick.ns
        for look in sorted(self._looks.values(), key=lambda each: (each.found.left, each.since_ns)):
            now = self._leader.now_ns()
            if now > until_ns:
                break  # the others come next: what has its places is copied meanwhile
            if look.found.short and now >= look.rests_until_ns and self._is_due(look):
                try:
                    await self._place(look, workers)
                except HoldfastError as error:  # it rests, and holds up no other
                    log_event(LogEvent.RESTORE_FAILED, shuffle=look.shuffle.key, status=error.status.name, reason=error)
        self._copy(workers)
        waits = [ns for ns in (wait_ns, self._audit.wait_ns()) if ns]
        self._leader.short = ShortOfCopies(
            sum(each.found.epochs for each in self._looks.values()),
            sum(len(each.found.copying) for each in self._looks.values()),
            self._leader.now_ms() + min(waits) // 10**6 if waits else 0,
        )

    async def _look_at_all(self, absent: _Absent, workers: Mapping[int, Worker]) -> None:
        """Find out what every committed shuffle is short of."""
        shuffles = self._leader.peek(
            lambda state: [
                each
                for each in state.every_shuffle()
                if each.committed_ms
                and each.kind == KIND_REDUCE
                and (each.copies_wanted > 1 or absent.departing or each.unsealed)
            ]
        )
        there = {each.key for each in shuffles}
        for key in [key for key in self._looks if key not in there]:
            self._forget(key)
        for number, shuffle in enumerate(shuffles):
            if shuffle.copies_wanted > 1 and self._audit.concerns(shuffle):
                self._audit.ask(shuffle, await self._locations.manifest_workers(shuffle))
            look, missing = self._looks.get(shuffle.key), self._audit.missing(shuffle.key)
            changed = look is None or look.shuffle is not shuffle or look.absent != absent or look.missing != missing
            if changed:
                await self._look_at(shuffle, absent, missing, workers)
            if changed or number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    async def _look_at(
        self, shuffle: Shuffle, absent: _Absent, missing: Missing, workers: Mapping[int, Worker]
    ) -> None:
        key, known = shuffle.key, self._looks.get(shuffle.key)
        found = Shortage()
        concerned = absent.concerns(shuffle)
        named = await self._locations.manifest_workers(shuffle) if concerned else frozenset[int]()
        if shuffle.unsealed or shuffle.under_replicated or concerned & named or missing.copies:
            away, host_of = Absent(absent.lost, absent.gone, *missing), partial(_host_of, workers)
            found = await with_manifest(
                shuffle, partial(shortage, wanted=shuffle.copies_wanted, absent=away, host_of=host_of)
            )
        since = known.since_ns if known is not None and known.found.epochs else self._leader.now_ns()
        self._looks[key] = _Look(shuffle, absent, missing, found, since)
        if found.copying:
            self._queue_of[key] = CopyQueue(found.copying, self._tries.setdefault(key, Counter()))
        else:
            self._queue_of.pop(key, None)

    async def _look_who_is_needed(self, departing: Collection[Worker], lives: int) -> None:
        """Count the shuffles for which each worker is needed that goes away, as it was at `lives`."""
        numbers = frozenset(each.id for each in departing)
        found: Counter[int] = Counter()
        shuffles = self._leader.peek(lambda state: list(state.every_shuffle())) if departing else []
        placed: dict[ShuffleKey, tuple[Shuffle, frozenset[int], frozenset[int]]] = {}
        for number, shuffle in enumerate(shuffles):
            look, known = self._looks.get(shuffle.key), self._placed.get(shuffle.key)
            if look is not None and look.shuffle is shuffle:
                found.update(numbers & look.found.needed)
            elif known is not None and known[0] is shuffle and known[1] == numbers:  # records never change
                placed[shuffle.key] = known
                found.update(known[2])
            else:
                on = await self._workers_of(shuffle, numbers)
                placed[shuffle.key] = shuffle, numbers, on
                found.update(on)
                await asyncio.sleep(0)
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        self._placed = placed
        self._leader.drains.looked_for_copies({ref_of(each): found[each.id] for each in departing}, lives)

    async def _workers_of(self, shuffle: Shuffle, numbers: frozenset[int]) -> frozenset[int]:
        """Which of these workers have, or may have, anything of a shuffle that was not looked through."""
        if shuffle.kind == KIND_MAP:
            return numbers.intersection(MapAssignment.decode(shuffle.assignment).workers)
        if shuffle.committed_ms:  # replaced since: whom its manifest names may have been made a copy
            return numbers & await self._locations.manifest_workers(shuffle)
        return await self._locations.with_epochs(shuffle, partial(_placed_on, numbers))

    def _forget(self, key: ShuffleKey) -> None:
        for part in (self._looks, self._queue_of, self._tries, self._heard):
            part.pop(key, None)
        self._audit.forget(key)

    def _is_due(self, look: _Look) -> bool:
        """A clock that is wrong may hasten it, and holds up nothing."""
        lived_ms = self._leader.now_ms() - look.shuffle.committed_ms
        waited_ms = (self._leader.now_ns() - look.since_ns) // 10**6
        return is_due(look.found.missing_bytes, self._rate, max(lived_ms, waited_ms))

    # Places.

    async def _place(self, look: _Look, workers: Mapping[int, Worker]) -> None:
        """Find places for copies of one shuffle, as far as there are any, and have them in the log."""
        shuffle, short = look.shuffle, look.found.short
        there = self._fleet.candidates(shuffle)
        look.rests_until_ns = self._leader.now_ns() + _NOWHERE_NS
        if not len(there):
            return
        on_host: dict[str, list[int]] = {}
        for each_worker in workers.values():
            on_host.setdefault(each_worker.host, []).append(each_worker.id)
        rows = [_moving(each, shuffle.copies_wanted, workers, on_host) for each in short]
        replacing = self._fleet.replacing(there, shuffle.copies_wanted)
        try:
            found = await off_loop(len(rows), partial(replacing, rows))
        except NotEnoughError:
            return  # they stay short, which is shown, until workers come
        groups = zip(short, found.groups, strict=True)
        places = {each.row: more for each, group in groups if (more := _new(each, group, workers))}
        if not places:
            return
        self._fleet.chosen("restored", shuffle, there, found.adhering)
        # Who goes away is read still: it keeps its name.
        change = partial(with_places, places=places, gone=look.absent.gone - look.absent.departing)
        version = shuffle.manifest_version
        async with turn(self._turn, "manifests"):
            now = self._leader.peek(lambda state: state.shuffle(shuffle.key))
            if now is not None and now.manifest_version == version:  # else it is looked at anew
                await replace_manifest(self._leader, shuffle.key, change)

    # Copies.

    def _copy(self, workers: Mapping[int, Worker]) -> None:
        """Ask every worker that has nothing to do."""
        now = self._leader.now_ns()
        if not self._queue_of:
            return
        idle = {each.id for each in workers.values() if each.alive} - self._busy
        queues: dict[int, list[tuple[int, ShuffleKey, CopyQueue]]] = {}
        for number, (key, queue) in enumerate(self._queue_of.items()):
            for target in queue.targets:
                if target in idle:
                    queues.setdefault(target, []).append((number, key, queue))
        for target, its_own in sorted(queues.items()):
            until, _ = self._paused.get(target, (0, 0))
            if target not in idle or now < until:
                continue
            offers = [
                (copying[0].left, number, key, source, copying)
                for number, key, queue in its_own
                if (next_ := queue.next(target, idle)) is not None
                for source, copying in (next_,)
            ]
            if not offers:
                continue
            _, _, key, source, copying = min(offers)
            if self._queues.add(target, partial(self._restore, key, workers[source], workers[target], copying)):
                self._busy |= {source, target}
                idle -= {source, target}

    async def _restore(self, key: ShuffleKey, source: Worker, target: Worker, copying: Sequence[Copying]) -> None:
        """Have some copies made, and say so in the manifest."""
        try:
            await self._ask(key, source, target, copying)
        except HoldfastError as error:
            log_event(LogEvent.RESTORE_FAILED, shuffle=key, worker=target.name, source=source.name, reason=error)
            tries = self._tries.setdefault(key, Counter())
            tries.update([each.key for each in copying])
            if (look := self._looks.get(key)) is not None:
                self._queue_of[key] = CopyQueue(look.found.copying, tries)
            _, length = self._paused.get(target.id, (0, _PAUSE_MIN_NS // 2))
            length = min(2 * length, _PAUSE_MAX_NS)
            self._paused[target.id] = self._leader.now_ns() + length, length
            if error.status is Status.DISK_FULL:
                await self._give_up(key, target, {each.key for each in copying if tries[each.key] >= _FULL_MAX})
        else:
            self._paused.pop(target.id, None)
        finally:
            self._busy -= {source.id, target.id}

    async def _give_up(self, key: ShuffleKey, target: Worker, epochs: Collection[EpochKey]) -> None:
        """A worker has no room for these: its places are others'."""
        try:
            async with turn(self._turn, "manifests"):
                await replace_manifest(self._leader, key, partial(with_given_up, target=target.id, keys=epochs))
        except HoldfastError as error:
            log_event(LogEvent.RESTORE_FAILED, shuffle=key, worker=target.name, reason=error)

    async def _ask(self, key: ShuffleKey, source: Worker, target: Worker, copying: Sequence[Copying]) -> None:
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        if shuffle is None:
            return
        restore = Restore(
            shuffle=key,
            ack=Ack(shuffle.ack),
            raft_index=RaftIndex(self._leader.index()),
            bytes_per_second=self._rate,
            source=ReplicaPlace(WorkerId(source.id), Incarnation(source.incarnation), source.data_address),
            epochs=[(*each.key, each.size_bytes) for each in copying],
        )
        answer = await self._asker.restore(target, restore)
        said: dict[EpochKey, SealedEpoch] = {(each.partition, each.epoch): each for each in answer.epochs}
        self._heard.setdefault(key, {})[target.id] = said
        try:
            async with turn(self._turn, "manifests"):
                # What others said of this shuffle meanwhile goes into the same command, which has the whole manifest.
                heard = self._heard.pop(key, None)
                added = await replace_manifest(self._leader, key, partial(with_restored, heard=heard)) if heard else 0
        finally:
            self._heard.get(key, {}).pop(target.id, None)  # what nobody wrote down is asked for again
        if added:
            self._leader.counts.restored_copies += added
            self._leader.counts.restored_bytes += sum(each.size_bytes for each in answer.epochs)


def _workers(state: State) -> tuple[dict[int, Worker], int, list[Worker], list[Worker]]:
    """Return all workers, where in the log their latest change is, who is not alive, and who drains."""
    workers = dict(state.workers)
    return (
        workers,
        state.workers_index,
        [workers[each] for each in state.not_alive],
        [workers[each] for each in state.draining],
    )


def _host_of(workers: Mapping[int, Worker], number: int) -> Hashable:
    known = workers.get(number)
    return known.host if known is not None else number


def _placed_on(workers: frozenset[int], epochs: Iterable[PlacedEpoch]) -> frozenset[int]:
    return workers.intersection([worker for each in epochs for worker in each.workers])


def _moving(short: Short, wanted: int, workers: Mapping[int, Worker], on_host: Mapping[str, Collection[int]]) -> Moving:
    """An epoch as one that moves away from the workers that are gone. What shares a host with a copy is avoided."""
    away = short.left_by[: wanted - len(short.stay)]
    hosts = {workers[one].host for one in short.stay if one in workers}
    avoid = frozenset(short.left_by).union(*[on_host[host] for host in hosts])
    return Moving((*short.stay, *away), frozenset(away), avoid)


def _new(short: Short, group: Collection[int], workers: Mapping[int, Worker]) -> list[int]:
    """Who of a group gets a copy: living workers on hosts that have none."""
    hosts = {workers[one].host for one in short.stay if one in workers}
    found = [
        one
        for one in group
        if one not in short.left_by
        and (worker := workers.get(one)) is not None
        and worker.alive
        and worker.host not in hosts
    ]
    return found[: short.missing]
