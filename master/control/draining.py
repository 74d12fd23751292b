"""Drains workers: starts and cancels drains, shows what draining workers still hold, and answers their heartbeats.
Removes workers that are lost.

Rules
* Draining is in the log, so every leader has it. It belongs to one start of a worker: a new start takes data again.
* A worker is only drained while another one takes its data, since nothing could be handed on otherwise: one that has
  those of its tags that somebody wants. One that is left alone later learns it from `heartbeat_answer` and takes pushes
  again; what is placed there stays until another comes.
* What is placed where is found by the mover (moving.py), what is being written is what the worker last said.

Runs in the event loop. Called by admin.py for people, by registry.py for workers that leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast.common.errors import ConflictError, NoRoomError
from holdfast.common.formats.messages import Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.tags import named as all_of
from holdfast.master.api.statuses import bad_request
from holdfast.master.core.drains import DrainVerdict, judge, named, ref_of
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import WORKERS_MAX
from holdfast.master.core.state.records import KIND_REDUCE, Worker
from holdfast.master.fleet.fleet import ANY, Fleet
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.turns import turn

#: How long the list of workers that take data is valid.
_TAKING_NS = 200_000_000
#: A time that a host goes away is no farther off.
WITHIN_MS_MAX = 366 * 24 * 3600 * 1000


class Draining:
    """Starts, cancels and reports drains on the leader."""

    def __init__(self, leader: Leader, fleet: Fleet) -> None:
        self._leader = leader
        self._fleet = fleet
        #: one check and what follows from it at a time, or two could drain everybody together
        self._turn = asyncio.Lock()
        #: by tags, two workers with them that took data a moment ago, if there are as many: with all workers draining
        #: each of them asks
        self._taking: dict[frozenset[str], frozenset[int]] = {}
        self._taking_until_ns = 0
        self._taking_lives = -1
        #: starts of workers that were asked to end, by worker; they count as alive until their lease is over
        self._ending: dict[int, int] = {}

    def _takers(self, tags: frozenset[str]) -> Iterator[int]:
        """The workers that take new data with these tags."""
        return (one.worker for one, _ in self._fleet.taking(KIND_REDUCE, Ack.WRITTEN, tags))

    def _wanted(self, worker: Worker) -> frozenset[str]:
        """Those of its tags that somebody wants: who takes its data has them, too."""
        return self._fleet.wanted_tags().intersection(worker.tags) if worker.tags else ANY

    async def set(self, texts: Sequence[str], cancel: bool, within_ms: int = 0) -> list[Worker]:
        """Have the named workers drain, or take data again; return their records. `within_ms`: after that their hosts
        go away; 0: nothing is said of it.

        Raises HoldfastError (UNKNOWN_WORKER), ConflictError for a lost one, or to have one that is being stopped take
        data again, NoRoomError where no worker would be left.
        """
        if within_ms > WITHIN_MS_MAX or (cancel and within_ms):
            raise bad_request("a host goes away within a year, and a drain that is cancelled has no such time")
        async with turn(self._turn, "a drain"):
            meant = await self._meant(texts)
            if cancel:
                self._check_staying(meant)
            else:
                self._check(meant)
            await self._propose(meant, not cancel, self._leader.now_ms() + within_ms if within_ms else 0)
        return self._as_now(meant)

    async def remove(self, texts: Sequence[str]) -> list[Worker]:
        """Nobody needs these lost workers any more; return their records.

        Raises HoldfastError (UNKNOWN_WORKER), ConflictError for one that is alive, and for a name that means several.
        """
        meant = await self._meant(texts)
        for text in texts:
            there = [each for each in meant if each.host == text]
            if len(there) > 1 and any(each.name == text for each in there):
                those = ", ".join(f"{each.id} ({each.name})" for each in there)
                raise ConflictError(f'"{text}" is a worker and a host of several: name them by their numbers, {those}')
        refs = tuple(ref_of(each) for each in meant)
        if not any(each.alive for each in meant):
            self._leader.expect(await self._leader.proposer.submit(cmd.Command(cmd.SetWorkersAlive(False, (), refs))))
            meant = self._as_now(meant)
        living = [each.name for each in meant if each.alive]
        if living:
            raise ConflictError(f"{', '.join(living)}: not lost, and may have data; drain and stop it first")
        return meant

    async def _meant(self, texts: Sequence[str]) -> list[Worker]:
        if not 1 <= len(texts) <= WORKERS_MAX:
            raise bad_request(f"name 1 to {WORKERS_MAX} workers")
        return named(await self._leader.confirmed(lambda state: list(state.workers.values())), texts)

    def _as_now(self, workers: Sequence[Worker]) -> list[Worker]:
        numbers = [each.id for each in workers]
        return self._leader.peek(lambda state: [state.workers[number] for number in numbers])

    async def decommission(self, worker: Worker) -> Worker:
        """A worker is shutting down: drain it, unless no other worker takes data; return its record."""
        self._ending[worker.id] = worker.incarnation
        async with turn(self._turn, "a drain"):
            now = self._leader.peek(lambda state: state.workers[worker.id])
            if not now.draining_ms and any(each != worker.id for each in self._takers(self._wanted(now))):
                await self._propose([now], True)
        return self._leader.peek(lambda state: state.workers[worker.id])

    def others(self, worker: Worker) -> bool:
        """Whether another worker takes the data of this one, or did a moment ago."""
        now, lives = self._leader.now_ns(), self._leader.lives_changed
        if now >= self._taking_until_ns or lives != self._taking_lives:
            self._taking, self._taking_until_ns, self._taking_lives = {}, now + _TAKING_NS, lives
        tags = self._wanted(worker)
        if tags not in self._taking:
            self._taking[tags] = frozenset(islice(self._takers(tags), 2))
        return len(self._taking[tags] - {worker.id}) > 0

    def heartbeat_answer(self, worker: Worker) -> tuple[bool, bool]:
        """Return the answer to the worker: to take nothing new, and that no open partition is placed there."""
        if not worker.draining_ms or not self.others(worker):
            self._leader.unsay_kept(worker)  # it takes data from here on
            return False, False
        placed, kept = self._leader.drains.placed(worker), self._leader.kept(worker)
        if kept is not None:
            self._leader.drains.heard(worker, kept, self._leader.now_ms())
        return True, placed is not None and not placed.epochs

    def progress(self, worker: Worker) -> pb.Drain | None:
        """Say how far the drain of a living worker is; None if it does not drain."""
        if not worker.draining_ms or not worker.alive:
            return None
        placed, kept = self._leader.drains.placed(worker), self._leader.kept(worker)
        verdict: DrainVerdict = judge(placed, kept, self.others(worker))
        now = self._leader.now_ms()
        return pb.Drain(
            since_ms=max(now - worker.draining_ms, 0),
            epochs=placed.epochs if placed is not None else None,
            epoch_shuffles=placed.shuffles if placed is not None else None,
            writing=kept.writing if kept is not None else None,
            shuffles=kept.shuffles if kept is not None else None,
            restart=verdict.restart,
            removal=verdict.removal,
            waits=verdict.waits,
            left_ms=worker.leaves_ms - now if worker.leaves_ms else None,
            reach=self._leader.drains.reach(worker, kept, verdict.removal, now) if worker.leaves_ms else "",
        )

    def _check(self, meant: Sequence[Worker]) -> None:
        gone = [each.name for each in meant if each.gone]
        if gone:
            raise ConflictError(f"{', '.join(gone)}: gone, and nobody needs what it kept; there is nothing to drain")
        lost = [each for each in meant if not each.alive]
        if lost:
            names, numbers = ", ".join(each.name for each in lost), " ".join(str(each.id) for each in lost)
            raise ConflictError(
                f"{names}: lost, so no data can be handed over; start the worker first, or, if it never comes back, "
                f"`holdfast remove {numbers}`"
            )
        those = {each.id for each in meant}
        by_tags = {self._wanted(each): each for each in meant if not each.draining_ms}
        for tags, worker in by_tags.items():
            if not any(each not in those for each in self._takers(tags)):
                pool = f" ({all_of(tags)})" if tags else ""
                raise NoRoomError(
                    f"no other worker would take data of {worker.name}{pool}: start one first, or drain fewer. A "
                    "worker that is only restarted need not drain: acknowledged data survives a restart"
                )

    def _check_staying(self, meant: Sequence[Worker]) -> None:
        ending = [each.name for each in meant if self._ending.get(each.id) == each.incarnation]
        if ending:
            raise ConflictError(
                f"{', '.join(ending)}: stopped, or about to, and takes no new data; a new start ends the drain"
            )

    async def _propose(self, workers: Sequence[Worker], draining: bool, leaves_ms: int = 0) -> None:
        self._taking_until_ns = 0
        refs = tuple(ref_of(each) for each in workers)
        for each in workers:
            self._leader.drains.forget(each)
            self._leader.unsay_kept(each)
        answer = await self._leader.proposer.submit(cmd.Command(cmd.SetWorkersDraining(draining, refs, leaves_ms)))
        self._leader.expect(answer)
        self._leader.workers_changed.set()
