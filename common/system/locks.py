"""Locks on directories: one process at a time uses a directory, and a second one gets an error that names the first.

The locks are flock(2)'s and end with their process, however it ends. The holder is looked up in /proc/locks, so that
nothing has to be written down that could be stale. Called by a worker's store, the local cluster and the offline tools.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.common.system.links import NO_LINK
from holdfast.common.system.modes import FILE_MODE

_LOCKS_FILE = Path("/proc/locks")


class HeldError(Exception):
    """Another process holds the lock; the message names it."""


def acquire(path: Path, *, shared: bool = False) -> int:
    """Take the lock of a file and return its descriptor, which holds the lock until it is closed.

    An exclusive lock makes the file if it is not there; a shared one, which is for looking, changes nothing and takes a
    directory, too. Raises HeldError, and OSError if the file cannot be made or opened.
    """
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    guard = os.open(path, flags | NO_LINK, FILE_MODE)
    try:
        fcntl.flock(guard, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(guard)
        raise HeldError(holder(path)) from None
    except OSError:
        os.close(guard)
        raise
    return guard


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, made if it is not there. Raises HeldError, and OSError if it cannot be made."""
    guard = acquire(path)
    try:
        yield
    finally:
        os.close(guard)


def is_held(path: Path) -> bool:
    """Whether a process holds this lock file; nothing is changed. False if the file is missing."""
    try:
        os.close(acquire(path, shared=True))
    except FileNotFoundError:
        return False
    except HeldError:
        return True
    return False


def holder(path: Path) -> str:
    """The holder of this lock file: "process 4711 (python -m …)", "another process" where it is not known."""
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
