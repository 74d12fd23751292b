"""Decides what happens to MAP files that are being written: the life of each, and who may do what to it.

Rules: only files on their way are kept here: for sealed ones, and for copies that failed in an earlier life, the index
on disk speaks (worker/storage), as it does for the order within a file. Who is refused gets an error, and nothing has
changed then. Payload never comes here. Called by services/map_service.py.

A request is judged in one fixed order: do the masters know us? the shuffle? is the incarnation ours? what does the
file's life allow? is there room under the bounds? Then storage: sealed or failed before? right order? whole batches?
room?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.common.errors import error_for
from holdfast.common.formats.messages import Ack, MapOpen
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapFileKey, MapId, ShuffleKey
from holdfast.common.limits import PARTITIONS_MAX
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.bounded import remember
from holdfast.worker.core.write.epochs import LEGAL, Life

#: Files being written at a time; each costs a descriptor and its region index in memory.
OPEN_FILES_MAX = 4_096
#: Files that one connection may have open; a task writes one or two.
HANDLES_MAX = 256
#: Seals on their way to the disk at a time, over all connections.
SEALS_MAX = 4_096
#: Shuffles remembered as forgotten, so that a late writer is refused at once instead of filling the disk.
FORGOTTEN_MAX = 65_536
#: Attempts that were turned away while this worker drains; one that was forgotten is turned away once more.
REFUSED_MAPS_MAX = 65_536
#: An unsealed file whose connection died is kept this long: its seal may still come on another connection.
ORPHAN_GRACE_NS = 30 * 10**9

#: Whose share something takes of, as common/shares.py has it.
ShareOwner = tuple[bytes, ...]
#: Names a connection.
ConnectionId = int

#: What poisons a copy: storage keeps a note of it. After anything else the writer may begin the same file anew.
POISON = frozenset({Status.FAILED_COPY, Status.DISK_FULL, Status.DISK_FAILED})


@dataclass(slots=True, eq=False)
class OpenMapFile:
    """A file on its way: OPEN, SEALING or FAILED."""

    key: MapFileKey
    handle: int
    #: whose handle it is; None once that connection is gone
    owner: ConnectionId | None
    ack: Ack
    #: whose share it takes of
    share: ShareOwner
    life: Life = Life.OPEN
    #: when an open file without owner is dropped
    drop_at_ns: int | None = None

    def become(self, life: Life) -> None:
        assert life in LEGAL[self.life], f"{self.key}: {self.life.name} -> {life.name}"
        self.life = life


@dataclass(slots=True)
class MapFiles:
    """All files that this worker is writing. What returns keys has them dropped: storage takes their bytes off the
    disk."""

    incarnation: Incarnation
    #: why no new file is taken; "" if it is
    closed_because: str = "this worker is starting"
    #: files that are being written go on, new ones go to the next worker of their ring
    draining: bool = False
    #: files that may be written at a time
    most: int = OPEN_FILES_MAX
    _files: dict[MapFileKey, OpenMapFile] = field(default_factory=dict)
    #: files that have an owner, by connection and handle
    _handles: dict[ConnectionId, dict[int, OpenMapFile]] = field(default_factory=dict)
    _forgotten: dict[ShuffleKey, None] = field(default_factory=dict)
    #: attempts that were refused for no other reason than that this worker drains, and the epoch of their first try
    _refused_maps: dict[tuple[ShuffleKey, MapId, AttemptId], Epoch] = field(default_factory=dict)
    _next_handle: int = 1
    #: seals that have not ended, of each owner
    _seals: Shares = field(default_factory=lambda: Shares(SEALS_MAX))
    #: files of each owner
    _shares: Shares = field(init=False)

    def __post_init__(self) -> None:
        self._shares = Shares(self.most)

    # Requests.

    def open(self, connection: ConnectionId, request: MapOpen, share: ShareOwner = ()) -> OpenMapFile:
        """Begin a file, in place of an earlier try of it; `not_created` follows where storage refuses. Raises
        HoldfastError."""
        refused = self._open_refusal(connection, request, share)
        if refused is not None:
            raise error_for(*refused)
        old = self._files.get(request.file)
        if old is not None:  # an earlier try of the same writer; storage drops its bytes
            self._leave(old, Life.GONE)
        file = OpenMapFile(request.file, self._next_handle, connection, request.ack, share)
        self._next_handle = self._next_handle % 0xFFFF_FFFF + 1
        self._files[file.key] = file
        self._shares.add(share, 1)
        assert len(self._files) == self._shares.total <= self.most, "each file is counted, and there is room for it"
        self._handles.setdefault(connection, {})[file.handle] = file
        return file

    def _open_refusal(self, connection: ConnectionId, request: MapOpen, share: ShareOwner) -> tuple[Status, str] | None:
        """The fixed order of questions; the first that is answered badly decides."""
        file, old = request.file, self._files.get(request.file)
        if self.closed_because:
            return Status.UNAVAILABLE, self.closed_because
        if self.forgot(file.shuffle):
            return Status.UNKNOWN_SHUFFLE, f"the masters have forgotten {file.shuffle}"
        if request.incarnation not in (0, self.incarnation):
            return Status.STALE_INCARNATION, f"this is incarnation {self.incarnation}, not {request.incarnation}"
        if not 1 <= request.partitions <= PARTITIONS_MAX:
            return Status.BAD_REQUEST, f"{request.partitions} partitions; 1 to {PARTITIONS_MAX} are allowed"
        if self.draining and old is None and not self._is_back(file, request.copies):
            return Status.HARD_SPLIT, "this worker drains; the next one of the ring takes the file"
        if old is not None and old.life is Life.FAILED:
            return Status.FAILED_COPY, f"{file} failed here before"
        if old is not None and old.life is Life.SEALING:
            return Status.BUSY, f"{file} is being sealed; ask for its seal again"
        if old is None and not self._shares.fits(share, 1):
            taken = f"{len(self._files)} of {self.most} files are being written"
            return Status.BUSY, f"{taken}, as many as may be or are left to this user"
        if len(self._handles.get(connection, ())) >= HANDLES_MAX:
            return Status.BUSY, f"this connection writes {HANDLES_MAX} files"
        return None

    def _is_back(self, file: MapFileKey, copies: int) -> bool:
        """Whether this attempt has asked everybody else since it was turned away; else it is from now on.

        A writer goes round the ring of its shuffle, a worker further with each epoch, and the ring never changes. One
        that comes back has asked everybody: the others are lost, full, or drain as well. Then it is better off here
        than nowhere. With several copies it asks the same worker in as many epochs, one after the other, so it is
        back when it comes with a later one.
        """
        attempt = (file.shuffle, file.map, file.attempt)
        first = self._refused_maps.get(attempt)
        if first is None:
            remember(self._refused_maps, attempt, file.epoch, REFUSED_MAPS_MAX)
        return first is not None and file.epoch >= first + copies

    def forgot(self, shuffle: ShuffleKey) -> bool:
        return shuffle in self._forgotten

    def pushed(self, connection: ConnectionId, handle: int) -> OpenMapFile:
        """The file that a push is for. Raises HoldfastError if it takes nothing."""
        file = self._handles.get(connection, {}).get(handle)
        if file is None:
            raise error_for(Status.UNKNOWN_FILE, f"handle {handle} is not open on this connection")
        if file.life is Life.FAILED:
            raise error_for(Status.FAILED_COPY, f"{file.key} failed")
        if file.life is not Life.OPEN:
            raise error_for(Status.SEALED, f"{file.key} is {file.life.value}")
        return file

    def seal(self, key: MapFileKey, share: ShareOwner = ()) -> None:
        """Storage is asked to seal a file, also one without a record: it repeats answers, and says why it cannot.
        `seal_ended` must follow. Raises HoldfastError."""
        if not self._seals.fits(share, 1):
            raise error_for(Status.BUSY, f"{self.seals} of {SEALS_MAX} seals are pending; ask again")
        file = self._files.get(key)
        if file is not None and file.life is Life.FAILED:
            raise error_for(Status.FAILED_COPY, f"{key} failed")
        if file is not None and file.life is Life.OPEN:
            file.become(Life.SEALING)
            file.drop_at_ns = None
        self._seals.add(share, 1)

    def abort(self, key: MapFileKey) -> list[MapFileKey]:
        return self._drop(filter(None, [self._files.get(key)]))

    # What became of them.

    def not_created(self, file: OpenMapFile) -> None:
        self._leave(file, Life.GONE)

    def broke(self, key: MapFileKey, status: Status) -> None:
        """Storage could not append, sync or seal, and takes nothing more for this file."""
        file = self._files.get(key)
        if file is None or file.life is Life.FAILED:
            return
        if status in POISON and file.owner is not None:
            file.become(Life.FAILED)
            file.drop_at_ns = None
        else:  # storage remembers what failed; the record would only serve the owner's handle
            self._leave(file, Life.GONE)

    def seal_ended(self, key: MapFileKey, share: ShareOwner = (), *, sealed: bool) -> None:
        """A seal is done with: the file is durable and its answer kept, or it `broke` before."""
        self._seals.give(share, 1)
        file = self._files.get(key)
        if sealed and file is not None and file.life is Life.SEALING:
            self._leave(file, Life.SEALED)

    # What happens around them.

    def lost(self, connection: ConnectionId, now_ns: int) -> None:
        """A connection is gone; its files may still be sealed for a while."""
        for file in self._handles.pop(connection, {}).values():
            file.owner = None
            if file.life is Life.OPEN:
                file.drop_at_ns = now_ns + ORPHAN_GRACE_NS
            elif file.life is Life.FAILED:
                self._leave(file, Life.GONE)

    def tick(self, now_ns: int) -> list[MapFileKey]:
        files = self._files.values()
        return self._drop(file for file in files if file.drop_at_ns is not None and file.drop_at_ns <= now_ns)

    def forget(self, shuffle: ShuffleKey) -> list[MapFileKey]:
        """The masters do not know a shuffle any more: it gets no new files."""
        remember(self._forgotten, shuffle, None, FORGOTTEN_MAX)
        return self._drop(file for file in self._files.values() if file.key.shuffle == shuffle)

    def begin(self, incarnation: Incarnation) -> list[MapFileKey]:
        """This worker has a new incarnation: nothing is appended to what an earlier one opened."""
        self.incarnation = incarnation
        return self._drop(self._files.values())

    def drain(self, yes: bool) -> None:
        """Send new files to other workers, or take them again."""
        self.draining = yes
        if not yes:
            self._refused_maps.clear()

    def _drop(self, files: Iterable[OpenMapFile]) -> list[MapFileKey]:
        """Let go of files that are not being sealed: a seal on its way ends as it will."""
        dropped = [file for file in files if file.life is not Life.SEALING]
        for file in dropped:
            self._leave(file, Life.GONE)
        return [file.key for file in dropped]

    def _leave(self, file: OpenMapFile, life: Life) -> None:
        file.become(life)
        del self._files[file.key]
        self._shares.give(file.share, 1)
        if file.owner is not None:
            handles = self._handles[file.owner]
            del handles[file.handle]
            if not handles:
                del self._handles[file.owner]

    def life(self, key: MapFileKey) -> Life | None:
        """Where a file is in its life; None for those that only storage knows."""
        found = self._files.get(key)
        return found.life if found is not None else None

    @property
    def seals(self) -> int:
        """Seals that have not ended."""
        return self._seals.total

    @property
    def count(self) -> int:
        return len(self._files)

    @property
    def writing(self) -> int:
        return sum(file.life is not Life.FAILED for file in self._files.values())

    def check(self) -> None:
        assert len(self._forgotten) <= FORGOTTEN_MAX
        assert len(self._refused_maps) <= REFUSED_MAPS_MAX
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
            assert file.life in (Life.OPEN, Life.SEALING, Life.FAILED), file
            assert (file.drop_at_ns is not None) == (file.life is Life.OPEN and file.owner is None), file
