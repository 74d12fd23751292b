"""The real door: files, LMDB, threads, clock. As thin as it can be; see interfaces.py for what each call promises."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.common.dfs.door import SystemDfsDoor
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.env.system_index import SystemIndexes

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemThreads:
    """Threads of this process."""

    def pool(self, threads: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, name)

    def start(self, run: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def event(self) -> threading.Event:
        return threading.Event()


class SystemClock:
    """The monotonic clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def now(self) -> float:
        return time.monotonic()


class SystemMachine:
    """This machine."""

    def boot_id(self) -> str:
        return _BOOT_ID.read_text()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def chance(self) -> float:
        return random.random()


class SystemCheck:
    """A child process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def report(self) -> str:
        return self._process.communicate()[0]


class SystemChecks:
    """Checks in processes of their own."""

    def start(self, what: str, root: str) -> SystemCheck:
        return SystemCheck([sys.executable, "-P", "-m", "holdfast.worker.storage.check", what, root])


def system() -> Env:
    """The door to this machine."""
    return Env(
        files=SystemFiles(),
        indexes=SystemIndexes(),
        threads=SystemThreads(),
        clock=SystemClock(),
        machine=SystemMachine(),
        checks=SystemChecks(),
        dfs=SystemDfsDoor(),
    )
