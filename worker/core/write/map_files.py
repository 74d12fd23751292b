"""Decides what happens to MAP files that are being written: the life of each, and who may do what to it.

Rules: events in, effects out, one door (`step`). Only files on their way are kept here: for sealed ones, and for
copies that failed in an earlier life, the index on disk speaks (worker/storage), as it does for the order within a
file. A request is named by a ticket that only the edge can read. Payload never comes here. Called by
services/map_service.py.

A request is judged in one fixed order: do the masters know us? the shuffle? is the incarnation ours? what does the
file's life allow? is there room under the bounds? Then storage: sealed or failed before? right order? whole batches?
room?
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from holdfast.common.formats.messages import Ack, FileTotals, MapOpen
from holdfast.common.ids import Incarnation, MapFileKey, ShuffleKey
from holdfast.common.limits import PARTITIONS_MAX
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.write.refused_maps import RefusedMaps

#: Files being written at a time; each costs a descriptor and its region index in memory.
OPEN_FILES_MAX = 4_096
#: Files that one connection may have open; a task writes one or two.
HANDLES_MAX = 256
#: Seals on their way to the disk at a time, over all connections.
SEALS_MAX = 4_096
#: Shuffles remembered as forgotten, so that a late writer is refused at once instead of filling the disk.
FORGOTTEN_MAX = 65_536
#: An unsealed file whose connection died is kept this long: its seal may still come on another connection.
ORPHAN_GRACE_NS = 30 * 10**9

#: Names a request to the edge that will answer it.
Ticket = object
#: Whose share something takes of, as common/shares.py has it.
ShareOwner = tuple[bytes, ...]
#: Names a connection.
ConnectionId = int


class FileLife(Enum):
    """Where a MAP file is in its life. Only those on their way have a record: OPEN, SEALING and FAILED."""

    NONE = "unknown"
    OPEN = "open"
    SEALING = "being sealed"
    SEALED = "sealed"
    FAILED = "failed"
    GONE = "dropped"


#: From each state the states that may follow.
LEGAL: dict[FileLife, tuple[FileLife, ...]] = {
    FileLife.NONE: (FileLife.OPEN,),
    FileLife.OPEN: (FileLife.SEALING, FileLife.FAILED, FileLife.GONE),
    FileLife.SEALING: (FileLife.SEALED, FileLife.FAILED, FileLife.GONE),
    FileLife.SEALED: (),
    FileLife.FAILED: (FileLife.GONE,),
    FileLife.GONE: (),
}

#: What poisons a copy: storage keeps a note of it. After anything else the writer may begin the same file anew.
POISON = frozenset({Status.FAILED_COPY, Status.DISK_FULL, Status.DISK_FAILED})


# Events.


@dataclass(frozen=True, slots=True)
class OpenAsked:
    """MAP_OPEN came."""

    connection: ConnectionId
    ticket: Ticket
    request: MapOpen
    #: whose share it takes of
    share: ShareOwner = ()


@dataclass(frozen=True, slots=True)
class PushAsked:
    """MAP_PUSH came."""

    connection: ConnectionId
    ticket: Ticket
    handle: int


@dataclass(frozen=True, slots=True)
class SealAsked:
    """MAP_SEAL came, on any connection."""

    ticket: Ticket
    file: MapFileKey
    totals: FileTotals
    #: whose share it takes of
    share: ShareOwner = ()


@dataclass(frozen=True, slots=True)
class AbortAsked:
    """MAP_ABORT came, on any connection."""

    ticket: Ticket
    file: MapFileKey


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A connection is gone; its files may still be sealed for a while."""

    connection: ConnectionId
    now_ns: int


@dataclass(frozen=True, slots=True)
class NotCreated:
    """Storage refused a Create; what it says about the file stands in the answer."""

    file: MapFileKey


@dataclass(frozen=True, slots=True)
class Broke:
    """Storage could not append, sync or seal, and takes nothing more for this file."""

    file: MapFileKey
    status: Status


@dataclass(frozen=True, slots=True)
class SealEnded:
    """A Seal effect is done with. `sealed`: the file is durable and its answer kept; else Broke came before."""

    file: MapFileKey
    sealed: bool
    share: ShareOwner = ()


@dataclass(frozen=True, slots=True)
class ShuffleForgotten:
    """The masters do not know this shuffle any more."""

    shuffle: ShuffleKey


@dataclass(frozen=True, slots=True)
class Began:
    """This worker has a new incarnation: nothing is appended to what an earlier one opened."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Accepting:
    """Whether new files are taken: the masters know us, and we are not about to end."""

    yes: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SetDraining:
    """Whether this worker drains: files that are being written go on, new ones go to the next worker of their ring."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now_ns: int


Event = (
    OpenAsked
    | PushAsked
    | SealAsked
    | AbortAsked
    | ConnectionLost
    | NotCreated
    | Broke
    | SealEnded
    | ShuffleForgotten
    | Began
    | Accepting
    | SetDraining
    | Tick
)


# Effects.


@dataclass(frozen=True, slots=True)
class Create:
    """Begin the file, in place of an earlier try of it, and answer with the handle; or refuse, NotCreated."""

    ticket: Ticket
    file: MapFileKey
    handle: int
    partitions: int
    ack: Ack


@dataclass(frozen=True, slots=True)
class WriteBody:
    """Check and write the body, answer once it is as safe as `ack` says; or refuse and say Broke."""

    ticket: Ticket
    file: MapFileKey
    ack: Ack


@dataclass(frozen=True, slots=True)
class SealFile:
    """Have storage seal the file, or repeat the answer it kept; answer or refuse; then say SealEnded."""

    ticket: Ticket
    file: MapFileKey
    totals: FileTotals
    share: ShareOwner = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the unsealed file and take its bytes off the disk."""

    file: MapFileKey


@dataclass(frozen=True, slots=True)
class Done:
    """Answer OK."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with a status, and words for people."""

    ticket: Ticket
    status: Status
    reason: str


Effect = Create | WriteBody | SealFile | Drop | Done | Refuse


@dataclass(slots=True)
class _File:
    """A file on its way."""

    key: MapFileKey
    handle: int
    #: whose handle it is; None once that connection is gone
    owner: ConnectionId | None
    ack: Ack
    #: whose share it takes of
    share: ShareOwner
    life: FileLife = FileLife.NONE
    #: when an open file without owner is dropped
    drop_at_ns: int | None = None

    def become(self, life: FileLife) -> None:
        assert life in LEGAL[self.life], f"{self.key}: {self.life.name} -> {life.name}"
        self.life = life


@dataclass(slots=True)
class MapFiles:
    """All files that this worker is writing."""

    incarnation: Incarnation
    accepting: Accepting = Accepting(yes=False, reason="this worker is starting")
    draining: bool = False
    #: files that may be written at a time
    most: int = OPEN_FILES_MAX
    _files: dict[MapFileKey, _File] = field(default_factory=dict)
    #: files that have an owner, by connection and handle
    _handles: dict[ConnectionId, dict[int, _File]] = field(default_factory=dict)
    _forgotten: dict[ShuffleKey, None] = field(default_factory=dict)
    _refused_maps: RefusedMaps = field(default_factory=RefusedMaps)
    _next_handle: int = 1
    #: Seal effects that have not ended, of each owner
    _seals: Shares = field(default_factory=lambda: Shares(SEALS_MAX))
    #: files of each owner
    _shares: Shares = field(init=False)

    def __post_init__(self) -> None:
        self._shares = Shares(self.most)

    def step(self, event: Event) -> list[Effect]:
        """Take one event and return what has to be done, in order."""
        match event:
            case PushAsked():
                return [self._push(event)]
            case OpenAsked():
                return [self._open_refusal(event) or self._open(event)]
            case SealAsked():
                return [self._seal(event)]
            case AbortAsked():
                return [*self._drop(self._files.get(event.file)), Done(event.ticket)]
            case Broke():
                self._broke(event)
            case NotCreated():
                file = self._files[event.file]
                file.become(FileLife.GONE)
                self._leave(file)
            case SealEnded():
                self._seal_ended(event)
            case ConnectionLost():
                self._lost(event)
            case Tick():
                return self._tick(event.now_ns)
            case ShuffleForgotten():
                return self._forget(event.shuffle)
            case Began():
                self.incarnation = event.incarnation
                return [effect for file in list(self._files.values()) for effect in self._drop(file)]
            case Accepting():
                self.accepting = event
            case SetDraining():
                self.draining = event.yes
                if not event.yes:
                    self._refused_maps.forget()
            case _:
                assert_never(event)
        return []

    def life(self, file: MapFileKey) -> FileLife:
        """Where a file is in its life; NONE for those that only storage knows."""
        found = self._files.get(file)
        return found.life if found else FileLife.NONE

    @property
    def seals(self) -> int:
        """Seal effects that have not ended."""
        return self._seals.total

    @property
    def count(self) -> int:
        """Files that have a record."""
        return len(self._files)

    @property
    def writing(self) -> int:
        """Files that are not sealed, and may be."""
        return sum(file.life is not FileLife.FAILED for file in self._files.values())

    def check(self) -> None:
        """Re-derive everything redundant; an AssertionError is a bug."""
        assert len(self._forgotten) <= FORGOTTEN_MAX
        assert len(self._files) == self._shares.total <= self.most
        self._shares.check()
        self._seals.check()
        owned = 0
        for connection, handles in self._handles.items():
            assert 0 < len(handles) <= HANDLES_MAX, (connection, len(handles))
            for handle, file in handles.items():
                assert (file.handle, file.owner) == (handle, connection), file
                assert self._files[file.key] is file, file
                owned += 1
        assert owned == sum(file.owner is not None for file in self._files.values())
        for key, file in self._files.items():
            assert key == file.key
            assert file.life in (FileLife.OPEN, FileLife.SEALING, FileLife.FAILED), file
            assert (file.drop_at_ns is not None) == (file.life == FileLife.OPEN and file.owner is None), file

    # Requests.

    def _open_refusal(self, event: OpenAsked) -> Refuse | None:
        """The fixed order of questions; the first that is answered badly decides."""
        request, ticket = event.request, event.ticket
        old = self._files.get(request.file)
        if not self.accepting.yes:
            return Refuse(ticket, Status.UNAVAILABLE, self.accepting.reason)
        if request.file.shuffle in self._forgotten:
            return Refuse(ticket, Status.UNKNOWN_SHUFFLE, f"the masters have forgotten {request.file.shuffle}")
        if request.incarnation not in (0, self.incarnation):
            reason = f"this is incarnation {self.incarnation}, not {request.incarnation}"
            return Refuse(ticket, Status.STALE_INCARNATION, reason)
        if not 1 <= request.partitions <= PARTITIONS_MAX:
            return Refuse(
                ticket, Status.BAD_REQUEST, f"{request.partitions} partitions; 1 to {PARTITIONS_MAX} are allowed"
            )
        if self.draining and old is None and not self._refused_maps.is_back(request.file):
            return Refuse(ticket, Status.HARD_SPLIT, "this worker drains; the next one of the ring takes the file")
        if old is not None and old.life == FileLife.FAILED:
            return Refuse(ticket, Status.FAILED_COPY, f"{request.file} failed here before")
        if old is not None and old.life == FileLife.SEALING:
            return Refuse(ticket, Status.BUSY, f"{request.file} is being sealed; ask for its seal again")
        if old is None and not self._shares.fits(event.share, 1):
            reason = (
                f"{len(self._files)} of {self.most} files are being written, as many as may be or are left to this user"
            )
            return Refuse(ticket, Status.BUSY, reason)
        if len(self._handles.get(event.connection, ())) >= HANDLES_MAX:
            return Refuse(ticket, Status.BUSY, f"this connection writes {HANDLES_MAX} files")
        return None

    def _open(self, event: OpenAsked) -> Create:
        request = event.request
        old = self._files.get(request.file)
        if old is not None:  # an earlier try of the same writer; Create drops its bytes
            old.become(FileLife.GONE)
            self._leave(old)
        file = _File(request.file, self._next_handle, event.connection, request.ack, event.share)
        self._next_handle = self._next_handle % 0xFFFF_FFFF + 1
        file.become(FileLife.OPEN)
        self._files[file.key] = file
        self._shares.add(file.share, 1)
        assert len(self._files) == self._shares.total <= self.most, "each file is counted, and there is room for it"
        self._handles.setdefault(event.connection, {})[file.handle] = file
        return Create(event.ticket, file.key, file.handle, request.partitions, file.ack)

    def _push(self, event: PushAsked) -> WriteBody | Refuse:
        file = self._handles.get(event.connection, {}).get(event.handle)
        if file is None:
            return Refuse(event.ticket, Status.UNKNOWN_FILE, f"handle {event.handle} is not open on this connection")
        if file.life == FileLife.OPEN:
            return WriteBody(event.ticket, file.key, file.ack)
        if file.life == FileLife.FAILED:
            return Refuse(event.ticket, Status.FAILED_COPY, f"{file.key} failed")
        return Refuse(event.ticket, Status.SEALED, f"{file.key} is {file.life.value}")

    def _seal(self, event: SealAsked) -> SealFile | Refuse:
        """Ask storage, also for files without a record: it repeats answers, and says why it cannot."""
        if not self._seals.fits(event.share, 1):
            return Refuse(event.ticket, Status.BUSY, f"{self.seals} of {SEALS_MAX} seals are on their way; ask again")
        file = self._files.get(event.file)
        if file is not None and file.life == FileLife.FAILED:
            return Refuse(event.ticket, Status.FAILED_COPY, f"{event.file} failed")
        if file is not None and file.life == FileLife.OPEN:
            file.become(FileLife.SEALING)
            file.drop_at_ns = None
        self._seals.add(event.share, 1)
        return SealFile(event.ticket, event.file, event.totals, event.share)

    # What became of them.

    def _broke(self, event: Broke) -> None:
        file = self._files.get(event.file)
        if file is None or file.life == FileLife.FAILED:
            return
        if event.status in POISON:
            file.become(FileLife.FAILED)
            file.drop_at_ns = None
            if file.owner is None:
                self._leave(file)  # storage remembers; the record only serves the owner's handle
        else:
            file.become(FileLife.GONE)
            self._leave(file)

    def _seal_ended(self, event: SealEnded) -> None:
        self._seals.give(event.share, 1)
        file = self._files.get(event.file)
        if event.sealed and file is not None and file.life == FileLife.SEALING:
            file.become(FileLife.SEALED)
            self._leave(file)

    def _lost(self, event: ConnectionLost) -> None:
        for file in self._handles.pop(event.connection, {}).values():
            file.owner = None
            if file.life == FileLife.OPEN:
                file.drop_at_ns = event.now_ns + ORPHAN_GRACE_NS
            elif file.life == FileLife.FAILED:
                self._leave(file)

    def _tick(self, now_ns: int) -> list[Effect]:
        late = [file for file in self._files.values() if file.drop_at_ns is not None and file.drop_at_ns <= now_ns]
        return [effect for file in late for effect in self._drop(file)]

    def _forget(self, shuffle: ShuffleKey) -> list[Effect]:
        self._forgotten.pop(shuffle, None)
        self._forgotten[shuffle] = None
        if len(self._forgotten) > FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        files = [file for file in self._files.values() if file.key.shuffle == shuffle]
        return [effect for file in files for effect in self._drop(file)]

    def _drop(self, file: _File | None) -> list[Effect]:
        """Drop a file that is not being sealed: a seal on its way ends as it will."""
        if file is None or file.life == FileLife.SEALING:
            return []
        file.become(FileLife.GONE)
        self._leave(file)
        return [Drop(file.key)]

    def _leave(self, file: _File) -> None:
        del self._files[file.key]
        self._shares.give(file.share, 1)
        if file.owner is not None:
            handles = self._handles[file.owner]
            del handles[file.handle]
            if not handles:
                del self._handles[file.owner]
