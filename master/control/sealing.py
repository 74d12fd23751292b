"""Commits of REDUCE partitions: the workers seal every epoch, then one command says the final word.

Rules
* One commit of a generation at a time on this master; who asks for the same winners joins it. It goes on when its
  callers have gone, and ends when this master stops leading: asked again, the next leader seals again, and the workers
  repeat their answers.
* Revives of a generation that is being committed wait for its end. An epoch that was made all the same is found by
  apply, which refuses the commit; then that epoch is sealed, too.
* How long a worker is waited for is decided by core/patience.py. A second copy is waited for `worker.copy_grace`: its
  worker may only have been started again. An only copy is waited for `worker.return_grace` while its worker cannot be
  reached; five times as long while it answers that it is busy or its disk full. Then the commit fails with NO_ROOM and
  nothing is said, so it can be asked for again.
* A copy that was not sealed in time stands in the manifest as UNAVAILABLE, and is sealed when its worker is back
  (late.py).
* A commit ends when its shuffle is dropped. Commits are bounded in all, for each application and for each worker that
  they wait for, so that neither a worker that answers nothing nor one application stops the others.

Runs in the event loop. Called by shuffles.py, reviving.py and moving.py.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from holdfast.common.errors import (
    ConflictError,
    GiveUpError,
    HoldfastError,
    NoRoomError,
    NotLeaderError,
    ProtocolError,
    RetryError,
)
from holdfast.common.formats.reduce_layouts import ReduceManifest
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import SEAL_EPOCHS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import awaited
from holdfast.common.system.waiting import said
from holdfast.master.api.budgets import BODY_BYTES_EACH_MAX, BODY_BYTES_MAX
from holdfast.master.api.uploads import submit, upload_name
from holdfast.master.api.winners import Seen
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.core.patience import BUSY_GRACES, Patience
from holdfast.master.core.seals import Seals, tally, without_unwritten
from holdfast.master.core.slots import Slots
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import WORKERS_MAX
from holdfast.master.core.state.records import Shuffle, Worker
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.scopes import Scope

#: Commits under way at once, in all, of one application, and of those that wait for one worker.
COMMITS_MAX = 1_024
COMMITS_EACH_MAX = 256
COMMITS_AT_WORKER_MAX = 512
#: Calls that wait for a commit, in all and of one application: half of those that a master has under way, so that
#: heartbeats always get in.
WAITING_MAX = 1_024
WAITING_EACH_MAX = 256
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 1.0
#: Workers that a line of the log names.
_NAMED_MAX = 10
#: What a worker says that has the data and cannot seal it now.
_BUSY = frozenset({Status.DISK_FULL, Status.BUSY})


@dataclass(slots=True)
class SealCounts:
    """What was done since this master started; read by its metrics."""

    commits: int = 0
    commit_seconds: float = 0.0
    given_up: int = 0
    lost_epochs: int = 0
    under_replicated: int = 0


@dataclass(frozen=True, slots=True)
class _Commit:
    digest: bytes
    task: asyncio.Task[None]


@dataclass(slots=True)
class _Round:
    """Asking the workers of one shuffle."""

    shuffle: Shuffle
    seals: Seals
    patience: dict[int, Patience] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a commit is: copies of epochs of which workers were asked, of those answered, and who is waited for."""

    asked: int
    sealed: int
    workers: tuple[int, ...]


class _Word:
    """What is said of the epochs, worked out in a thread where they are many."""

    def __init__(self, seen: Seen, copies: int, seals: Seals) -> None:
        results = tuple(without_unwritten(seals.results(), seen.written))
        self.tally = tally(results, copies)
        self.manifest = ReduceManifest(seen.partitions, results).encode()


class Sealing:
    """Drives commits on the leader."""

    def __init__(self, leader: Leader, locations: Locations, asker: Asker) -> None:
        self._leader = leader
        self._locations = locations
        self._asker = asker
        self._commits: dict[ShuffleKey, _Commit] = {}
        #: of those, what is being sealed
        self._sealing: dict[ShuffleKey, Seals] = {}
        #: commits and calls that wait for them, by application; commits that wait for a worker, by worker
        self._running = Slots(COMMITS_MAX, COMMITS_EACH_MAX)
        self._waiting = Slots(WAITING_MAX, WAITING_EACH_MAX)
        #: bytes of winners of commits under way, whose callers may have gone
        self.winners = Slots(BODY_BYTES_MAX, BODY_BYTES_EACH_MAX)
        self._at_worker = Slots(COMMITS_MAX * WORKERS_MAX, COMMITS_AT_WORKER_MAX)
        self.counts = SealCounts()
        leader.listeners.append(self._led)

    def _led(self, leads: bool) -> None:
        if leads:
            return
        for commit in self._commits.values():
            commit.task.cancel()

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
            await self._wait(key, commit, seconds)
            if not commit.task.done():
                raise RetryError(f"{key} is being committed; ask again", status=Status.BUSY)

    async def commit(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        """Commit a generation, or wait for the commit of the same winners. Raises what refuses it.

        `shuffle` is its record as this master read it after it proved that it leads.
        """
        key = shuffle.key
        while (running := self._commits.get(key)) is not None and running.digest != seen.digest:
            await self._wait(key, running)
        if running is None:
            running = self._begin(shuffle, winners, seen)
        await self._wait(key, running)
        if running.task.cancelled():
            raise NotLeaderError(leader=self._leader.http_of(self._leader.node.status().leader))
        error = running.task.exception()
        if error is not None:
            # Another one for each caller: its frames would hold the winners, and the task them.
            raise error.reworded(str(error)) if isinstance(error, HoldfastError) else error

    async def _wait(self, key: ShuffleKey, commit: _Commit, seconds: float | None = None) -> None:
        """Return when a commit ended, or after `seconds`. Raises RetryError (BUSY) where too many wait."""
        _take(self._waiting, key.instance, "calls wait for commits")
        try:
            await asyncio.wait((commit.task,), timeout=seconds)
        finally:
            self._waiting.give_back(key.instance)

    def _begin(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> _Commit:
        key = shuffle.key
        self._leader.require()
        _take(self._running, key.instance, "commits are under way")
        try:
            _take(self.winners, key.instance, "bytes of winners are being committed", len(winners))
        except RetryError:
            self._running.give_back(key.instance)
            raise
        task = awaited(Scope(key).wait(self._leader, self._run(shuffle, winners, seen)))
        commit = self._commits[key] = _Commit(seen.digest, task)

        def end(task: asyncio.Task[None]) -> None:
            self._running.give_back(key.instance)
            self.winners.give_back(key.instance, len(winners))
            if self._commits.get(key) is commit:
                del self._commits[key]
                self._sealing.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log_event(LogEvent.COMMIT_FAILED, shuffle=key, why=error)
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
            copies = shuffle.copies_wanted
            word = await off_loop(len(seals), lambda: _Word(seen, copies, seals))  # noqa: B023
            if await self._say(key, winners, seen, word) != Status.BUSY:
                self._done(key, word, time.perf_counter() - started)
                return
            # An epoch was made meanwhile, or parts of the command got lost.
            await asyncio.sleep(_PAUSE_MIN_S)
            record = await self._leader.confirmed(lambda state: state.shuffle(key))
            if record is None:
                raise GiveUpError(f"{key} was dropped meanwhile", status=Status.UNKNOWN_GENERATION)
            shuffle = record

    def _done(self, key: ShuffleKey, word: _Word, took: float) -> None:
        self.counts.commits += 1
        self.counts.commit_seconds += took
        counted = word.tally
        self.counts.lost_epochs += counted.lost
        self.counts.under_replicated += counted.under_replicated

    async def _say(self, key: ShuffleKey, winners: bytes, seen: Seen, word: _Word) -> int:
        """Propose the final word; return OK or BUSY. Raises any other refusal."""
        manifest = word.manifest
        upload = upload_name(len(winners) + len(manifest), repr(key).encode(), seen.digest, manifest)
        command = cmd.Command(
            cmd.Commit(
                key=key,
                winners=b"" if upload else winners,
                upload=upload,
                winners_digest=seen.digest,
                maps=seen.maps,
                partitions=seen.partitions,
                data_bytes=word.tally.data_bytes,
                manifest=b"" if upload else manifest,
                manifest_bytes=len(manifest),
                epochs=word.tally.epochs,
                lost=word.tally.lost,
                under_replicated=word.tally.under_replicated,
                awaited=word.tally.awaited,
                unsealed=word.tally.unsealed,
            )
        )
        answer = await submit(self._leader, command, upload, winners + manifest)
        return Status.BUSY if answer.status == Status.BUSY else self._leader.expect(answer).status

    # Asking.

    async def _collect(self, asked: _Round) -> None:
        """Ask all workers at once until enough of them answered or were given up."""
        workers = asked.seals.unanswered
        for number in workers:
            if self._at_worker.full_for(number):
                name = self._asker.worker(asked.shuffle.key, number).name
                text = f'{COMMITS_AT_WORKER_MAX} commits wait for worker "{name}"; try again'
                raise RetryError(text, status=Status.BUSY)
        tasks = [self._begin_asking(asked, number) for number in workers]
        try:
            with said(partial(self._missing, asked)):
                while True:
                    left, seconds = self._left(asked)
                    if asked.seals.enough(left):
                        return
                    asked.changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await asked.changed.wait()
                    for task in tasks:
                        if task.done():
                            task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _missing(self, asked: _Round) -> str:
        """Whom a commit waits for."""
        numbers = list(asked.seals.unanswered)[:_NAMED_MAX]
        names = self._leader.node.local(lambda machine: [machine.state.workers[each].name for each in numbers])
        return f"{', '.join(names)} to seal their epochs of {asked.shuffle.key}"

    def _begin_asking(self, asked: _Round, number: int) -> asyncio.Task[None]:
        self._at_worker.take(number)
        section = self._leader.config.worker
        asked.patience[number] = Patience(section.copy_grace.ns, section.return_grace.ns)
        task = awaited(self._ask(asked, number))

        def end(_: object) -> None:
            self._at_worker.give_back(number)
            asked.changed.set()

        task.add_done_callback(end)
        return task

    def _left(self, asked: _Round) -> tuple[set[int], float | None]:
        """Return the workers that are not waited for any more where there are other copies, and the seconds until the
        next one is not; None if there is no other."""
        now, left, seconds = self._leader.now_ns(), set[int](), []
        for number in asked.seals.unanswered:
            at = asked.patience[number].left_at(self._silence(asked.shuffle.key, number, now), now)
            if at <= now:
                left.add(number)
            else:
                seconds.append((at - now) / 1e9)
        return left, min(seconds, default=None)

    def _silence(self, key: ShuffleKey, number: int, now: int) -> int:
        worker = self._asker.worker(key, number)
        return self._leader.liveness.worker_silence(now, number, worker.incarnation)

    async def _ask(self, asked: _Round, number: int) -> None:
        """Ask one worker, part by part, until it has answered everything or is given up. Raises NoRoomError if it has
        data for which it had no room for very long, RetryError (BUSY) if it could not seal it for another reason."""
        key, seals, patience = asked.shuffle.key, asked.seals, asked.patience[number]
        pause, was_full = _PAUSE_MIN_S, False
        while missing := seals.missing(number, SEAL_EPOCHS_MAX):
            worker = self._asker.worker(key, number)
            patience.asks(self._leader.now_ns())
            try:
                answer = await self._asker.ask(worker, key, missing, SealFlag.FINAL)
                seals.answered(number, worker, asked.shuffle.ack, answer.epochs)
                if seals.missing(number, len(missing)) == missing:
                    raise ProtocolError(f'worker "{worker.name}" answered a seal with other epochs')
            except HoldfastError as error:
                was_full |= error.status is Status.DISK_FULL
                if self._is_given_up(asked, worker, error, was_full):
                    log_event(LogEvent.SEAL_SKIPPED, shuffle=key, worker=worker.name, why=error)
                    self.counts.given_up += 1
                    seals.give_up(number)
                    return
                asked.changed.set()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _PAUSE_MAX_S)
            else:
                patience.answered()

    def _is_given_up(self, asked: _Round, worker: Worker, error: HoldfastError, was_full: bool) -> bool:
        """Whether a worker that gave no answer is waited for no more. Raises as `_ask` if it is needed."""
        patience, now = asked.patience[worker.id], self._leader.now_ns()
        if error.status in _BUSY:
            patience.was_busy(now)
        else:
            patience.failed(now)
        # As it is now: where it has started again meanwhile it was heard, whatever became of the start that was asked.
        alive = self._asker.worker(asked.shuffle.key, worker.id).alive
        silence = None if alive else self._silence(asked.shuffle.key, worker.id, now)
        if patience.gone(silence, now):
            return True
        if not patience.spent(now):
            return False
        if asked.seals.covered(worker.id):
            return True
        text = (
            f'{asked.shuffle.key} is not committed: worker "{worker.name}" has data of it that it could not seal for '
            f"{BUSY_GRACES * patience.return_grace_ns // 10**9} s ({error}). Nothing is lost: mend that there, and "
            "commit again."
        )
        raise NoRoomError(text) if was_full else RetryError(text, status=Status.BUSY)


def _take(slots: Slots, instance: bytes, what: str, amount: int = 1) -> None:
    """Take a place for an application, or so many. Raises RetryError (BUSY) if there is none."""
    if slots.full(amount):
        raise RetryError(f"{slots.count} {what}; try again", status=Status.BUSY)
    if slots.full_for(instance, amount):
        raise RetryError(f"{slots.taken.get(instance, 0)} {what} for this application; try again", status=Status.BUSY)
    slots.take(instance, amount)


def _is_committed(shuffle: Shuffle, seen: Seen) -> bool:
    """Whether the shuffle is committed with these winners. Raises ConflictError if they do not fit it."""
    if shuffle.committed_ms:
        if shuffle.winners_digest == seen.digest:
            return True
        raise ConflictError(f"{shuffle.key} is committed with other winners; a commit is final")
    if misfit := shuffle.misfit(seen.maps, seen.partitions):
        raise ConflictError(misfit)
    return False
