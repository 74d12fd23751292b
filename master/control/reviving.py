"""The call Revive: new places for REDUCE partitions whose epoch failed or is full, and copies that lack something.

Rules: what has a newer epoch already is answered from the state; so clients that all lost the same worker only read.
One command of a shuffle at a time: later callers wait and find most of what they need made. During a commit
nothing is made; afterwards the answer is COMMITTED. Epochs that were hard-split are handed on to be sealed early. Where
no worker has room nothing is made and the answer says so; sealing then is what lets their data go to another tier.
Copies that lack what was acknowledged are marked first: no client counts on what the masters have not recorded.

Runs in the event loop. Called by shuffles.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from holdfast.common.errors import GiveUpError, RetryError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import LONG_POLL_MS_MAX, REVIVE_EPOCHS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.statuses import bad_request
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import MOVES_PER_COMMAND_MAX
from holdfast.master.core.state.epochs import restarted
from holdfast.master.core.state.incomplete import Mark, pack_marks
from holdfast.master.core.state.moves import EpochMove, Moved, pack_moves
from holdfast.master.core.state.records import KIND_REDUCE, Shuffle
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.turns import turn
from holdfast.master.placement.members import NotEnoughError
from holdfast.master.placement.policy import Workers
from holdfast.master.placement.replace import Moving

#: Workers that one client may say it cannot use.
UNUSABLE_MAX = 10_000
#: Epochs that end while their worker lives: sealed at once, so that their data can go to another tier.
_SPLIT = frozenset({Status.HARD_SPLIT, Status.NO_ROOM, Status.DISK_FULL})
#: What says nothing against a worker.
_NO_ERRORS = _SPLIT | {Status.SOFT_SPLIT}


class Reviver:
    """Answers revives on the leader."""

    def __init__(self, leader: Leader, fleet: Fleet, locations: Locations, sealing: Sealing, early: EarlySeals) -> None:
        self._leader = leader
        self._fleet = fleet
        self._locations = locations
        self._sealing = sealing
        self._early = early
        self._turns: WeakValueDictionary[ShuffleKey, asyncio.Lock] = WeakValueDictionary()

    async def revive(self, shuffle: Shuffle, request: pb.ReviveRequest) -> tuple[list[pb.NewLocation], str]:
        """Return the newest location of each failed partition, in the order asked.

        Where no living worker has room for more: of those that have a newer one already, and which limits were met.
        Raises RetryError if no worker is alive.
        """
        named = max(len(request.failed), len(request.incomplete))
        if named > REVIVE_EPOCHS_MAX or len(request.unusable_workers) > UNUSABLE_MAX:
            raise bad_request(f"a revive names at most {REVIVE_EPOCHS_MAX} partitions and {UNUSABLE_MAX} workers")
        if shuffle.kind != KIND_REDUCE:
            raise bad_request("only REDUCE partitions are revived")
        key = shuffle.key
        self._leader.counts.revives += len(request.failed)
        await self._check(shuffle, [*request.failed, *request.incomplete])
        if request.incomplete:
            await self._mark(key, request.incomplete)
        newest, limits_met = self._newest(key, request.failed), ""
        if any(each is None for each in newest):
            lock = self._turns.get(key)
            if lock is None:
                lock = self._turns[key] = asyncio.Lock()
            await self._sealing.ended(key, LONG_POLL_MS_MAX / 1000)
            async with turn(lock, f"a revive of {key}"):
                newest = self._newest(key, request.failed)
                lacking = [each for each, there in zip(request.failed, newest, strict=True) if there is None]
                if lacking:
                    limits_met = await self._make(key, lacking, frozenset(request.unusable_workers))
                    newest = self._newest(key, request.failed)
        return [_message(each) for each in newest if each is not None], limits_met

    async def _mark(self, key: ShuffleKey, incomplete: Sequence[pb.IncompleteCopy]) -> None:
        """Have copies marked as incomplete. Raises ProtocolError for what is no copy, RerouteError (REPLICA_FAILED)
        where too few would be left."""
        shuffle = self._shuffle(key)
        wanted = {(each.partition, each.epoch) for each in incomplete}

        def find(epochs: Iterable[PlacedEpoch]) -> dict[tuple[int, int], PlacedEpoch]:
            return {one: each for each in epochs if (one := (each.partition, each.epoch)) in wanted}

        places = await self._locations.with_epochs(shuffle, find)
        marks: list[Mark] = []
        for each in incomplete:
            workers = places[each.partition, each.epoch].workers
            if each.worker not in workers:
                raise bad_request(f"worker {each.worker} has no copy of {key} partition {each.partition}")
            if each.worker not in places[each.partition, each.epoch].incomplete:
                most = len(workers) - min(shuffle.ack_copies, len(workers))
                marks.append(Mark(each.partition, each.epoch, each.worker, most))
        for at in range(0, len(marks), MOVES_PER_COMMAND_MAX):
            body = cmd.MarkIncomplete(key, pack_marks(marks[at : at + MOVES_PER_COMMAND_MAX]))
            answer = self._leader.expect(await self._leader.proposer.submit(cmd.Command(body)))
            self._leader.counts.copies_incomplete += answer.value

    async def _check(self, shuffle: Shuffle, failed: Sequence[pb.FailedEpoch | pb.IncompleteCopy]) -> None:
        """Refuse partitions and epochs that never were. Raises ProtocolError."""
        if any(each.partition >= shuffle.partitions for each in failed):
            raise bad_request(f"{shuffle.key} has {shuffle.partitions} partitions")

        def beyond(state: State) -> bool:
            newest = _moved(state, shuffle.key, failed)
            return any(each.epoch > _epoch(there) for each, there in zip(failed, newest, strict=True))

        # A leader that was replaced without knowing it may be behind what the client has seen.
        if self._leader.peek(beyond) and await self._leader.confirmed(beyond):
            raise bad_request(f"an epoch of {shuffle.key} is named that was never made")

    def _newest(self, key: ShuffleKey, failed: Sequence[pb.FailedEpoch]) -> list[Moved | None]:
        """Return the newest epoch of each where it is above the failed one. Raises GiveUpError (COMMITTED)."""

        def read(state: State) -> list[Moved | None] | None:
            shuffle = state.shuffle(key)
            if shuffle is None or shuffle.committed_ms:
                return None
            found = _moved(state, key, failed)
            return [
                there if there is not None and there.epoch > each.epoch else None
                for there, each in zip(found, failed, strict=True)
            ]

        found = self._leader.peek(read)
        if found is None:
            raise GiveUpError(f"{key} is committed, or was dropped; stop this attempt", status=Status.COMMITTED)
        return found

    async def _make(self, key: ShuffleKey, failed: Sequence[pb.FailedEpoch], unusable: frozenset[int]) -> str:
        """Have the next epoch of each made; return which limits were met where no worker has room, else ""."""
        failed, places_now = await self._where(key, failed)
        if not failed:
            return ""
        blamed = [_to_blame(each, at, unusable) for each, at in zip(failed, places_now, strict=True)]
        self._count_errors(failed, places_now, blamed)
        rows = [
            Moving(at.workers, blame.union(unusable.intersection(at.workers)), unusable, blame - unusable)
            for at, blame in zip(places_now, blamed, strict=True)
        ]
        try:
            places = await self._places(key, rows)
            limits_met = "" if places else self._no_room(key)
        except NotEnoughError as error:  # what is enforced cannot be had now: like room, it may come back
            places, limits_met = [], str(error)
            self._leader.counts.revives_without_room += 1
        if limits_met:
            self._leader.events.tell(LogEvent.PLACEMENT_NO_ROOM, what="partitions", reason=limits_met)
        moves = [
            EpochMove(each.partition, each.epoch, group) for each, group in zip(failed, places, strict=not limits_met)
        ]
        for at in range(0, len(moves), MOVES_PER_COMMAND_MAX):
            copies = self._shuffle(key).copies_wanted
            body = cmd.Revive(key, pack_moves(moves[at : at + MOVES_PER_COMMAND_MAX], copies))
            answer = self._leader.expect(await self._leader.proposer.submit(cmd.Command(body)))
            self._leader.counts.revive_commands += 1
            self._leader.counts.revives_made += answer.value
        self._fleet.placed()
        split = [at for each, at in zip(failed, places_now, strict=True) if each.status in _SPLIT]
        if split:
            self._early.seal(key, split)
        return limits_met

    def _shuffle(self, key: ShuffleKey) -> Shuffle:
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        if shuffle is None:
            raise GiveUpError(f"{key} was dropped", status=Status.UNKNOWN_GENERATION)
        return shuffle

    async def _places(self, key: ShuffleKey, rows: Sequence[Moving]) -> list[Workers]:
        """Return a place for each; none at all where nobody takes data."""
        shuffle = self._shuffle(key)
        candidates = self._fleet.candidates(shuffle)
        replacing = self._fleet.replacing(candidates, shuffle.copies_wanted)
        found = await off_loop(len(rows), lambda: replacing(rows))
        self._fleet.chosen("revived", shuffle, candidates, found.adhering)
        return found.groups

    def _count_errors(
        self, failed: Sequence[pb.FailedEpoch], places: Sequence[PlacedEpoch], blamed: Sequence[frozenset[int]]
    ) -> None:
        """Tell of workers that did not do what they were asked; a split, no room and a new start are no errors."""
        workers = self._leader.peek(lambda state: dict(state.workers))
        for each, at, blame in zip(failed, places, blamed, strict=True):
            if each.status in _NO_ERRORS:
                continue
            self._fleet.failed(
                one
                for one in blame
                if (worker := workers.get(one)) is not None and worker.alive and not restarted(worker, at.placed_index)
            )

    def _no_room(self, key: ShuffleKey) -> str:
        self._leader.counts.revives_without_room += 1
        limits_met = self._fleet.no_room(self._fleet.tags_of(key))
        if not limits_met:
            raise RetryError("no worker is alive; waiting for one")
        return limits_met

    async def _where(
        self, key: ShuffleKey, failed: Sequence[pb.FailedEpoch]
    ) -> tuple[list[pb.FailedEpoch], list[PlacedEpoch]]:
        """Return the failed epochs that are the newest of their partition still, and where they are.

        The others were moved while this waited: their newest epoch is elsewhere, and its workers did nothing wrong.
        """
        shuffle = self._shuffle(key)
        first = await self._locations.first(shuffle)

        def where(each: pb.FailedEpoch, moved: Moved | None) -> PlacedEpoch:
            workers = moved.workers if moved is not None else first.workers(each.partition)
            index = moved.made_index if moved is not None else shuffle.created_index
            return PlacedEpoch(each.partition, each.epoch, workers, index)

        moved = self._leader.peek(lambda state: _moved(state, key, failed))
        pairs = [(each, at) for each, at in zip(failed, moved, strict=True) if each.epoch == _epoch(at)]
        return [each for each, _ in pairs], [where(each, at) for each, at in pairs]


def _moved(state: State, key: ShuffleKey, failed: Sequence[pb.FailedEpoch | pb.IncompleteCopy]) -> list[Moved | None]:
    return state.moved(key, [each.partition for each in failed])


def _epoch(moved: Moved | None) -> int:
    return moved.epoch if moved is not None else 0


def _to_blame(failed: pb.FailedEpoch, at: PlacedEpoch, unusable: frozenset[int]) -> frozenset[int]:
    """Return whom to avoid: the worker that was pushed to, or the replicas that the client cannot use if that is what
    failed, all where it names none."""
    primary, *replicas = at.workers
    if failed.status != Status.REPLICA_FAILED:
        return frozenset((primary,))
    return unusable.intersection(replicas) or frozenset(replicas)


def _message(moved: Moved) -> pb.NewLocation:
    return pb.NewLocation(partition=moved.partition, epoch=moved.epoch, workers=moved.workers, hint=moved.hint)
