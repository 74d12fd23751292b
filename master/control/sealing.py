"""Commits of REDUCE partitions: the workers seal every epoch, then one command says the final word.

Rules
* One commit of a generation at a time on this master; a call with the same winners joins it. It continues when its
  callers have left, and ends when this master loses the leadership: at the next call the next leader seals again, and
  the workers repeat their answers.
* Revives of a generation that is being committed wait for its end. An epoch that was made all the same is found by
  apply, which refuses the commit; then that epoch is sealed, too.
* Who is asked for what, whom a commit waits for and when it is enough is decided by core/commit.py. What was not sealed
  in time is sealed when its worker is back (late.py).
* A commit ends when its shuffle is dropped. Commits are bounded in all, for each user and application, and for each
  worker that they wait for, so that neither a worker that answers nothing nor one tenant stops the others.

Runs in the event loop. Called by shuffles.py, reviving.py and moving.py.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from holdfast.common.errors import GiveUpError, HoldfastError, NotLeaderError, RetryError
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import awaited
from holdfast.common.system.waiting import said
from holdfast.master.api.access import share_owner
from holdfast.master.api.budgets import BODY_BYTES_EACH_MAX, BODY_BYTES_MAX
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.core.commit import FinalWord, SealRound, Seen, is_committed
from holdfast.master.core.seals import Seals
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import WORKERS_MAX
from holdfast.master.core.state.records import Shuffle
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.scopes import Scope
from holdfast.master.leader.uploads import submit, upload_name

#: Commits under way at once, in all, and of those that wait for one worker.
COMMITS_MAX = 1_024
COMMITS_AT_WORKER_MAX = 512
#: Calls that wait for a commit: half of those that a master has under way, so that heartbeats always get in.
WAITING_MAX = 1_024
_PAUSE_S = 0.05
#: Workers that a line of the log names.
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class _Commit:
    digest: bytes
    task: asyncio.Task[None]


class Sealing:
    """Drives commits on the leader."""

    def __init__(self, leader: Leader, locations: Locations, asker: Asker) -> None:
        self._leader = leader
        self._locations = locations
        self._asker = asker
        self._commits: dict[ShuffleKey, _Commit] = {}
        #: of those, what is being sealed
        self._sealing: dict[ShuffleKey, Seals] = {}
        #: commits and calls that wait for them, by user and application; commits that wait for a worker, by worker
        self._running = Shares(COMMITS_MAX)
        self._waiting = Shares(WAITING_MAX)
        #: bytes of winners of pending commits, whose callers may have left
        self.winners = Shares(BODY_BYTES_MAX, BODY_BYTES_EACH_MAX)
        self._at_worker = Shares(COMMITS_MAX * WORKERS_MAX, COMMITS_AT_WORKER_MAX)
        leader.listeners.append(self._led)

    def _led(self, leads: bool) -> None:
        if leads:
            return
        for commit in self._commits.values():
            commit.task.cancel()

    def begun(self, key: ShuffleKey) -> bool:
        """Whether this generation is being committed."""
        return key in self._commits

    def progress(self, key: ShuffleKey) -> Seals | None:
        """How far the commit of this generation is; None if none is under way, or it has not asked yet."""
        return self._sealing.get(key)

    async def ended(self, key: ShuffleKey, seconds: float) -> None:
        """Return when no commit of this generation is under way any more. Raises RetryError (BUSY) after `seconds`."""
        commit = self._commits.get(key)
        if commit is not None:
            await self._wait(key, commit, seconds)
            if not commit.task.done():
                raise RetryError(f"{key} is being committed; ask again", status=Status.BUSY)

    async def commit(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        """Commit a generation, or wait for the commit of the same winners. Raises what refuses it.

        `shuffle` is its record as read after this master confirmed its leadership.
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
        owner = share_owner(key.instance)
        self._waiting.claim(owner, "more calls that wait for commits")
        try:
            await asyncio.wait((commit.task,), timeout=seconds)
        finally:
            self._waiting.give(owner, 1)

    def _begin(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> _Commit:
        key = shuffle.key
        self._leader.require()
        owner = share_owner(key.instance)
        self._running.claim(owner, "more commits")
        try:
            self.winners.claim(owner, "more bytes of winners", len(winners))
        except RetryError:
            self._running.give(owner, 1)
            raise
        task = awaited(Scope(key).wait(self._leader, self._run(shuffle, winners, seen)))
        commit = self._commits[key] = _Commit(seen.digest, task)

        def end(task: asyncio.Task[None]) -> None:
            self._running.give(owner, 1)
            self.winners.give(owner, len(winners))
            if self._commits.get(key) is commit:
                del self._commits[key]
                self._sealing.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log_event(LogEvent.COMMIT_FAILED, shuffle=key, reason=error)
            self._leader.waiters.wake((key,))

        task.add_done_callback(end)
        return commit

    async def _run(self, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        started = time.perf_counter()
        key, seals = shuffle.key, Seals(shuffle.copies_wanted)
        while not is_committed(shuffle, seen):
            await self._locations.with_epochs(shuffle, seals.add)
            self._sealing[key] = seals
            await self._collect(shuffle, seals)
            word = await off_loop(len(seals), partial(FinalWord, shuffle, seen, seals))
            if await self._say(key, winners, seen, word) != Status.BUSY:
                counts = self._leader.counts
                counts.commits += 1
                counts.commit_seconds += time.perf_counter() - started
                counts.lost_epochs += word.tally.lost
                counts.commits_under_replicated_epochs += word.tally.under_replicated
                return
            # An epoch was made meanwhile, or parts of the command got lost.
            await asyncio.sleep(_PAUSE_S)
            record = await self._leader.confirmed(lambda state: state.shuffle(key))
            if record is None:
                raise GiveUpError(f"{key} was dropped meanwhile", status=Status.UNKNOWN_GENERATION)
            shuffle = record

    async def _say(self, key: ShuffleKey, winners: bytes, seen: Seen, word: FinalWord) -> int:
        """Propose the final word; return OK or BUSY. Raises any other refusal."""
        manifest = word.manifest
        upload = upload_name(len(winners) + len(manifest), repr(key).encode(), seen.digest, manifest)
        command = cmd.Command(word.command(winners, upload))
        answer = await submit(self._leader, command, upload, winners + manifest)
        return Status.BUSY if answer.status == Status.BUSY else self._leader.expect(answer).status

    # Asking.

    async def _collect(self, shuffle: Shuffle, seals: Seals) -> None:
        """Ask all workers at once until enough of them have answered or were skipped."""
        key, section = shuffle.key, self._leader.config.worker
        asked = SealRound(shuffle, seals, section.copy_grace.ns, section.return_grace.ns)
        for number in asked.workers:
            if not self._at_worker.fits(number, 1):
                name = self._asker.worker(key, number).name
                text = f'{COMMITS_AT_WORKER_MAX} commits wait for worker "{name}"; try again'
                raise RetryError(text, status=Status.BUSY)
        changed = asyncio.Event()
        tasks = [self._begin_asking(asked, key, number, changed) for number in asked.workers]
        try:
            with said(partial(self._missing, asked, key)):
                while (seconds := self._left_s(asked, key)) != 0:
                    changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await changed.wait()
                    for task in tasks:
                        if task.done():
                            task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _missing(self, asked: SealRound, key: ShuffleKey) -> str:
        """Whom a commit waits for."""
        numbers = asked.unanswered[:_NAMED_MAX]
        names = self._leader.node.local(lambda machine: [machine.state.workers[each].name for each in numbers])
        return f"{', '.join(names)} to seal their epochs of {key}"

    def _begin_asking(
        self, asked: SealRound, key: ShuffleKey, number: int, changed: asyncio.Event
    ) -> asyncio.Task[None]:
        self._at_worker.add(number, 1)
        task = awaited(self._ask(asked, key, number, changed))

        def end(_: object) -> None:
            self._at_worker.give(number, 1)
            changed.set()

        task.add_done_callback(end)
        return task

    def _left_s(self, asked: SealRound, key: ShuffleKey) -> float | None:
        now = self._leader.now_ns()
        return asked.left_s({number: self._silence(key, number, now) for number in asked.unanswered}, now)

    def _silence(self, key: ShuffleKey, number: int, now: int) -> int:
        worker = self._asker.worker(key, number)
        return self._leader.liveness.worker_silence(now, number, worker.incarnation)

    async def _ask(self, asked: SealRound, key: ShuffleKey, number: int, changed: asyncio.Event) -> None:
        """Ask one worker, part by part, until it has answered everything or is skipped. Raises to end the commit."""
        while wanted := asked.ask(number, self._leader.now_ns()):
            worker = self._asker.worker(key, number)
            try:
                answer = await self._asker.ask(worker, key, wanted, SealFlag.FINAL)
                asked.answered(worker, wanted, answer.epochs)
            except HoldfastError as error:
                now = self._leader.now_ns()
                # As it is now: where it has started again meanwhile it was heard, whatever became of the start that was
                # asked.
                alive = self._asker.worker(key, number).alive
                pause_s = asked.failed(worker, error, None if alive else self._silence(key, number, now), now)
                if pause_s is None:
                    log_event(LogEvent.SEAL_SKIPPED, shuffle=key, worker=worker.name, reason=error)
                    self._leader.counts.commits_without_worker += 1
                    return
                changed.set()
                await asyncio.sleep(pause_s)
