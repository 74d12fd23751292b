"""What a worker knows about its place in the cluster, and the small file in its directories that keeps it.

Rules: the highest Raft index ever heard of is what protects data from masters that were restored from a backup (see
core/forgetting.py), so it is kept on disk, at most a second late. Only what the masters answer to this worker's own
questions is believed: anybody who may connect can name an index in a frame, and one that is too high would end all
deletion. A lost or damaged file costs only that: it is read as "nothing is known". Each directory is written by its own
thread, in order, so that one that hangs holds up no other. So directories may differ after a kill: what was written
last counts, by the incarnation that wrote it and the number of the change in that. Raft indexes of two states of the
masters cannot be compared. Loop thread only, except KeptIdentity.write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import CRC_BYTES, with_crc, without_crc
from holdfast.common.ids import NO_STATE, NO_WORKER, UID_BYTES, Incarnation, RaftIndex, StateId, WorkerId
from holdfast.common.log_events import LogEvent
from holdfast.common.security.server import ServerSecurity
from holdfast.common.system.log import log_event
from holdfast.worker.core.health import DirectoryHealth
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.names import STANDING
from holdfast.worker.storage.store import Store

#: magic, version u16, zero u16, worker id u32, Raft index u64, state u64, incarnation u64, change u64; CRC-32C of the
#: bytes before it
_FORMAT = struct.Struct("<4sHHIQQQQ")
_MAGIC = b"HFSD"
_VERSION = 3
#: No cluster gets so far (890 years of 10,000 commands a second): a larger index is a mistake or a lie, and believing
#: it would end all deletion.
RAFT_INDEX_MAX = 1 << 48


@dataclass(frozen=True, slots=True)
class WorkerAddresses:
    """Where this worker is, as it tells the masters."""

    host: str = ""
    rack: str = ""
    data_address: str = ""
    http_address: str = ""
    version: str = ""
    machine_id: str = ""
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class WorkerIdentity:
    """What is known now."""

    cluster_id: str
    name: str
    incarnation: Incarnation
    #: NO_WORKER until the masters have given a number, in this start or an earlier one
    worker: WorkerId = NO_WORKER
    #: highest Raft index that the masters have answered with, of the state that gave the number
    raft_index: RaftIndex = RaftIndex(0)
    #: which state of the masters gave the number
    state: StateId = NO_STATE
    #: what this worker is, whatever number it has (16 bytes)
    uid: bytes = bytes(UID_BYTES)
    #: the masters have accepted this incarnation
    registered: bool = False
    #: what a person should know: refused deletions, failing directories
    problems: tuple[str, ...] = ()
    #: another process registers as this worker
    twin: str = ""
    #: why the masters will not have this worker until somebody changes a configuration
    refusal: str = ""
    #: what this worker shows to masters and to others; None without security
    credentials: ServerSecurity | None = None
    #: where it is, once its ports are there
    addresses: WorkerAddresses = WorkerAddresses()

    def given(self, worker: WorkerId, state: StateId, index: RaftIndex) -> None:
        """Take a number that a state of the masters has given. What another state's log came to says nothing of its."""
        if state != self.state:
            self.raft_index = RaftIndex(0)
        self.worker, self.state = worker, state
        self.saw(index)

    def saw(self, index: RaftIndex) -> None:
        """Keep the highest Raft index; one that cannot be is passed over."""
        if self.raft_index < index <= RAFT_INDEX_MAX:
            self.raft_index = index


def directory_paths(store: Store) -> list[Path]:
    """Where a worker keeps its standing: in all directories but those that hang, which would hold it up."""
    return [Path(found.path) for found in store.directories() if found.state != DirectoryHealth.HANGING.value]


class KeptIdentity(NamedTuple):
    """The part of a WorkerIdentity that is on disk."""

    worker: WorkerId
    raft_index: RaftIndex
    state: StateId = NO_STATE
    #: who wrote it, and which of its changes this is: these order what directories have
    incarnation: Incarnation = Incarnation(0)
    change: int = 0

    @classmethod
    def of(cls, standing: WorkerIdentity, change: int = 0) -> KeptIdentity:
        return cls(standing.worker, standing.raft_index, standing.state, standing.incarnation, change)

    def encode(self) -> bytes:
        """The file's bytes (docs/internals/worker.md)."""
        return with_crc(_FORMAT.pack(_MAGIC, _VERSION, 0, *self))

    @classmethod
    def decode(cls, data: bytes) -> KeptIdentity | None:
        """Read the bytes; None if they are not such a file."""
        if len(data) != _FORMAT.size + CRC_BYTES:
            return None
        try:
            magic, version, _, *numbers = _FORMAT.unpack(without_crc(data, STANDING))
        except CorruptError:
            return None
        kept = cls(*numbers)
        if magic != _MAGIC or version != _VERSION:
            return None
        return kept if kept.raft_index <= RAFT_INDEX_MAX else kept._replace(raft_index=RaftIndex(0))

    @classmethod
    def read(cls, files: Files, directories: Iterable[Path]) -> KeptIdentity:
        """What was written last of all directories."""
        found = []
        for directory in directories:
            path = directory / STANDING
            try:
                kept = cls.decode(files.read_whole(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                log_event(LogEvent.IDENTITY_UNREADABLE, path=path, reason=error.strerror)
                continue
            if kept is None:
                log_event(LogEvent.IDENTITY_UNREADABLE, path=path, reason="it is damaged")
            else:
                found.append(kept)
        nothing = cls(NO_WORKER, RaftIndex(0))
        return max(found, key=lambda kept: (kept.incarnation, kept.change), default=nothing)

    def write(self, files: Files, directory: Path) -> None:
        """Put it into a directory, synced. Blocks; one that fails does not keep the others from it."""
        try:
            files.replace(directory / STANDING, self.encode())
        except OSError as error:
            log_event(LogEvent.IDENTITY_NOT_WRITTEN, path=directory / STANDING, reason=error.strerror)


class IdentityKeeper:
    """Brings a standing to the disks."""

    def __init__(self, store: Store, files: Files, standing: WorkerIdentity) -> None:
        self._store = store
        self._files = files
        self._standing = standing
        self._last = KeptIdentity.of(standing)
        #: for each directory what was asked for last, and the end of the last write
        self._asked: dict[Path, KeptIdentity] = {}
        self._ends: dict[Path, Future[None]] = {}

    def keep(self) -> list[Future[None]]:
        """Have what is known now written wherever it is not yet, in order. At most one write waits for
        each directory. Returns the ends of the last writes."""
        now = self._now()
        if now.worker == NO_WORKER:
            return []  # nothing is known; a directory that could not be read may know more
        for path, executor in self._store.lanes():
            if self._asked.get(path) == now:
                continue
            self._asked[path] = now
            end = self._ends.get(path)
            if end is None or end.done() or end.running():  # else it will write this
                self._ends[path] = executor.submit(self._write, path)
        return list(self._ends.values())

    def _now(self) -> KeptIdentity:
        """What is known now, with a number above that of what was known before."""
        if KeptIdentity.of(self._standing, self._last.change) != self._last:
            self._last = KeptIdentity.of(self._standing, self._last.change + 1)
        return self._last

    def _write(self, path: Path) -> None:
        self._last.write(self._files, path)
