"""Moves open epochs away from workers that are lost, have started again or drain: clients then only read the places.

Rules
* Looked for when this master begins to lead, when workers were lost or are back, and when one registered: what is wrong
  is read from the state, so it does not matter which caller noticed it first, nor how far the leader before had come.
* All epochs of all shuffles go together, in as few commands as their bound allows, those of the applications that
  have been there longest first: these are taken to need their places for the longest. What is being committed stays.
* While a worker drains and open partitions are placed on it, it is looked at again and again; what is left there is
  kept for status requests (draining.py). It seals its epochs by itself as soon as it learns of the drain.
* What a worker had open before its latest start is then sealed there, in the background and in slices: unsealed files
  cannot be moved to another tier, and a small worker that is killed again and again would fill up with them. Which
  epochs those are is read from the state, so a new leader has them sealed again, and workers repeat their answers.
* With [placement] repair, epochs whose copies do not stand as wished move, too, as soon as they can stand better.
* Places are worked out in a thread where they are many.

Runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.drains import held
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import MOVES_PER_COMMAND_MAX
from holdfast.master.core.state.epochs import restarted
from holdfast.master.core.state.moves import EpochMove, pack_moves
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE, Shuffle, Worker
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader, WhileLeading
from holdfast.master.placement.groups import Adhering
from holdfast.master.placement.members import NotEnoughError
from holdfast.master.placement.replace import Moving, Replaced


class EpochMover(WhileLeading):
    """Moves epochs while this master is the leader."""

    def __init__(self, leader: Leader, fleet: Fleet, locations: Locations, sealing: Sealing, early: EarlySeals) -> None:
        super().__init__(leader)
        self._fleet = fleet
        self._locations = locations
        self._sealing = sealing
        self._early = early
        #: shuffles of which nothing was placed on these draining workers, as their record was
        self._clear: dict[ShuffleKey, tuple[Shuffle, frozenset[int]]] = {}
        #: shuffles that cannot move without breaking what placement enforces
        self._stuck: set[ShuffleKey] = set()

    def _reset(self) -> None:
        self._clear = {}

    async def _run(self) -> None:
        self._leader.workers_changed.set()
        while True:
            await self._leader.workers_changed.wait()
            self._leader.workers_changed.clear()
            try:
                done = await self._move()
                self._early.seal_left()
            except HoldfastError as error:
                log_event(LogEvent.EPOCHS_MOVE_FAILED, status=error.status.name, reason=error)
                done = False
            if not done:
                await asyncio.sleep(self._leader.config.lease.tick.seconds)
                self._leader.workers_changed.set()

    async def _move(self) -> bool:
        """EpochMove everything that has to; return whether nothing is left that could be moved later."""
        workers, suspects = self._leader.peek(_suspects)
        done = await self._move_all(workers, suspects)
        if self._fleet.section.repair:
            done = await self._repair() and done
        draining = self._leader.peek(
            lambda state: [one for each in state.draining if (one := state.workers[each]).alive]
        )
        if draining:
            return not await self._look(draining) and done
        self._clear = {}
        return done

    async def _look(self, draining: Sequence[Worker]) -> bool:
        """Take note of what is placed on draining workers now, or may still come there; return whether anything is."""
        numbers = frozenset(each.id for each in draining)
        epochs: Counter[int] = Counter()
        shuffles: Counter[int] = Counter()
        clear: dict[ShuffleKey, tuple[Shuffle, frozenset[int]]] = {}
        for shuffle in self._leader.peek(lambda state: _open_since(state, state.index)):
            known = self._clear.get(shuffle.key, (None, frozenset[int]()))
            if known[0] is not shuffle or not numbers <= known[1]:  # records never change: what was clear is still
                await asyncio.sleep(0)  # there may be thousands, of which each takes milliseconds
                newest = await self._locations.newest(shuffle)
                found = await off_loop(len(newest), partial(held, newest, numbers))
                epochs += found
                shuffles.update(found.keys())
                if found:
                    continue
            clear[shuffle.key] = shuffle, numbers
        self._clear = clear
        rings: Counter[int] = Counter()
        for shuffle in self._leader.peek(_open_maps):
            await asyncio.sleep(0)
            rings.update(numbers.intersection(MapAssignment.decode(shuffle.assignment).workers))
        self._leader.drains.looked(draining, epochs, shuffles, rings)
        return bool(epochs or rings)

    async def _move_all(self, workers: Mapping[int, Worker], suspects: Sequence[Shuffle]) -> bool:
        grace = self._fleet.in_grace()
        tags = self._fleet.tags_by_instance(suspects)
        kinds = {each.key: (each.ack, each.avoid, tags[each.key.instance]) for each in suspects}
        alike = {kinds[each.key]: each for each in suspects}
        candidates = {kind: self._fleet.candidates(each) for kind, each in alike.items()}
        done = not grace  # when it is over they move, or are back
        waiting: list[cmd.Revive] = []
        stuck: set[ShuffleKey] = set()
        rows = 0
        for shuffle in suspects:
            await asyncio.sleep(0)
            if self._sealing.begun(shuffle.key):
                done = False
                continue
            there = candidates[kinds[shuffle.key]]
            if not len(there):
                continue  # nowhere to go; the next worker that registers is looked at, and clients ask
            replacing = self._fleet.replacing(there, shuffle.copies_wanted)
            newest = await self._locations.newest(shuffle)
            try:
                moves, adhering = await off_loop(len(newest), partial(_moves, newest, workers, grace, replacing))
            except NotEnoughError as error:
                if shuffle.key not in self._stuck:  # it is tried again with every tick
                    log_event(LogEvent.EPOCHS_MOVE_FAILED, shuffle=shuffle.key, reason=error)
                stuck.add(shuffle.key)
                done = False
                continue
            if moves:
                self._fleet.chosen("moved", shuffle, there, adhering)
            for at in range(0, len(moves), MOVES_PER_COMMAND_MAX):
                part = moves[at : at + MOVES_PER_COMMAND_MAX]
                if rows + len(part) > MOVES_PER_COMMAND_MAX:
                    await self._submit(waiting)
                    waiting, rows = [], 0
                waiting.append(cmd.Revive(shuffle.key, pack_moves(part, shuffle.copies_wanted)))
                rows += len(part)
        self._stuck = stuck
        if waiting:
            await self._submit(waiting)
        return done

    async def _repair(self) -> bool:
        """Move what stands worse than it could; return whether nothing was left for later."""
        done = True
        for shuffle in self._leader.peek(lambda state: _open_since(state, state.index)):
            if shuffle.copies_wanted < 2 or shuffle.kind != KIND_REDUCE:
                continue
            if self._sealing.begun(shuffle.key):
                done = False
                continue
            await asyncio.sleep(0)
            there = self._fleet.candidates(shuffle)
            repairing = self._fleet.repairing(there, shuffle.copies_wanted)
            newest = await self._locations.newest(shuffle)
            found = await off_loop(len(newest), partial(repairing, [each.workers for each in newest]))
            if not found:
                continue
            self._fleet.chosen("repaired", shuffle, there, Adhering.of(Counter(how for _, how in found.values())))
            moves = [EpochMove(newest[at].partition, newest[at].epoch, group) for at, (group, _) in found.items()]
            for at in range(0, len(moves), MOVES_PER_COMMAND_MAX):
                rows = pack_moves(moves[at : at + MOVES_PER_COMMAND_MAX], shuffle.copies_wanted)
                await self._submit([cmd.Revive(shuffle.key, rows)])
        return done

    async def _submit(self, revives: Sequence[cmd.Revive]) -> None:
        body = cmd.MoveEpochs(tuple(revives))
        answer = self._leader.expect(await self._leader.proposer.submit(cmd.Command(body)))
        self._leader.counts.move_commands += 1
        self._leader.counts.moves += answer.value


def _suspects(state: State) -> tuple[dict[int, Worker], list[Shuffle]]:
    """Return all workers, and the open shuffles some of whose epochs may have to move."""
    since = state.index if state.not_alive or state.draining else state.newest_start
    return dict(state.workers), _open_since(state, since)


def _open_since(state: State, index: int) -> list[Shuffle]:
    return [shuffle for shuffle in state.every_shuffle() if shuffle.open_since(index)]


def _open_maps(state: State) -> list[Shuffle]:
    return [each for each in state.every_shuffle() if each.kind == KIND_MAP and not each.committed_ms]


def _moves(
    newest: Sequence[PlacedEpoch],
    workers: Mapping[int, Worker],
    grace: Collection[int],
    replacing: Callable[[Sequence[Moving]], Replaced],
) -> tuple[list[EpochMove], Adhering]:
    """Return new places for the partitions of a shuffle that stand on a worker that is lost, and has been for longer
    than its grace, that drains, or that has started since; and how far these are as wished."""

    def bad(number: int, index: int) -> bool:
        worker = workers.get(number)
        if worker is not None and not worker.alive and number in grace:
            return False
        return worker is None or not worker.alive or worker.draining_ms > 0 or restarted(worker, index)

    moving = [
        (each, leaves)
        for each in newest
        if (leaves := frozenset(one for one in each.workers if bad(one, each.placed_index)))
    ]
    found = replacing([Moving(each.workers, leaves, frozenset()) for each, leaves in moving])
    moves = [
        EpochMove(each.partition, each.epoch, group) for (each, _), group in zip(moving, found.groups, strict=True)
    ]
    return moves, found.adhering
