"""Checks the disks of a worker: probes them in threads of their own, isolates what does not work until it does again.

    monitor = store.monitor(interval_seconds)
    monitor.start(); …; monitor.look() once a second, on the loop thread; monitor.close()

One thread for each device (st_dev) tries its directories one after the other: are they there and ours, is what is
written and synced read back; of isolated ones also whether the index takes a record. Between these checks it sees once
a second how much room there is: the loop takes that, and asks no disk itself. Whatever
hangs holds up that thread alone; it is a daemon, so that the process ends all the same. `look` sees how long a probe
has been under way: that is the verdict on all directories of its device. Decisions are core/health.py's.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import lmdb

from holdfast.common.errors import NoRoomError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.core.health import DirectoryHealth, Outcome
from holdfast.worker.storage import names
from holdfast.worker.storage.condition import GONE
from holdfast.worker.storage.directory import StorageDirectory
from holdfast.worker.storage.disk import Disk
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.push_log import is_full

PROBE_BYTES = 4_096
#: Results of a device that wait to be looked at; older ones are dropped.
RESULTS_MAX = 64
#: A probe that is under way when the monitor ends gets this long, if it does not hang already.
STOP_SECONDS_MAX = 2.0
#: How often the room of a device is looked at.
MEASURE_SECONDS = 1.0
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


def probe(directory: StorageDirectory, disk: Disk, *, thorough: bool) -> tuple[Outcome, str]:
    """Try one directory; return how it went and, if not well, why. Blocks."""
    try:
        if not directory.condition.is_ours():
            return Outcome.GONE, GONE
        if not _write_and_read(directory, disk):
            return Outcome.WRONG, "read back other bytes than were written and synced"
        if thorough:
            directory.try_index()
    except NoRoomError as error:
        return Outcome.FULL, str(error)
    except FileNotFoundError:  # it went this moment
        return Outcome.GONE, GONE
    except OSError as error:
        return (Outcome.FULL, str(error)) if is_full(error) else (Outcome.FAILED, f"writing failed: {error}")
    except lmdb.Error as error:
        return Outcome.FAILED, f"the index failed: {error}"
    return Outcome.GOOD, ""


def _write_and_read(directory: StorageDirectory, disk: Disk) -> bool:
    """Whether what is written and synced is read back. Raises OSError."""
    path = directory.root / names.PROBE
    data = os.urandom(PROBE_BYTES)
    disk.remove(path)  # of a probe that was killed
    handle = Handle(disk.create(path))
    try:
        disk.write(handle.fd, data, 0)
        disk.sync_data(handle.fd)
        return disk.read_back(handle.fd, PROBE_BYTES, 0) == data
    finally:
        with suppress(OSError):  # the next probe tries again
            disk.remove(path)


class _Device:
    """The directories on one device, and the thread that tries them."""

    def __init__(self, directories: Sequence[StorageDirectory], disk: Disk, interval_seconds: float) -> None:
        self.directories = directories
        self.results: deque[Result] = deque(maxlen=RESULTS_MAX)
        self._disk = disk
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-probe", daemon=True)
        #: when the probe that is under way began; 0: there is none
        self.since_ns = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        self.measure_all()
        due = time.monotonic() + self._interval_seconds
        while not self._stop.wait(min(MEASURE_SECONDS, max(0.0, due - time.monotonic()))):
            if time.monotonic() >= due:
                self.probe_all()
                due = time.monotonic() + self._interval_seconds
            else:
                self.measure_all()

    def measure_all(self) -> None:
        """See how much room there is; one that hangs is noticed as a check that does."""
        for directory in self.directories:
            self.since_ns = time.monotonic_ns()
            try:
                directory.condition.measure(self._disk)
            except Exception as error:  # noqa: BLE001 - whatever it is, logged, and the others are to be seen
                log_event(LogEvent.DIRECTORY_INTERNAL_ERROR, directory=directory.root_text, trace=error)
            directory.condition.watched = True
            self.since_ns = 0

    def probe_all(self) -> None:
        """Try every directory, once."""
        for directory in self.directories:
            if self._stop.is_set():
                return
            thorough = bool(directory.problem)
            began_ns = self.since_ns = time.monotonic_ns()
            try:
                outcome, why = probe(directory, self._disk, thorough=thorough)
                directory.condition.measure(self._disk)
            except Exception as error:  # noqa: BLE001 - whatever it is, logged, and the others are to be tried
                log_event(LogEvent.DIRECTORY_INTERNAL_ERROR, directory=directory.root_text, trace=error)
                outcome, why = Outcome.FAILED, f"cannot be checked: {error}"
            ended_ns = time.monotonic_ns()
            self.results.append(Result(directory, outcome, why, ended_ns, ended_ns - began_ns, thorough))
            self.since_ns = 0


class Monitor:
    """The checks of all directories of a worker."""

    def __init__(self, directories: Sequence[StorageDirectory], disk: Disk, interval_seconds: float) -> None:
        groups: dict[int, list[StorageDirectory]] = {}
        for directory in directories:
            groups.setdefault(directory.condition.device, []).append(directory)
        self._devices = [_Device(group, disk, interval_seconds) for group in groups.values()]
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

    def probe_all(self) -> None:
        """Try every directory once, in this thread: what the threads do every interval."""
        for device in self._devices:
            device.probe_all()

    def look(self) -> None:
        """Take in what happened since the last look, and act upon it: once a second, on the loop thread."""
        for device in self._devices:
            while device.results:
                self._take(device.results.popleft())
            now_ns, since_ns = time.monotonic_ns(), device.since_ns
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
            result.directory.reduce.mark()
        if condition.health.state is not DirectoryHealth.WELL and not condition.problem:
            condition.problem = result.why or f"was slow: a check took {result.took_ns / 1e9:.1f} s"

    def _act(self, directory: StorageDirectory) -> None:
        condition = directory.condition
        condition.hanging = condition.health.state is DirectoryHealth.HANGING
        if condition.hanging and not condition.problem:
            seconds = condition.health.limits.probe_timeout_ns / 1e9
            condition.problem = f"hangs: a check of its device took more than {seconds:g} s"
        if condition.health.may_return and not directory.reduce.unmarked:
            condition.health.returned()
            if not directory.come_back():
                condition.tell()
        self._tell_people(directory)

    def _tell_people(self, directory: StorageDirectory) -> None:
        state = directory.condition.state
        if state is not self._shown[id(directory)]:
            self._shown[id(directory)] = state
            event = LogEvent.DIRECTORY_RECOVERED if state is DirectoryHealth.WELL else LogEvent.DIRECTORY_FAILING
            log_event(event, directory=directory.root_text, state=state.value, why=directory.problem)
