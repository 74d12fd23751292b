"""Locks on directories: one process at a time uses a directory, and who comes second is told which process that is.

The locks are flock(2)'s and end with their process, however it ends. The holder is looked up in /proc/locks, so that
nothing has to be written down that could be stale. Called by the local cluster and the offline tools.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCKS_FILE = Path("/proc/locks")


class HeldError(Exception):
    """Somebody holds the lock; the message says who."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, made if it is not there. Raises HeldError, and OSError if it cannot be made."""
    guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(holder(path)) from None
        yield
    finally:
        os.close(guard)


def is_held(path: Path) -> bool:
    """Tell whether a process holds this lock file; nothing is changed. False if there is none."""
    try:
        guard = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(guard, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(guard)
    return False


def holder(path: Path) -> str:
    """Words for who holds this lock file: "process 4711 (python -m …)", "another process" where it is not known."""
    try:
        found = path.stat()
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in _LOCKS_FILE.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                return f"process {words[4]}{_command(words[4])}"
    except (OSError, IndexError):  # not Linux, or it ended meanwhile
        return "another process"
    return "another process"


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    line = " ".join(words).strip()
    return f" ({line})" if len(line) <= 100 else f" ({line[:99]}…)"
