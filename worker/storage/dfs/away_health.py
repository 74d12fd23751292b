"""Whether the DFS can be used now, as this worker sees it: for its moves, for the masters, and for people.

Rules: there are two witnesses. A look asks for the marker of the cluster, soon after the start and then again and
again, in a thread of its own, so that no start waits for a store; and every file that is stored says how that went. A
look that ends well after looks that failed clears everything. What the storing of a file met while looks are well (no
right to write, no room) stays until a file is stored again, or nobody has tried for a while. People are told at once,
again each minute while it lasts, and when it is over. Any thread. Made by away.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.core.health import SECOND_NS, WindowMean
from holdfast.worker.storage.env.interfaces import Env, Threads

#: While it lasts it is told so often.
TELL_SECONDS = 60.0
#: What storing a file met counts for so long if nobody tries again.
QUIET_SECONDS = 60.0
#: Between looks while it cannot be used; else `disk_check.interval`.
FAILING_SECONDS = 2.0
#: A store that was well is asked a second time so much later before anything is said: it may have been busy.
AGAIN_SECONDS = 1.0
#: A look that is under way when the worker ends gets so long.
STOP_SECONDS = 2.0

UNCHECKED, WELL, FAILING = "unchecked", "well", "failing"


class DfsStatus(NamedTuple):
    """The DFS as masters and people see it, by one worker."""

    url: str
    state: str
    #: why it cannot be used now, and for how long that has been so; "" and 0 while it can
    problem: str
    problem_ms: int
    #: of this worker's files there
    bytes: int
    files: int
    #: mean time of storing a file and of reading a part of one in the last window; 0: there was none
    put_us: int
    read_us: int


class DfsHealth:
    """What is known of it."""

    def __init__(self, env: Env, url: str, average_ns: int = 10 * SECOND_NS) -> None:
        """`url` has no credentials in it."""
        self.url = url
        self._clock = env.clock.now
        self._now_ns = env.clock.now_ns
        self._guard = env.threads.lock()
        self._checked = False
        self._look_problem = ""
        self._put_problem = ""
        self._put_failed_at = 0.0
        self._since = 0.0
        self._told_at = -math.inf
        self._puts = WindowMean(average_ns)
        self._reads = WindowMean(average_ns)

    @property
    def problem(self) -> str:
        """Why it cannot be used now; "" while it can, or nobody knows yet."""
        return self._look_problem or self._put_problem

    @property
    def look_problem(self) -> str:
        """Why the last look failed; "" if it ended well, or there was none."""
        return self._look_problem

    @property
    def state(self) -> str:
        """In a word."""
        if self.problem:
            return FAILING
        return WELL if self._checked else UNCHECKED

    @property
    def answers(self) -> bool:
        """Whether the last look ended well, or there was none: if not, it is not worth while to store anything, or
        to begin to read."""
        return not self._look_problem

    def now(self) -> float:
        """Seconds, by its clock."""
        return self._clock()

    def looked(self, why: str, began: float) -> None:
        """A look that began then ended; `why` the store cannot be used, "" if it can."""
        with self._guard:
            before, self._checked = self.problem, True
            if not why and (self._look_problem or self._clock() - self._put_failed_at >= QUIET_SECONDS):
                self._put_problem = ""
            self._look_problem = why
            self._tell(before, began)

    def put_failed(self, why: str) -> None:
        """A file could not be stored."""
        with self._guard:
            before, self._put_problem, self._put_failed_at = self.problem, why, self._clock()
            self._tell(before, self._put_failed_at)

    def stored(self, took_ns: int) -> None:
        """A file was stored."""
        with self._guard:
            before, self._checked = self.problem, True
            self._look_problem = self._put_problem = ""
            self._puts.add(self._now_ns(), took_ns)
            self._tell(before, self._clock())

    def was_read(self, took_ns: int) -> None:
        """A part of a file was read."""
        with self._guard:
            self._reads.add(self._now_ns(), took_ns)

    def _tell(self, before: str, began: float) -> None:
        now, problem = self._clock(), self.problem
        if problem:
            self._since = self._since if before else began
            if now - self._told_at >= TELL_SECONDS:
                self._told_at = now
                log_event(LogEvent.DFS_FAILING, dfs=self.url, seconds=int(now - self._since), reason=problem)
        elif before:
            self._told_at = -math.inf
            log_event(LogEvent.DFS_RECOVERED, dfs=self.url, seconds=int(now - self._since), was=before)

    def status(self, size_bytes: int, files: int) -> DfsStatus:
        """All of it, with what this worker has there."""
        with self._guard:
            now_ns, problem = self._now_ns(), self.problem
            return DfsStatus(
                url=self.url,
                state=self.state,
                problem=problem,
                problem_ms=int((self._clock() - self._since) * 1_000) if problem else 0,
                bytes=size_bytes,
                files=files,
                put_us=self._puts.mean_ns(now_ns) // 1_000,
                read_us=self._reads.mean_ns(now_ns) // 1_000,
            )


class DfsWatch:
    """The thread that looks."""

    def __init__(self, threads: Threads, health: DfsHealth, look: Callable[[], str], interval_seconds: float) -> None:
        """`look` asks the store once and returns why it cannot be used; "" if it can."""
        self._health = health
        self._look = look
        self._interval_seconds = interval_seconds
        self._closing = threads.event()
        self._thread = threads.start(self._run, "holdfast-dfs-watch")

    def stop(self) -> None:
        """Tell of nothing from here on; whoever calls this closes the store, and then this."""
        self._closing.set()

    def close(self) -> None:
        """Wait for the look that is under way, a little."""
        self.stop()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            began = self._health.now()
            why = self._ask()
            if why and self._health.state == WELL and not self._closing.wait(AGAIN_SECONDS):
                why = self._ask()
            if self._closing.is_set():
                return
            self._health.looked(why, began)
            pause = self._interval_seconds
            self._closing.wait(min(pause, FAILING_SECONDS) if self._health.problem else pause)

    def _ask(self) -> str:
        try:
            return self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is (a client that is not installed too), people are told
            return str(error) or type(error).__name__
