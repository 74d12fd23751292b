"""What is wrong with a storage directory in use: its problem, and whether it is still the one that was opened.

Rules: whoever meets an error isolates the directory at once, from any thread; nothing new goes there from then on. Only
the monitor lets it return, on the loop thread, and not if anything went wrong since it last looked. Without a monitor a
directory that was isolated stays so. What errors mean is decided here, what follows from them in core/health.py.
"""

from __future__ import annotations

import errno
from collections import deque
from pathlib import Path
from typing import NamedTuple

from holdfast.worker.core.health import ERRORS_KEPT_MAX, DirectoryHealth, Health, HealthLimits
from holdfast.worker.storage import names
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.interfaces import Env, IndexFailedError

GONE = "was deleted, emptied or unmounted while it was in use: its data is lost"
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


class DirectoryObservation(NamedTuple):
    """What a look at a directory found."""

    #: None if that could not be told
    gone: bool | None
    measured: Measured
    #: what could not be read
    why: str


class Condition:
    """Of one directory."""

    def __init__(self, env: Env, root: Path, identity: bytes, limits: HealthLimits) -> None:
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
        self._files = env.files
        self._clock = env.clock
        self._root = root
        self._identity_path = root / names.IDENTITY
        self._identity = identity
        self._opened = self._find_files()
        #: which file system it is on
        self.device = self._opened[0][0]
        self._guard = env.threads.lock()
        #: errors that `health` has not heard of: when, and whether it counts
        self._untold: deque[tuple[int, bool]] = deque(maxlen=ERRORS_KEPT_MAX)
        self._gone = False

    def _find_files(self) -> list[tuple[int, int]]:
        found = [self._files.stat(self._root / name) for name in _OPENED]
        return [(one.device, one.inode) for one in found]

    def is_ours(self) -> bool:
        """Whether this is the directory that was opened, and no copy of it. Blocks; raises OSError other than that it
        is not there."""
        try:
            return self._files.read_whole(self._identity_path) == self._identity and self._find_files() == self._opened
        except (FileNotFoundError, NotADirectoryError):
            return False

    # what is seen, in any thread, and taken in, on the loop

    def see(self, used_bytes: int) -> DirectoryObservation:
        """See whether the directory is still there, how large its file system is and what is free. Blocks. So much our
        files took before that."""
        gone, why = self._find_gone()
        try:
            return DirectoryObservation(gone, Measured(*self._files.file_system(self._root), used_bytes), why)
        except OSError as error:
            return DirectoryObservation(gone, Measured(0, 0, used_bytes), why or ("" if gone else _unreadable(error)))

    def _find_gone(self) -> tuple[bool | None, str]:
        """Whether the directory, or what says whose it is, is not there any more; None, and why, if that cannot be
        told, as of a file system that shut itself down, or lost its server."""
        try:
            return not self._files.exists(self._identity_path), ""
        except OSError as error:
            return None, _unreadable(error)

    def saw(self, seen: DirectoryObservation) -> None:
        """Take that in; what cannot be told isolates the directory, and what was known stands."""
        self.measured = seen.measured
        self._heard(seen.gone, seen.why)

    def _heard(self, gone: bool | None, why: str) -> None:
        self._gone = self._gone if gone is None else gone
        if why and not self.problem:
            self.isolate(why)

    @property
    def is_gone(self) -> bool:
        """The directory, or what says whose it is, is not there any more. One stat; where that fails the
        directory is isolated, and what was known of it stands."""
        if not self.silent:
            self._heard(*self._find_gone())
        return self._gone

    def measure(self) -> None:
        """Both in one: where no thread looks."""
        self.saw(self.see(self.used_bytes))

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
            self._untold.append((self._clock.now_ns(), counts))

    def broke(self, error: Exception) -> None:
        """A write, sync or commit failed: say what that tells of the disk."""
        if isinstance(error, IndexFailedError):
            self.isolate(f"the index failed: {error.strerror}")
        elif isinstance(error, OSError) and not is_shortage(error):
            self.isolate(f"writing failed: {error}", counts=error.errno not in _MISSING)

    def unread(self, error: OSError) -> None:
        """A read failed: say what that tells of the disk. Reads fail for want of descriptors and memory, too."""
        if error.errno not in _NOT_THE_DISK and not self.problem:
            self.isolate(f"reading failed: {error.strerror}")

    def unremoved(self, error: Exception) -> None:
        """A removal failed, and is tried again: say once what that tells of the disk. Removals fail for want of
        descriptors and memory, too."""
        if not self.problem and not (isinstance(error, OSError) and error.errno in _NOT_THE_DISK):
            self.broke(error)

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


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error}"
