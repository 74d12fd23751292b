"""What is wrong with a storage directory in use: its problem, and whether it is still the one that was opened.

Rules: whoever meets an error isolates the directory at once, from any thread; nothing new goes there from then on. Only
the monitor lets it return, on the loop thread, and not if anything went wrong since it last looked. Without a monitor a
directory that was isolated stays so. What errors mean is decided here, what follows from them in core/health.py.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import lmdb

from holdfast.worker.core.health import ERRORS_KEPT_MAX, DirectoryHealth, Health, HealthLimits
from holdfast.worker.storage import names
from holdfast.worker.storage.disk import Disk
from holdfast.worker.storage.push_log import is_full

GONE = "was deleted, emptied or unmounted while it was in use: what it held is lost"
#: What is missing is told by the identity file, and says nothing against the disk.
_MISSING = (errno.ENOENT, errno.ENOTDIR)
#: What a read of an open file, or its way into a socket, may fail with on a disk that is well.
_NOT_THE_DISK = frozenset(
    (
        *(*_MISSING, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN, errno.EPIPE),
        *(errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN),
    )
)
#: What has to be the same file or folder after an absence: all of it is open here.
_OPENED = ("", names.IDENTITY, names.INDEX_DATA, names.DATA, names.LOG)


class Measured(NamedTuple):
    """A file system as somebody saw it, and what our files took then at least."""

    size: int
    free: int
    used: int


class Condition:
    """Of one directory."""

    def __init__(self, root: Path, identity: bytes, limits: HealthLimits) -> None:
        """The directory is there and open; raises OSError."""
        #: why nothing more is written here; "" while all is well
        self.problem = ""
        #: a probe of its device does not end: whatever waits for the disk is left alone
        self.hanging = False
        #: the same, or it may yet come to that: nobody asks it anything on the loop
        self.silent = False
        #: a thread of the monitor looks at it: the loop takes what that saw, and asks nothing itself
        self.watched = False
        #: the file system when somebody last looked
        self.measured = Measured(0, 0, 0)
        #: bytes of our files here, as the loop last added them up
        self.used_bytes = 0
        self.health = Health(limits)
        self._root = root
        self._identity_path = root / names.IDENTITY
        self._identity = identity
        self._opened = self._files()
        #: which file system it is on
        self.device = self._opened[0][0]
        self._guard = threading.Lock()
        #: errors that `health` has not heard of: when, and whether it counts
        self._untold: deque[tuple[int, bool]] = deque(maxlen=ERRORS_KEPT_MAX)
        self._gone = False

    def _files(self) -> list[tuple[int, int]]:
        found = [(self._root / name).stat() for name in _OPENED]
        return [(one.st_dev, one.st_ino) for one in found]

    def is_ours(self) -> bool:
        """Whether this is the directory that was opened, and no copy of it. Blocks; raises OSError other than that it
        is not there."""
        try:
            return self._identity_path.read_bytes() == self._identity and self._files() == self._opened
        except (FileNotFoundError, NotADirectoryError):
            return False

    @property
    def is_gone(self) -> bool:
        """The directory, or what says whose it is, is not there any more. One stat; where that fails the
        directory is isolated, and what was known of it stands."""
        if not self.silent:
            self._find_out()
        return self._gone

    def _find_out(self) -> None:
        try:
            self._gone = not self._identity_path.exists()
        except OSError as error:  # a file system that shut itself down, or lost its server
            if not self.problem:
                self.isolate(f"cannot be read: {error}")

    def measure(self, disk: Disk) -> None:
        """See whether the directory is still there, how large its file system is and what is free. Blocks; what cannot
        be told isolates it."""
        used = self.used_bytes
        self._find_out()
        try:
            self.measured = Measured(*disk.free_bytes(self._root), used)
        except OSError as error:
            self.measured = Measured(0, 0, used)
            if not self.problem and not self._gone:
                self.isolate(f"cannot be read: {error}")

    def look(self) -> str:
        """Why nothing more is written here: a directory that was deleted, emptied or unmounted goes on taking writes
        into files that nobody can find. One stat, but for one that is watched."""
        gone = self._gone if self.watched else self.is_gone
        if gone and self.problem != GONE:
            self.isolate(GONE, counts=False)
        return self.problem

    def isolate(self, why: str, *, counts: bool = True) -> None:
        """From now on nothing new goes here; `counts`: it speaks against the disk."""
        with self._guard:
            self.problem = why
            self._untold.append((time.monotonic_ns(), counts))

    def broke(self, error: Exception) -> None:
        """A write, sync or commit failed: say what that tells of the disk."""
        if isinstance(error, OSError) and not is_full(error):
            self.isolate(f"writing failed: {error}", counts=error.errno not in _MISSING)
        elif isinstance(error, lmdb.Error):
            self.isolate(f"the index failed: {error}")

    def unread(self, error: OSError) -> None:
        """A read failed: say what that tells of the disk. Reads fail for want of descriptors and memory, too."""
        if error.errno not in _NOT_THE_DISK and not self.problem:
            self.isolate(f"reading failed: {error.strerror}")

    # what the monitor does, on the loop thread

    def tell(self) -> None:
        """Let `health` hear of what went wrong."""
        while self._untold:
            at_ns, counts = self._untold.popleft()
            self.health.failed(at_ns, counts=counts)

    def clear(self) -> bool:
        """All is well again; False if something has gone wrong since `tell`."""
        with self._guard:
            if self._untold:
                return False
            self.problem = ""
            return True

    @property
    def state(self) -> DirectoryHealth:
        """What the directory is, for people: what just went wrong may not have been told yet."""
        state = self.health.state
        return DirectoryHealth.SUSPECT if state is DirectoryHealth.WELL and self.problem else state
