"""Starts child processes that never outlive the one that started them.

The kernel is asked (PR_SET_PDEATHSIG) to kill the child when its parent dies, even by kill -9. The request is made in
the child between fork and exec: `python process.py PARENT COMMAND…` asks, checks that the parent is still there and
becomes the command. A preexec_fn would do it too, but may hang when the parent has threads. The signal follows the
*thread* that started the child, so that thread has to live as long as the child should.
Called by the local cluster, the drills and the tests; Linux only, elsewhere children are started without the request.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
#: How long a child has to follow a signal to end before it is killed.
STOP_SECONDS_MAX = 10.0


def spawn(
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` so that it dies with this thread; its output is appended to the file `log`, if one is given.

    `environ` adds to this process's environment. The child gets a process group of its own, so that Ctrl-C at the
    terminal reaches it through its parent alone. Standard input is empty.
    """
    launcher = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    output = open(log, "ab") if log is not None else None  # noqa: SIM115 - closed below, once the child has it
    try:
        return subprocess.Popen(
            [*launcher, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            env={**_inherited(), **(environ or {})},
            cwd=directory,
            process_group=0,
        )
    finally:
        if output is not None:
            output.close()


def _inherited() -> dict[str, str]:
    """This process's environment without the service manager's: that waits for this process, not for its children."""
    return {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}


def stop(
    process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS_MAX, signal_number: int = signal.SIGTERM
) -> int:
    """Ask the process to end, kill it after `seconds`, and return its exit status; a stopped one is continued first."""
    if process.poll() is None:
        process.send_signal(signal_number)
        process.send_signal(signal.SIGCONT)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; end at once if `parent` is not the parent any more."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):  # not Linux
        return
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
