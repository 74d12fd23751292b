"""One server of a local cluster: a real process with a directory and ports that stay its own over restarts.

Ready means that the process has printed its readiness line (one JSON object with the key "ready") since its last
start. Used by cluster.py alone, which hands these out as `cluster.masters` and `cluster.workers`.
"""

from __future__ import annotations

import json
import os
import signal as signals
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.common.errors import HoldfastError
from holdfast.common.security.credentials import Credentials
from holdfast.common.system import process

#: From exec to the readiness line; generous, since a loaded machine may start many servers at once.
START_SECONDS_MAX = 60.0
#: Between two looks at something that has no way to call us.
LOOK_SECONDS = 0.005
_LOG_TAIL_BYTES = 4096


class StartError(HoldfastError):
    """A server did not start; the message ends with the tail of its log."""


@dataclass(eq=False, repr=False, kw_only=True)
class Server:
    """A handle on one master or worker process; it survives the process, which may be killed and started again.

    `address` is "host:port" of HTTP for a master and of the data plane for a worker; `http` is HTTP for both. `config`
    and `log` are its files.
    """

    #: whether the process is one of this machine, started from here
    here: ClassVar[bool] = True

    role: str
    name: str
    address: str
    http: str
    config: Path
    log: Path
    #: the one thread that starts processes: they die with it, so it must outlive them
    launcher: ThreadPoolExecutor
    #: all on which it listens, by name: http, grpc and raft of a master, data and http of a worker
    ports: Mapping[str, int] = field(default_factory=dict)
    #: of a worker, as it tells the masters
    host: str = ""
    #: of an admin, if the cluster is secured; set by the owner of all handles
    credentials: Credentials | None = field(default=None, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)

    def __repr__(self) -> str:
        return f"Server({self.name}, {self.address}, pid {self.pid if self.running else None})"

    @property
    def pid(self) -> int:
        """Process id of the last start. Raises HoldfastError before the first one."""
        if self._process is None:
            raise HoldfastError(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a stopped (SIGSTOP) one does."""
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True) -> None:
        """Start the process on the same directory and addresses; with `wait`, return once it is ready.

        Raises StartError with the tail of its log, and HoldfastError when it runs already.
        """
        if self.running:
            raise HoldfastError(f"{self.name} runs already, with process id {self.pid}")
        self.launcher.submit(self._launch).result()
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = START_SECONDS_MAX) -> dict[str, Any]:
        """Return what the readiness line of the last start said. Raises StartError."""
        found: dict[str, Any] = {}

        def ready() -> bool:
            found.update(self._readiness())
            return bool(found) or not self.running

        wait_until(ready, seconds)
        if not found:
            reason = (
                f"has not said it is ready within {seconds:g} s" if self.running else f"ended with {self._status()}"
            )
            raise StartError(f"{self.role} {self.name} {reason}; the end of {self.log}:\n{self.log_tail()}")
        return found

    def kill(self, signal: int = signals.SIGKILL) -> None:
        """Send a signal, unless the process has ended. After SIGKILL it has ended when this returns."""
        if self._process is None:
            return
        self._process.send_signal(signal)
        if signal == signals.SIGKILL:
            self._process.wait(process.STOP_SECONDS_MAX)

    def stop(self, seconds: float = process.STOP_SECONDS_MAX) -> int | None:
        """End the process in an orderly way, by force after so long; returns its exit status. A worker hands on to
        others what is open there, if there are any."""
        return None if self._process is None else process.stop(self._process, seconds)

    def end(self) -> int | None:
        """End the process at once: a worker hands nothing on. Returns its exit status."""
        return None if self._process is None else process.stop(self._process, signal_number=signals.SIGINT)

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the process to end and return its exit status. Raises subprocess.TimeoutExpired."""
        if self._process is None:
            raise HoldfastError(f"{self.name} was never started")
        return self._process.wait(seconds)

    def log_tail(self) -> str:
        """The last few kilobytes of what the process wrote."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").strip()

    def _launch(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # -P: the working directory may have folders called `common` or `client`.
        command = [sys.executable, "-P", "-m", f"holdfast.{self.role}", "--config", str(self.config)]
        self._process = process.spawn(command, log=self.log)

    def _readiness(self) -> dict[str, Any]:
        """The readiness line in the log since the last start, {} before it."""
        if not self.log.exists():
            return {}
        with open(self.log, "rb") as file:
            file.seek(self._log_start)
            for line in file:
                if line.startswith(b'{"ready"') and line.endswith(b"\n"):
                    said: dict[str, Any] = json.loads(line)
                    return said
        return {}

    def _status(self) -> str:
        code = self._process.returncode if self._process is not None else None
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again until the condition holds; False if it never did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
