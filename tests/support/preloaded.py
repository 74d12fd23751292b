"""Starts masters and workers by forking a process that has imported them: most of a start is importing, and the tests
make thousands of starts. What runs is the real `__main__`, in a process of its own that dies with this one.

`installed()` has `process.spawn` do it, in this process alone: servers that other programs start, such as `holdfast
local` and the services of the Ansible hosts, are started as users start them. So are those for which PYTHONPATH and the
like are set anew, and those of tests marked `real_starts`, which measure memory or look at command lines.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.common.system import process
from tests.support.tree import ROOT

#: What is forked, and what each imports when it starts.
_MODULES = {
    "holdfast.master": ("holdfast.master.main",),
    "holdfast.worker": (
        "holdfast.worker.main",
        "holdfast.worker.server.process",
        "holdfast.worker.server.membership.registration",
        "holdfast.worker.server.observe.metrics",
        "holdfast.common.net.control",
        "holdfast.common.net.http_server",
    ),
}
_START = [sys.executable, "-P", "-m"]
_START_SECONDS = 60.0
_spawn = process.spawn
_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


class Forked:
    """As much of subprocess.Popen as its users need, of a child of the preloaded process."""

    def __init__(self, pid: int, args: list[str]) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._ended = threading.Condition()

    def ended(self, status: int) -> None:
        """The preloaded process says so."""
        with self._ended:
            self.returncode = status
            self._ended.notify_all()

    def poll(self) -> int | None:
        """Exit status, minus the signal's number where one ended it; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for it to end. Raises subprocess.TimeoutExpired."""
        with self._ended:
            if not self._ended.wait_for(lambda: self.returncode is not None, timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


class Preloaded:
    """The process that has imported the servers."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                [*_START, __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self._ours = ours
        self._answers = ours.makefile("rb")
        self._lock = threading.Lock()
        self._reported = threading.Condition()
        self._starting: list[Forked] = []
        self._running: dict[int, Forked] = {}
        self._reader = threading.Thread(target=self._read, name="preloaded", daemon=True)
        self._reader.start()

    def start(self, module: str, request: Mapping[str, Any]) -> Forked:
        """Fork a child that becomes that module."""
        with self._lock, self._reported:
            self._ours.sendall(json.dumps({"module": module, **request}).encode() + b"\n")
            if not self._reported.wait_for(lambda: self._starting, _START_SECONDS):
                raise AssertionError("the preloaded process does not answer")
            return self._starting.pop()

    def close(self) -> None:
        """End it, and with it whatever still runs."""
        self._ours.shutdown(socket.SHUT_RDWR)
        self._process.wait()
        self._reader.join()
        self._answers.close()
        self._ours.close()

    def _read(self) -> None:
        for line in self._answers:
            reported = json.loads(line)
            if "ended" in reported:
                self._running.pop(reported["ended"]).ended(reported["status"])
            else:
                with self._reported:
                    child = self._running[reported["started"]] = Forked(reported["started"], reported["args"])
                    self._starting.append(child)
                    self._reported.notify_all()


class Switch:
    """Whether servers are forked."""

    on = True


@contextmanager
def installed() -> Iterator[Switch]:
    """Have process.spawn fork masters and workers meanwhile; the preloaded process is started with the first one."""
    switch = Switch()
    python = _of_python(os.environ)
    made: list[Preloaded] = []
    one = threading.Lock()

    def spawn(
        command: Sequence[str | os.PathLike[str]],
        *,
        log: Path | None = None,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> subprocess.Popen[bytes] | Forked:
        words = [str(each) for each in command]
        wanted = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"} | dict(environ or {})
        forked = switch.on and words[:3] == _START and words[3] in _MODULES and _of_python(wanted) == python
        if not forked or log is None:
            return _spawn(command, log=log, environ=environ, directory=directory)
        with one:
            if not made:
                made.append(Preloaded())
        request = {
            "args": words,
            "log": str(log.absolute()),
            "directory": str(directory or Path.cwd()),
            "environ": wanted,
            "limits": {name: resource.getrlimit(number) for name, number in _LIMITS.items()},
            "umask": _umask(),
        }
        return made[0].start(words[3], request)

    process.spawn = spawn  # type: ignore[assignment]
    try:
        yield switch
    finally:
        process.spawn = _spawn
        for each in made:
            each.close()


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    """What the interpreter itself reads, before anything is imported."""
    return {name: value for name, value in environ.items() if name.startswith("PYTHON")}


def _umask() -> int:
    """This process's, without a moment in which it is another one."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask"))


def _serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request until the asker is gone; returns the request in a child, and None at the end."""
    parent = os.getpid()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        text = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wake in ready:
                os.read(wake, 4096)
                for pid, status in _reaped():
                    _say(asked, {"ended": pid, "status": status})
            if asked.fileno() not in ready:
                continue
            piece = asked.recv(1 << 20)
            if not piece:
                return None
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                request: dict[str, Any] = json.loads(line)
                pid = os.fork()
                if not pid:
                    process.die_with_parent(parent)
                    break
                _say(asked, {"started": pid, "args": request["args"]})
            else:
                continue
            break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in (wake, woken):
        os.close(each)
    asked.close()
    return request


def _reaped() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _say(asked: socket.socket, what: dict[str, Any]) -> None:
    try:
        asked.sendall(json.dumps(what).encode() + b"\n")
    except OSError:
        return  # the end comes with the next look


def _become(request: dict[str, Any]) -> None:
    """Be what `python -P -m MODULE …` would be."""
    os.setpgid(0, 0)
    os.umask(request["umask"])
    for name, both in request["limits"].items():
        resource.setrlimit(_LIMITS[name], tuple(both))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    random.seed()
    sys.argv = request["args"][3:]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    """Run the preloaded process on the descriptor that is named."""
    for modules in _MODULES.values():
        for each in modules:
            importlib.import_module(each)
    assert threading.active_count() == 1
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main()
