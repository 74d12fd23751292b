"""Commits of REDUCE partitions: the workers seal every epoch, then one command says the final word.

Rules
* One commit of a generation at a time on this master; who asks for the same winners joins it. It goes on when its
  callers have gone, and ends when this master stops leading: asked again, the next leader seals again, and the workers
  repeat their answers.
* Revives of a generation that is being committed wait for its end. An epoch that was made all the same is found by
  apply, which refuses the commit; then that epoch is sealed, too.
* A worker that cannot be asked is tried again until `worker.return_grace` is over, counted from the first failed try,
  or from its last heartbeat if it is lost. One that answers that it is busy or its disk full has the data and is waited
  for five times as long; then the commit fails with NO_ROOM and nothing is said, so it can be asked for again. Where
  the other copy is known neither is waited for, nor one that lives and does not answer within seconds.
* Epochs that were hard-split are sealed early, one worker after another in the background, and so is what workers had
  open that have started again (moving.py); what fails there is only sealed later.

Runs in the event loop. Called by shuffles.py, reviving.py and moving.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.common.errors import (
    ConflictError,
    GiveUpError,
    HoldfastError,
    NoRoomError,
    NotLeaderError,
    ProtocolError,
    RetryError,
    Status,
)
from holdfast.common.ids import RaftIndex, ShuffleKey
from holdfast.common.limits import COMMAND_PART_BYTES, SEAL_EPOCHS_MAX
from holdfast.common.net.tasks import awaited, background
from holdfast.common.reduce_layouts import ReduceManifest
from holdfast.common.reduce_messages import Seal, SealAnswer, SealFlag
from holdfast.master.core import commands as cmd
from holdfast.master.core.records import Shuffle, Worker
from holdfast.master.core.seals import PlacedEpoch, Seals
from holdfast.master.service.leader import Leader
from holdfast.master.service.links import Links
from holdfast.master.service.locations import Locations, off_loop
from holdfast.master.service.uploads import submit_with_parts, upload_name
from holdfast.master.service.winners import Seen

log = logging.getLogger(__name__)

#: Commits under way at once.
COMMITS_MAX = 1_024
#: Calls that wait for a commit: half of those that a master has under way, so that heartbeats always get in.
WAITING_MAX = 1_024
#: Seals of hard-split epochs that wait; beyond it the commit seals them.
EARLY_MAX = 65_536
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 1.0
#: While a worker seals, how often its record is looked at.
_LOOK_S = 0.25
#: What a worker says that has the data and cannot seal it now: it is asked again for so many times the grace.
_PATIENCE = frozenset({Status.DISK_FULL, Status.BUSY})
_PATIENCE_GRACES = 5
#: A worker that was lost before it was asked must answer within this.
_LOST_S = 3.0
#: One that lives and does not answer for so long is waited for only where there is no other copy.
_SLOW_S = 5.0
#: An early seal that is not answered for so long is left to the commit: others wait behind it.
_EARLY_S = 60.0


@dataclass(slots=True)
class SealCounts:
    """What was done since this master started; read by its metrics."""

    commits: int = 0
    commit_seconds: float = 0.0
    given_up: int = 0
    lost_epochs: int = 0
    early: int = 0


@dataclass(frozen=True, slots=True)
class _Commit:
    digest: bytes
    task: asyncio.Task[None]


@dataclass(slots=True)
class _Round:
    """Asking the workers of one shuffle."""

    shuffle: Shuffle
    seals: Seals
    away: set[int] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a commit is: copies of epochs of which workers were asked, of those answered, and who is waited for."""

    asked: int
    sealed: int
    workers: tuple[int, ...]


class _Word:
    """What is said of the epochs, worked out in a thread where they are many."""

    def __init__(self, partitions: int, seals: Seals) -> None:
        results = tuple(seals.results())
        self.epochs = len(results)
        self.lost = sum(each.lost for each in results)
        size = sum(max(each.primary.size_bytes, each.replica.size_bytes) for each in results)
        self.data_bytes = min(size, (1 << 64) - 1)
        self.manifest = ReduceManifest(partitions, results).encode()


class Sealing:
    """Drives commits on the leader."""

    def __init__(self, leader: Leader, locations: Locations) -> None:
        self._leader = leader
        self._locations = locations
        self._links = Links(leader.config.cluster.id, leader.security)
        self._commits: dict[ShuffleKey, _Commit] = {}
        #: of those, what is being sealed
        self._sealing: dict[ShuffleKey, Seals] = {}
        self._waiting = 0
        self._early: deque[tuple[ShuffleKey, int, tuple[tuple[int, int], ...]]] = deque()
        #: epochs that were asked for early; the oldest are forgotten, and may be asked for again
        self._asked_early: dict[tuple[ShuffleKey, int, int], None] = {}
        self._early_task: asyncio.Task[None] | None = None
        self.counts = SealCounts()
        leader.listeners.append(self._led)

    def _led(self, leads: bool) -> None:
        if leads:
            return
        for commit in self._commits.values():
            commit.task.cancel()
        if self._early_task is not None:
            self._early_task.cancel()
        self._early.clear()
        self._asked_early.clear()
        self._links.close()

    def begun(self, key: ShuffleKey) -> bool:
        """Whether this generation is being committed."""
        return key in self._commits

    def progress(self, key: ShuffleKey) -> Progress | None:
        """How far the commit of this generation is; None if none is under way, or it has not asked yet."""
        seals = self._sealing.get(key)
        if seals is None:
            return None
        asked = seals.copies
        return Progress(asked, asked - seals.waited_for, tuple(seals.unanswered))

    async def ended(self, key: ShuffleKey, seconds: float) -> None:
        """Return when no commit of this generation is under way any more. Raises RetryError (BUSY) after `seconds`."""
        commit = self._commits.get(key)
        if commit is not None:
            await self._wait(commit, seconds)
            if not commit.task.done():
                raise RetryError(f"{key} is being committed; ask again", status=Status.BUSY)

    async def commit(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        """Commit a generation, or wait for the commit of the same winners. Raises what refuses it.

        `shuffle` is its record as this master read it after it proved that it leads.
        """
        key = shuffle.key
        while (running := self._commits.get(key)) is not None and running.digest != seen.digest:
            await self._wait(running)
        if running is None:
            running = self._begin(shuffle, winners, seen)
        await self._wait(running)
        if running.task.cancelled():
            raise NotLeaderError(leader=self._leader.http_of(self._leader.node.status().leader))
        running.task.result()

    async def _wait(self, commit: _Commit, seconds: float | None = None) -> None:
        """Return when a commit ended, or after `seconds`. Raises RetryError (BUSY) past the bound of those who wait."""
        if self._waiting >= WAITING_MAX:
            raise RetryError(f"{WAITING_MAX} calls wait for commits; try again", status=Status.BUSY)
        self._waiting += 1
        try:
            await asyncio.wait((commit.task,), timeout=seconds)
        finally:
            self._waiting -= 1

    def _begin(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> _Commit:
        key = shuffle.key
        if len(self._commits) >= COMMITS_MAX:
            raise RetryError(f"{COMMITS_MAX} commits are under way; try again", status=Status.BUSY)
        self._leader.require()
        task = awaited(self._run(shuffle, winners, seen))
        commit = self._commits[key] = _Commit(seen.digest, task)

        def end(task: asyncio.Task[None]) -> None:
            if self._commits.get(key) is commit:
                del self._commits[key]
                self._sealing.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a commit failed", extra={"shuffle": str(key), "why": str(error)})
            self._leader.waiters.wake((key,))

        task.add_done_callback(end)
        return commit

    async def _run(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        started = time.perf_counter()
        key, seals = shuffle.key, Seals(())
        while not _is_committed(shuffle, seen):
            await self._locations.with_epochs(shuffle, seals.add)
            self._sealing[key] = seals
            await self._collect(_Round(shuffle, seals))
            word = await off_loop(len(seals), lambda: _Word(seen.partitions, seals))
            if await self._say(key, winners, seen, word) != Status.BUSY:
                self._done(key, word, time.perf_counter() - started)
                return
            # An epoch was made meanwhile, or parts of the command got lost.
            await asyncio.sleep(_PAUSE_MIN_S)
            record = await self._leader.confirmed(lambda state: state.shuffle(key))
            if record is None:
                raise _dropped(key)
            shuffle = record

    def _done(self, key: ShuffleKey, word: _Word, took: float) -> None:
        self.counts.commits += 1
        self.counts.commit_seconds += took
        self.counts.lost_epochs += word.lost
        told = {"shuffle": str(key), "epochs": word.epochs, "lost": word.lost, "seconds": round(took, 4)}
        log.info("committed", extra=told)

    async def _say(self, key: ShuffleKey, winners: bytes, seen: Seen, word: _Word) -> int:
        """Propose the final word; return OK or BUSY. Raises any other refusal."""
        manifest = word.manifest
        whole = len(winners) + len(manifest)
        upload = b"" if whole <= COMMAND_PART_BYTES else upload_name(repr(key).encode(), seen.digest, manifest)
        command = cmd.Command(
            cmd.Commit(
                key=key,
                winners=b"" if upload else winners,
                upload=upload,
                winners_digest=seen.digest,
                maps=seen.maps,
                partitions=seen.partitions,
                data_bytes=word.data_bytes,
                manifest=b"" if upload else manifest,
                manifest_bytes=len(manifest),
                epochs=word.epochs,
                lost=word.lost,
            )
        )
        if upload:
            answer = await submit_with_parts(self._leader, upload, winners + manifest, command)
        else:
            answer = await self._leader.proposer.submit(command)
        return Status.BUSY if answer.status == Status.BUSY else self._leader.expect(answer).status

    # Asking.

    async def _collect(self, asked: _Round) -> None:
        """Ask all workers at once until enough of them answered or were given up."""
        tasks = [awaited(self._ask(asked, worker)) for worker in asked.seals.unanswered]
        for task in tasks:
            task.add_done_callback(lambda _: asked.changed.set())
        try:
            while not asked.seals.enough(asked.away):
                asked.changed.clear()
                await asked.changed.wait()
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, asked: _Round, number: int) -> None:
        """Ask one worker, part by part, until it has answered everything or is given up. Raises NoRoomError if it has
        data that it could not seal for very long."""
        key, seals = asked.shuffle.key, asked.seals
        pause, failed_at, full_at = _PAUSE_MIN_S, 0, 0

        def slow() -> None:
            asked.away.add(number)
            asked.changed.set()

        while missing := seals.missing(number, SEAL_EPOCHS_MAX):
            worker = self._worker(key, number)
            try:
                answer = await self._seal(worker, self._request(key, missing, SealFlag.FINAL), slow)
                seals.answered(number, worker, asked.shuffle.ack, answer.epochs)
                if seals.missing(number, len(missing)) == missing:
                    raise ProtocolError(f'worker "{worker.name}" answered a seal with other epochs')
            except HoldfastError as error:
                asked.away.add(number)
                now = self._leader.now_ns()
                failed_at, full_at = (0, full_at or now) if error.status in _PATIENCE else (failed_at or now, 0)
                if self._is_spent(asked, worker, full_at, error) or (failed_at and self._is_gone(worker, failed_at)):
                    log.warning("sealed without a worker", extra={"worker": worker.name, "why": str(error)})
                    self.counts.given_up += 1
                    seals.give_up(number)
                    return
                asked.changed.set()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _PAUSE_MAX_S)
            else:
                failed_at = full_at = 0
                asked.away.discard(number)

    def _request(self, key: ShuffleKey, epochs: Sequence[tuple[int, int]], flags: int) -> Seal:
        return Seal(shuffle=key, flags=flags, raft_index=RaftIndex(self._leader.index()), epochs=list(epochs))

    def _worker(self, key: ShuffleKey, number: int) -> Worker:
        """Return the worker's record as it is now. Raises GiveUpError if the shuffle was dropped."""
        found = self._leader.peek(lambda state: (state.shuffle(key), state.workers.get(number)))
        if found[0] is None:
            raise _dropped(key)
        if found[1] is None:
            raise HoldfastError(f"{key} has epochs on worker {number}, which never registered")
        return found[1]

    async def _seal(self, worker: Worker, seal: Seal, slow: Callable[[], None] = lambda: None) -> SealAnswer:
        """Ask once; fails as soon as the worker is lost or has started again. Calls `slow` while it takes long."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        task = awaited(self._links.seal(worker, seal))
        try:
            while not (await asyncio.wait((task,), timeout=_LOOK_S))[0]:
                now = self._leader.peek(lambda state: state.workers[worker.id])
                lost = not now.alive and (worker.alive or loop.time() - started > _LOST_S)
                if lost or now.incarnation != worker.incarnation:
                    raise RetryError(f'worker "{worker.name}" was lost, or has started again, while it was asked')
                if loop.time() - started > _SLOW_S:
                    slow()
            return task.result()
        finally:
            task.cancel()

    def _is_gone(self, worker: Worker, failed_at: int) -> bool:
        grace, now = self._leader.config.worker.return_grace.ns, self._leader.now_ns()
        if now - failed_at >= grace:
            return True
        return not worker.alive and self._leader.liveness.worker_silence(now, worker.id, worker.incarnation) >= grace

    def _is_spent(self, asked: _Round, worker: Worker, full_at: int, error: HoldfastError) -> bool:
        """Whether a worker that could not seal for long can be done without. Raises NoRoomError if it cannot."""
        bound = self._leader.config.worker.return_grace.ns * _PATIENCE_GRACES
        if not full_at or self._leader.now_ns() - full_at < bound:
            return False
        if asked.seals.covered(worker.id):
            return True
        raise NoRoomError(
            f'{asked.shuffle.key} is not committed: worker "{worker.name}" has data of it that it could not seal for '
            f"{bound // 10**9} s ({error}). Nothing is lost: make room there, and commit again."
        )

    # Early seals.

    def seal_early(self, key: ShuffleKey, epochs: Sequence[PlacedEpoch]) -> None:
        """Have epochs sealed that nobody writes to any more. Clients may name the same ones again and again."""
        fresh = [each for each in epochs if (key, each.partition, each.epoch) not in self._asked_early]
        for worker in sorted({worker for each in fresh for worker in (each.primary, each.replica)}):
            asked = tuple((each.partition, each.epoch) for each in fresh if worker in (each.primary, each.replica))
            if len(self._early) < EARLY_MAX:
                self._early.append((key, worker, asked[:SEAL_EPOCHS_MAX]))
        for each in fresh:
            self._asked_early[key, each.partition, each.epoch] = None
        while len(self._asked_early) > EARLY_MAX:
            del self._asked_early[next(iter(self._asked_early))]
        if self._early and (self._early_task is None or self._early_task.done()):
            self._early_task = background(self._run_early(), self._leader.fail)

    async def _run_early(self) -> None:
        while self._early:
            key, worker, epochs = self._early.popleft()
            if not await self.seal_left(key, worker, epochs):
                for partition, epoch in epochs:
                    self._asked_early.pop((key, partition, epoch), None)

    async def seal_left(self, key: ShuffleKey, number: int, epochs: Sequence[tuple[int, int]]) -> bool:
        """Have a worker seal at most SEAL_EPOCHS_MAX epochs that nobody writes to any more, and wait for it.

        What goes wrong is only logged, and the answer False: the commit seals them, too.
        """
        try:
            async with asyncio.timeout(_EARLY_S):
                return await self._seal_one_early(key, number, epochs)
        except (HoldfastError, TimeoutError) as error:
            why = str(error) or "no answer"
            log.info("not sealed early", extra={"shuffle": str(key), "worker": number, "why": why})
            return False

    async def _seal_one_early(self, key: ShuffleKey, number: int, epochs: Sequence[tuple[int, int]]) -> bool:
        shuffle, worker = self._leader.peek(lambda state: (state.shuffle(key), state.workers.get(number)))
        if shuffle is None or shuffle.committed_ms or self.begun(key) or worker is None or not worker.alive:
            return False
        await self._seal(worker, self._request(key, epochs, 0))
        self.counts.early += len(epochs)
        return True


def _dropped(key: ShuffleKey) -> GiveUpError:
    return GiveUpError(f"{key} was dropped while it was committed", status=Status.UNKNOWN_GENERATION)


def _is_committed(shuffle: Shuffle, seen: Seen) -> bool:
    """Whether the shuffle is committed with these winners. Raises ConflictError if they do not fit it."""
    if shuffle.committed_ms:
        if shuffle.winners_digest == seen.digest:
            return True
        raise ConflictError(f"{shuffle.key} is committed with other winners; a commit is final")
    if seen.partitions != shuffle.partitions or shuffle.maps not in (0, seen.maps):
        raise ConflictError(
            f"winners of {seen.maps} maps and {seen.partitions} partitions do not fit {shuffle.key}, registered with "
            f"{shuffle.maps} (0: not known) and {shuffle.partitions}"
        )
    return False
