"""The one door of a worker's storage to the world: files, indexes, threads, the clock, chance.

Rules: nothing else in worker/storage calls os, lmdb, threading, concurrent.futures or time. Whatever outlives a crash
goes through here, what is only read or listed, too, so that a simulator can stand in for all of it. The door decides
nothing: each call is one step that a crash can fall before, behind, or in the middle of. Paths are names here, and are
not asked anything themselves. system.py is the real one, tests/sim/env the simulated one.

Errors of files are OSError, as the system gives them. Those of an index are IndexFailedError and IndexFullError, and
LmdbDamagedError for what cannot be read.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from holdfast.common.dfs.door import DfsDoor

#: Names of files and folders.
Name = Path | str
Data = bytes | memoryview
#: Parts of one gathered write (the kernel takes 1,024).
GATHER_MAX = 1_024


class IndexFailedError(OSError):
    """The index could not be changed; nothing of the transaction is in it, but perhaps after a restart."""

    def __init__(self, why: object) -> None:
        super().__init__(errno.EIO, str(why))


class IndexFullError(Exception):
    """The map of the index is too small for this transaction, of which nothing was done: enlarge it, and try again."""


class Kind(Enum):
    """What a name stands for."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Stat(NamedTuple):
    """What is known of a file or folder."""

    kind: Kind
    #: its length
    size: int
    #: what it takes on the disk, holes left out
    held_bytes: int
    #: which file it is: st_dev and st_ino
    device: int
    inode: int


class FolderEntry(NamedTuple):
    """A name in a folder."""

    name: str
    kind: Kind


class FileSystem(NamedTuple):
    """A file system, in bytes; `free` is what an ordinary user may take."""

    size: int
    free: int


class Handle:
    """An open file, closed with the last reference to this object.

    A descriptor that is closed while another thread still uses its number may by then be another file. So a
    descriptor is held as an object; whoever uses it keeps the object.
    """

    __slots__ = ("__weakref__", "fd", "kept")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        #: let go of after the file was closed
        self.kept: object = None


class Files(ABC):
    """Files and folders; any thread. Whatever is opened or made is no symbolic link, and none is followed by its last
    name."""

    #: syncs of files and folders so far; a number for people, not exact to the last one
    syncs = 0

    # opening

    @abstractmethod
    def create(self, path: Name) -> Handle:
        """Make a new file, for reading and writing. Raises FileExistsError; FileNotFoundError without its folder."""

    @abstractmethod
    def create_unnamed(self, folder: Name) -> Handle:
        """Make a file that has no name: its room is free when it is closed, however that comes about."""

    @abstractmethod
    def create_in_memory(self, name: str) -> Handle:
        """Make a file in memory; `name` is for people."""

    @abstractmethod
    def open(self, path: Name, *, write: bool = False) -> Handle:
        """Open a file for reading, or for both."""

    @abstractmethod
    def lock(self, path: Name, *, shared: bool = False) -> Handle:
        """Take the lock of a file until the handle is closed. An exclusive one makes the file if it is not there, a
        shared one changes nothing and takes a folder, too. Raises HeldError."""

    # reading

    @abstractmethod
    def size(self, handle: Handle) -> int:
        """The length of an open file."""

    @abstractmethod
    def data_end(self, handle: Handle) -> int:
        """Where the last data of an open file ends: its length, unless it ends in a hole."""

    @abstractmethod
    def next_data(self, handle: Handle, offset: int) -> int:
        """Where data begins at or behind an offset; the length of the file if none does."""

    @abstractmethod
    def read(self, handle: Handle, size: int, offset: int) -> bytes:
        """Read; less than `size` bytes only at the end of the file."""

    @abstractmethod
    def read_back(self, handle: Handle, size: int, offset: int) -> bytes:
        """Read what was written and synced, past the cache where the file system lets go of it."""

    @abstractmethod
    def read_ahead(self, handle: Handle, offset: int, length: int) -> None:
        """Ask the kernel to bring a range into its cache. Promises nothing."""

    @abstractmethod
    def read_whole(self, path: Name) -> bytes:
        """All of a small file."""

    @abstractmethod
    def map(self, handle: Handle, size: int) -> memoryview:
        """The first `size` bytes as they lie in the page cache, read-only; what is written later is seen. The file is
        at least so long, and stays so; `size` is not 0."""

    # writing

    @abstractmethod
    def write(self, handle: Handle, data: Data, offset: int) -> None:
        """Write all of `data`, into the kernel. What fails may have written any part."""

    @abstractmethod
    def write_parts(self, handle: Handle, parts: Sequence[Data], size: int, offset: int) -> None:
        """Write parts, `size` bytes together, back to back, into the kernel."""

    @abstractmethod
    def set_size(self, handle: Handle, size: int) -> None:
        """Cut an open file, or lengthen it by a hole."""

    @abstractmethod
    def start_write_back(self, handle: Handle, offset: int, length: int) -> None:
        """Ask the kernel to begin writing a range to the disk. Promises nothing; errors are left to `sync`."""

    @abstractmethod
    def sync(self, handle: Handle) -> None:
        """Bring a file's bytes and length to the disk. Never called again on a file for which it failed."""

    # names

    @abstractmethod
    def sync_folder(self, path: Name) -> None:
        """Bring the names in a folder to the disk."""

    @abstractmethod
    def make_folder(self, path: Name) -> bool:
        """Make a folder; False if it was there. Raises OSError if something else is."""

    @abstractmethod
    def make_folders(self, path: Name) -> None:
        """Make a folder and what is missing above it; each new name is on the disk. Raises OSError if
        something else is there."""

    @abstractmethod
    def remove_folder(self, path: Name) -> None:
        """Remove an empty folder. Raises FileNotFoundError, OSError."""

    @abstractmethod
    def rename(self, source: Name, target: Name) -> None:
        """Give a file or folder another name, which may be in another folder; a file that has it is gone."""

    @abstractmethod
    def remove(self, path: Name) -> None:
        """Remove a file; one that is not there is fine."""

    # looking

    @abstractmethod
    def stat(self, path: Name, *, follow: bool = True) -> Stat:
        """What is there. Raises FileNotFoundError, NotADirectoryError, OSError."""

    @abstractmethod
    def exists(self, path: Name) -> bool:
        """Whether something is there, also at the end of a link. Raises OSError other than that it is not."""

    @abstractmethod
    def names(self, folder: Name) -> list[str]:
        """The names in a folder, in any order. Raises FileNotFoundError, NotADirectoryError, OSError."""

    @abstractmethod
    def entries(self, folder: Name) -> list[FolderEntry]:
        """The same with what they stand for."""

    @abstractmethod
    def sizes(self, folder: Name, suffixes: tuple[str, ...]) -> tuple[list[tuple[str, int]], list[FolderEntry]]:
        """The names in a folder, which is no link, that end like this, with lengths, and the other entries. There may
        be hundreds of thousands."""

    @abstractmethod
    def real_path(self, path: Name) -> str:
        """The path without links; what is not there may be named."""

    @abstractmethod
    def file_system(self, path: Name) -> FileSystem:
        """The file system that a path lies on."""

    @abstractmethod
    def first_foreign(self, root: Name, spared: Callable[[str], bool], but: str = "") -> str | None:
        """What is neither file nor folder below a folder; links may be `spared`, the folder `but` is not entered."""

    # what is made of these

    def is_folder(self, path: Name) -> bool:
        """Whether a folder is there, also at the end of a link. Raises OSError where that cannot be told."""
        try:
            return self.stat(path).kind is Kind.FOLDER
        except (FileNotFoundError, NotADirectoryError):
            return False

    def names_if_any(self, folder: Name) -> list[str]:
        """The names in a folder; none if it is not there. Raises OSError where that cannot be told."""
        try:
            return self.names(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def held_bytes(self, path: Name) -> int:
        """What a file takes on the disk, holes left out; 0 if it is not there, or that cannot be told."""
        try:
            return self.stat(path, follow=False).held_bytes
        except OSError:
            return 0

    def truncate(self, path: Name, size: int) -> None:
        """Cut a file, or lengthen it by a hole."""
        self.set_size(self._open_to_change(path), size)

    def replace(self, path: Path, data: bytes) -> None:
        """Give a small file new contents, all or nothing, synced with its folder."""
        new = path.with_name(f"{path.name}.new")
        self.remove(new)
        handle = self.create(new)
        self.write(handle, data, 0)
        self.sync(handle)
        self.rename(new, path)
        self.sync_folder(path.parent)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Write over a small file of the same length in place, synced: needs no room, and is not all or nothing."""
        handle = self._open_to_change(path)
        self.write(handle, data, 0)
        self.sync(handle)

    def _open_to_change(self, path: Name) -> Handle:
        """Open a file for writing, in a folder that is no link."""
        return self.open(path, write=True)


class IndexChange(NamedTuple):
    """One transaction of an index, as a value: first what goes, then what comes."""

    puts: Sequence[tuple[bytes, bytes]] = ()
    #: keys; those that are not there are fine
    removes: Sequence[bytes] = ()
    #: everything whose key begins so
    removes_below: Sequence[bytes] = ()


class Snapshot(Protocol):
    """An index as it was at one moment. Raises LmdbDamagedError."""

    def get(self, key: bytes) -> bytes | None:
        """A value; None if there is none."""

    def first(self, start: bytes) -> tuple[bytes, bytes] | None:
        """The first key at or behind `start`, with its value."""

    def below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every key that begins so, in order, with its value."""


class OpenIndex(Protocol):
    """One LMDB environment; any thread."""

    def reading(self) -> AbstractContextManager[Snapshot]:
        """A snapshot for a few lookups; keep it short, never wait inside. The map does not grow meanwhile."""

    def commit(self, change: IndexChange) -> None:
        """Carry out a transaction, synced: all of it, or nothing. One at a time. Raises IndexFullError if the map is
        too small, OSError ENOSPC if the disk is full, IndexFailedError."""

    def enlarge(self, map_bytes: int) -> None:
        """Let the map grow up to this."""

    def close(self) -> None:
        """Wait for the transaction that runs, and close. Nobody reads any more."""


class Indexes(Protocol):
    """Where indexes are opened."""

    #: transactions so far; a number for people
    syncs: int

    def open(self, path: Name, map_bytes: int) -> OpenIndex:
        """Open, or create in an empty folder. Raises IndexFailedError; run the page check first."""

    def open_read_only(self, path: Name) -> OpenIndex:
        """Open without a lock file or any change, where no other process has it open. Raises LmdbDamagedError."""

    def size(self, path: Name) -> int:
        """The bytes of the file; 0 if there is none."""


class Lock(AbstractContextManager[object], Protocol):
    """Held by one thread at a time."""


class ThreadEvent(Protocol):
    """What threads wait for."""

    def set(self) -> None:
        """It has come."""

    def is_set(self) -> bool:
        """Whether it has."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, so many seconds at most; whether it has come."""


class Thread(Protocol):
    """A thread that runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, so many seconds at most."""


class Threads(Protocol):
    """What runs beside the loop. What a thread is given and gives back are values: nothing is shared with it."""

    def pool(self, threads: int, name: str) -> Executor:
        """Threads that do one piece of work after the other, begun in the order in which it came."""

    def start(self, run: Callable[[], object], name: str) -> Thread:
        """Run something in a thread of its own, which does not keep the process from ending."""

    def lock(self) -> Lock:
        """For what threads share nevertheless."""

    def event(self) -> ThreadEvent:
        """One that has not come."""


class ClockSource(Protocol):
    """Time that only goes on, from any beginning."""

    def now_ns(self) -> int:
        """Nanoseconds."""

    def now(self) -> float:
        """Seconds, of the same clock."""


class Machine(Protocol):
    """What else is asked of the machine."""

    def boot_id(self) -> str:
        """Of which boot this process is: another one after each start of the machine. Raises OSError."""

    def token(self, size: int) -> bytes:
        """Bytes that nobody else has."""

    def chance(self) -> float:
        """A number from 0 up to, not including, 1."""


class Check(Protocol):
    """A check of a directory that runs beside this process."""

    def report(self) -> str:
        """Wait for its end; one line, see check.py. "" if it ended without an answer."""


class Checks(Protocol):
    """The checks of a start: an index is proved sound before it is opened, and files are listed meanwhile."""

    def start(self, what: str, root: str) -> Check:
        """Begin one: "index" or "data"."""


class Env(NamedTuple):
    """The door."""

    files: Files
    indexes: Indexes
    threads: Threads
    clock: ClockSource
    machine: Machine
    checks: Checks
    #: what a store of the DFS is opened with
    dfs: DfsDoor
