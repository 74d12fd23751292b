"""Checks the disks of a worker: probes them in threads of their own, isolates what does not work until it does again.

    monitor = store.monitor(interval_seconds)
    monitor.start(); …; monitor.look() once a second, on the loop thread; monitor.close()

One thread for each device (st_dev) tries its directories one after the other: are they there and ours, is what is
written and synced read back; of isolated ones also whether the index takes a record. Between these checks it sees with
each look how much room there is: the loop takes that, and asks no disk itself. Whatever hangs holds up that thread
alone. `look` begins what is due, and sees how long a probe has been under way: that is the verdict on all directories
of its device. The thread finds values; all else happens on the loop. Decisions are core/health.py's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import NoRoomError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.core.health import DirectoryHealth, Outcome
from holdfast.worker.storage import names
from holdfast.worker.storage.disks.condition import GONE, DirectoryObservation
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Executor, Future, wait
from holdfast.worker.storage.env.interfaces import Env, IndexFailedError

PROBE_BYTES = 4_096
#: Results of a device that wait to be looked at; older ones are dropped.
RESULTS_MAX = 64
#: A probe that is under way when the monitor ends gets this long, if it does not hang already.
STOP_SECONDS_MAX = 2.0
#: While a probe has been under way for so long, nothing is asked of its device on the loop: it may be about to hang.
SILENT_NS = 1_000_000_000


class Result(NamedTuple):
    """How a probe of one directory ended."""

    directory: StorageDirectory
    outcome: Outcome
    why: str
    ended_ns: int
    took_ns: int
    thorough: bool


def probe(env: Env, directory: StorageDirectory, *, thorough: bool) -> tuple[Outcome, str]:
    """Try one directory; return how it went and, if not well, why. Blocks."""
    try:
        if not directory.condition.is_ours():
            return Outcome.GONE, GONE
        if not _write_and_read(env, directory.root / names.PROBE):
            return Outcome.WRONG, "read back other bytes than were written and synced"
        if thorough:
            directory.try_index()
    except NoRoomError as error:
        return Outcome.FULL, str(error)
    except FileNotFoundError:  # it went this moment
        return Outcome.GONE, GONE
    except IndexFailedError as error:
        return Outcome.FAILED, f"the index failed: {error.strerror}"
    except OSError as error:
        return (Outcome.FULL, str(error)) if is_shortage(error) else (Outcome.FAILED, f"writing failed: {error}")
    return Outcome.GOOD, ""


def _write_and_read(env: Env, path: Path) -> bool:
    """Whether what is written and synced is read back. Raises OSError."""
    files, data = env.files, env.machine.token(PROBE_BYTES)
    files.remove(path)  # of a probe that was killed
    handle = files.create(path)
    try:
        files.write(handle, data, 0)
        files.sync(handle)
        return files.read_back(handle, PROBE_BYTES, 0) == data
    finally:
        with suppress(OSError):  # the next probe tries again
            files.remove(path)


def see(
    env: Env, directory: StorageDirectory, used_bytes: int, *, probes: bool, thorough: bool
) -> tuple[StorageDirectory, Result | None, DirectoryObservation | None]:
    """Look at a directory, and try it if it `probes`. Blocks."""
    began_ns, outcome, why = env.clock.now_ns(), Outcome.GOOD, ""
    seen = None
    try:
        if probes:
            outcome, why = probe(env, directory, thorough=thorough)
        seen = directory.condition.see(used_bytes)
    except Exception as error:  # noqa: BLE001 - whatever it is, logged, and the others are to be seen
        log_event(LogEvent.DIRECTORY_INTERNAL_ERROR, directory=directory.root_text, trace=error)
        outcome, why = Outcome.FAILED, f"cannot be checked: {error}"
    if not probes:
        return directory, None, seen
    ended_ns = env.clock.now_ns()
    return directory, Result(directory, outcome, why, ended_ns, ended_ns - began_ns, thorough), seen


class _Device:
    """The directories on one device, and what is done with them: one after the other, in a thread of its own."""

    def __init__(self, env: Env, directories: Sequence[StorageDirectory], interval_seconds: float) -> None:
        self.directories = directories
        self.results: deque[Result] = deque(maxlen=RESULTS_MAX)
        #: when what is under way began; 0: nothing is
        self.since_ns = 0
        self._env = env
        self._interval_seconds = interval_seconds
        self._pool: Executor | None = None
        self._running: Future[tuple[StorageDirectory, Result | None, DirectoryObservation | None]] | None = None
        #: those whose turn is still to come, and whether they are probed
        self._turns: deque[StorageDirectory] = deque()
        self._probes = False
        self._due = 0.0

    def start(self) -> None:
        self._pool = self._env.threads.pool(1, "holdfast-probe")
        self._due = self._env.clock.now() + self._interval_seconds
        self._begin(probes=False)

    def tick(self) -> None:
        """Take in what has ended, and begin what is due."""
        self._take()
        if self._pool is not None and self._running is None and not self._turns:
            now = self._env.clock.now()
            probes = now >= self._due
            if probes:
                self._due = now + self._interval_seconds
            self._begin(probes=probes)

    def _begin(self, *, probes: bool) -> None:
        self._turns.extend(self.directories)
        self._probes = probes
        self._next()

    def _next(self) -> None:
        assert self._pool is not None, "it was started"
        directory = self._turns.popleft()
        self.since_ns = self._env.clock.now_ns()
        used, thorough = directory.condition.used_bytes, bool(directory.problem)
        self._running = self._pool.submit(see, self._env, directory, used, probes=self._probes, thorough=thorough)
        self._running.add_done_callback(lambda _: directory.owner(self._take))

    def _take(self) -> None:
        done = self._running
        if done is None or not done.done():
            return
        self._running, self.since_ns = None, 0
        if not done.cancelled():
            self.ended(*done.result())
        if self._turns:
            self._next()

    def ended(self, directory: StorageDirectory, result: Result | None, seen: DirectoryObservation | None) -> None:
        if seen is not None:
            directory.condition.saw(seen)
        if result is None:
            directory.condition.watched = True
        else:
            self.results.append(result)

    def stop(self) -> None:
        self._turns.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait a little for what is under way. What does not end then hangs: whoever ends this process is to know."""
        if self._running is not None and not wait([self._running], STOP_SECONDS_MAX).done:
            for directory in self.directories:
                directory.condition.hanging = True


class Monitor:
    """The checks of all directories of a worker."""

    def __init__(self, env: Env, directories: Sequence[StorageDirectory], interval_seconds: float) -> None:
        groups: dict[int, list[StorageDirectory]] = {}
        for directory in directories:
            groups.setdefault(directory.condition.device, []).append(directory)
        self._env = env
        self._devices = [_Device(env, group, interval_seconds) for group in groups.values()]
        self._shown = {id(directory): DirectoryHealth.WELL for directory in directories}

    def start(self) -> None:
        """Begin to look at the room; the first round of probes comes after one interval."""
        for device in self._devices:
            device.start()

    def close(self) -> None:
        """Stop; returns within seconds, also if a disk hangs."""
        for device in self._devices:
            device.stop()
        for device in self._devices:
            if not any(directory.condition.hanging for directory in device.directories):
                device.join()

    def look(self) -> None:
        """Take in what happened since the last look, and act upon it: once a second, on the loop thread."""
        for device in self._devices:
            device.tick()
            while device.results:
                self._take(device.results.popleft())
            now_ns, since_ns = self._env.clock.now_ns(), device.since_ns
            for directory in device.directories:
                directory.condition.tell()
                health = directory.condition.health
                if since_ns:
                    health.probe_runs(now_ns, since_ns)
                health.tick(now_ns)
                self._act(directory)
                directory.condition.silent = directory.condition.hanging or 0 < since_ns < now_ns - SILENT_NS

    @staticmethod
    def _take(result: Result) -> None:
        condition = result.directory.condition
        condition.tell()  # in their order: what failed before a good probe, and after it
        condition.health.probe_ended(result.ended_ns, result.took_ns, result.outcome, thorough=result.thorough)
        if result.outcome is Outcome.GOOD:
            result.directory.unsealed.marks.mark()
        if condition.health.state is not DirectoryHealth.WELL and not condition.problem:
            condition.problem = result.why or f"was slow: a check took {result.took_ns / 1e9:.1f} s"

    def _act(self, directory: StorageDirectory) -> None:
        condition = directory.condition
        condition.hanging = condition.health.state is DirectoryHealth.HANGING
        if condition.hanging and not condition.problem:
            seconds = condition.health.limits.probe_timeout_ns / 1e9
            condition.problem = f"hangs: a check of its device took more than {seconds:g} s"
        if condition.health.may_return and not directory.unsealed.marks.due:
            condition.health.returned()
            if not directory.come_back():
                condition.tell()
        self._tell_people(directory)

    def _tell_people(self, directory: StorageDirectory) -> None:
        state = directory.condition.state
        if state is not self._shown[id(directory)]:
            self._shown[id(directory)] = state
            event = LogEvent.DIRECTORY_RECOVERED if state is DirectoryHealth.WELL else LogEvent.DIRECTORY_FAILING
            log_event(event, directory=directory.root_text, state=state.value, reason=directory.problem)
