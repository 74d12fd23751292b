"""One storage directory in use: its index, the files being written, what is known of the rest.

Facts and steps only; store.py decides which directory a file goes to and what a client is answered. The loop owns all
tables; what runs in threads gets values, and what it found is taken in on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.sizes import UsageTotals
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import ShuffleSum
from holdfast.worker.storage.disks.condition import Condition
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.folders import Folders, remove_folders
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.index import META_KEY, Found, Index, Reader
from holdfast.worker.storage.index.records import EpochRecord, encode_key, given_up
from holdfast.worker.storage.layout import DataKey, EpochKey, OpenKey
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.read.loans import Loan, Loans, leaves_enough
from holdfast.worker.storage.recovery.inventory import Inventory
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings

#: A segment of the push log takes at most this part of a directory's capacity, so that the log, of which there are some
#: segments, is a fraction of it; but never less than a frame and a little more.
SEGMENT_SHARE = 16
SEGMENT_BYTES_LEAST = 8 << 20


class StorageDirectory:
    """Made by opening.py; used by store.py."""

    def __init__(
        self,
        place: DirectorySettings,
        settings: StoreSettings,
        *,
        identity: Identity,
        lock: object,
        env: Env,
        index: Index,
        threads: DirectoryThreads,
        found: Inventory,
        writers: OpenFiles,
        starts: Starts,
    ) -> None:
        self.root = root = Path(place.path)
        self.root_text = str(root)
        self.tier, self.capacity_bytes = place.tier, place.capacity_bytes
        self.identity = identity
        self.index = index
        #: what is known of its sealed files: they are only added up; each is looked up when asked for
        self.sealed = found.sealed
        #: files on the DFS whose epochs are in the index here, with the tokens of their names; and their bytes
        self.away, self.away_bytes = found.away, found.away_bytes
        self.condition = Condition(env, root, identity.encode(), settings.health)
        #: how long writes here and reads from here take
        self.flushes, self.fetches = WindowMean(settings.average_ns), WindowMean(settings.average_ns)
        #: what writers may still add before the next look
        self.room = DirectoryRoom()
        self._lock_file = lock
        self.pool, self.lane, self.owner = threads
        self.files = env.files
        self.folders = Folders(env.files, root / names.DATA)
        #: bytes that are on their way here from another directory
        self.coming_bytes = 0
        #: bytes of files here that have no name
        self.loans = Loans()
        #: files that are elsewhere by now, though the index here may still have them
        self.leaving: set[DataKey] = set()
        parts = DirectoryParts(
            root, env, index, self.folders, threads, starts, self.room, self.flushes, self.condition.broke
        )
        segment_bytes, capacity = settings.segment_bytes, self.capacity_bytes
        if capacity:
            segment_bytes = min(segment_bytes, max(SEGMENT_BYTES_LEAST, capacity // SEGMENT_SHARE))
        #: all that is not sealed
        self.unsealed = UnsealedEpochs(parts, found, writers, segment_bytes)

    @property
    def problem(self) -> str:
        """Why nothing more is written here; "" while all is well."""
        return self.condition.problem

    def try_index(self) -> None:
        """Put into the index what it has already. Blocks; raises OSError or NoRoomError."""
        self.index.put(META_KEY, self.identity.encode())

    def come_back(self) -> bool:
        """Take new data again; False if something has gone wrong meanwhile. What was given up stays given up."""
        if not self.condition.clear():
            return False
        self.folders.look_again()
        self.unsealed.renew()
        return not self.problem

    def count_sealed(self, shuffle: ShuffleKey, sizes: list[int], *, gone: bool = False) -> None:
        """Sealed files of REDUCE partitions were added, or have gone elsewhere. A shuffle of which no file is left is
        still known: the index may have answers of it."""
        sign = -1 if gone else 1
        if gone and shuffle not in self.sealed:
            return  # it was deleted meanwhile
        total = self.sealed.setdefault(shuffle, ShuffleSum())
        total.files += sign * len(sizes)
        total.size_bytes += sign * sum(sizes)

    # moving

    def note_away(self, key: DataKey, token: bytes, size_bytes: int) -> None:
        """A file whose epochs are in the index here is on the DFS."""
        self.away.setdefault(key.shuffle, {})[key] = token
        self.away_bytes[key.shuffle] += size_bytes
        self.sealed.setdefault(key.shuffle, ShuffleSum())

    def away_files(self, shuffle: ShuffleKey) -> dict[DataKey, bytes]:
        """The files of a shuffle that are on the DFS and whose epochs are in the index here, with the tokens of their
        names."""
        return self.away.get(shuffle, {})

    # looking up

    @property
    def used_bytes(self) -> int:
        """Bytes of data files, sealed, open, left by earlier starts, on their way here or without a name, and of the
        push logs."""
        sealed_bytes = sum(total.size_bytes for total in self.sealed.values())
        return sealed_bytes + self.unsealed.used_bytes + self.coming_bytes + self.loans.bytes

    def lend(self, size: int) -> Loan | None:
        """DirectoryRoom for a file without a name, for as long as the loan is held; None if that left too little of the
        capacity. Loop thread."""
        limit = self.capacity_bytes
        if limit and not leaves_enough(limit, limit - self.used_bytes, size):
            return None
        self.room.keep(size)
        return self.loans.take(size)

    @property
    def is_low(self) -> bool:
        """Files without a name take room here that is short by now, as far as is known: no disk is asked."""
        seen = self.condition.measured
        return self.lend(0) is None or not leaves_enough(seen.size, seen.free, 0)

    def held(self) -> list[tuple[ShuffleKey, UsageTotals]]:
        """What each shuffle has in sealed files, here and on the DFS, and in map files that are being written."""
        sealed = [(key, UsageTotals(total.size_bytes, total.files)) for key, total in self.sealed.items()]
        away = [(key, UsageTotals(self.away_bytes[key], len(files))) for key, files in self.away.items()]
        maps = [copy for copy in self.unsealed.copies.values() if isinstance(copy, MapFileWriter)]
        return sealed + away + [(one.key.shuffle, UsageTotals(one.file_bytes, 1)) for one in maps]

    def holds(self, key: ShuffleKey) -> bool:
        """Whether there is anything of a shuffle but an empty folder."""
        return key in self.sealed or self.unsealed.holds(key)

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which there is anything."""
        return self.sealed.keys() | self.unsealed.shuffles()

    def empty_folders(self) -> set[ShuffleKey]:
        """Every shuffle whose folder this start made or used, and that may be empty: of a map of which all was aborted,
        or of a file that was to come here. It goes with its shuffle."""
        keys = (layout.parse_folder(folder.parent.name, folder.name) for folder in self.folders.known())
        return {key for key in keys if key is not None}

    def has(self, key: ShuffleKey) -> bool:
        """Whether there is anything of a shuffle, an empty folder too."""
        return layout.folder_in(self.root, key) in self.folders.known() or self.holds(key)

    def recorded(self, key: OpenKey) -> EpochRecord | None:
        """What became of a sealed epoch, by the index or, where that cannot tell, by the footers; None if it is not
        sealed here. What was given up stays that: a transaction that failed may be in the index all the same, and who
        made an index anew may have believed the footers. Raises CorruptError if neither can tell."""
        try:
            with self.index.reading() as reader:
                found = reader.epoch(key)
        except CorruptError as error:
            return self._from_footers(key, error) if self._may_have(key) else None
        if found is not None and isinstance(key, EpochKey):
            status = self.unsealed.failed.get(key, found.status)
            return found if status is found.status else given_up(self.unsealed.log.incarnation, status)
        return self.forgotten(key) if found is None and isinstance(key, MapFileKey) else found

    def _may_have(self, key: OpenKey) -> bool:
        """Whether a sealed epoch may be here, of which the index cannot tell. A map has a file of its own."""
        try:
            return isinstance(key, EpochKey) or self.files.exists(self.root / layout.sealed_path(key))
        except OSError:
            return True

    def has_epoch(self, key: EpochKey) -> bool:
        """Whether the index has an epoch of a partition."""
        with self.index.reading() as reader:
            return reader.has_epoch(key)

    def forgotten(self, key: MapFileKey) -> EpochRecord | None:
        """That of a sealed map file that is there and not in the index."""
        if key.shuffle in self.sealed and self.files.exists(self.root / layout.sealed_path(key)):
            return self._from_footers(key, CorruptError("the index has forgotten it"))
        return None

    def found(self, key: MapFileKey) -> Found | None:
        """What a reader needs to know of a map file. Raises CorruptError."""
        encoded = encode_key(key)
        try:
            with self.index.reading() as reader:
                found = reader.file(encoded)
        except CorruptError as error:
            found = self._by_footer(key, error)
        record = self.forgotten(key) if found is None else None
        return found if record is None else Found.of(record)

    def reader(self, stack: ExitStack) -> Reader | CorruptError:
        """A snapshot of the index, or why that cannot be read: other directories may have what is asked for."""
        try:
            return stack.enter_context(self.index.reading())
        except CorruptError as error:
            return error

    def lookup(self, key: MapFileKey, encoded: bytes, reader: Reader | CorruptError) -> Found | None:
        """What the index has of a map file, in a snapshot of it, or else the footer; of an index that cannot be read,
        why."""
        try:
            if isinstance(reader, CorruptError):
                raise reader
            return reader.file(encoded)
        except CorruptError as error:
            return self._by_footer(key, error)

    def _by_footer(self, key: MapFileKey, error: CorruptError) -> Found | None:
        return self.from_footer(key, error) if self._may_have(key) else None

    def from_footer(self, key: MapFileKey, cause: CorruptError) -> Found:
        """The same where the index cannot tell. Raises CorruptError."""
        return Found.of(self._from_footers(key, cause))

    def _from_footers(self, key: OpenKey, cause: CorruptError) -> EpochRecord:
        """The record of an epoch: from its file, or of a partition from whichever file of its shuffle has it."""
        # The file of one that was given up may have a sealed name, of which nobody knows whether it is on the disk.
        if key in self.unsealed.failed and isinstance(key, EpochKey):
            return given_up(self.unsealed.log.incarnation, self.unsealed.failed[key])
        folder, why = layout.folder_in(self.root, key.shuffle), ""
        own = [layout.sealed_name(key)] if isinstance(key, MapFileKey) else None
        try:
            found = own or sorted(self.files.names_if_any(folder))
        except OSError as error:
            raise CorruptError(f"{key}: {cause}, and {folder} cannot be read: {error}") from error
        for listed in found:
            name = layout.parse_file(key.shuffle, listed)
            if name is None or name.kind is not layout.FileKind.SEALED:
                continue
            try:
                epochs: dict[OpenKey, EpochRecord] = dict(read_footer(self.files, folder / listed, name.key).epochs)
            except (CorruptError, OSError) as error:
                why = f" ({folder / listed}: {error})"
                continue  # the epoch may be in another file
            if key in epochs:
                return epochs[key]
        raise CorruptError(f"{key}: {cause}, and no footer has it{why}")

    # removing

    def seals_of(self, key: ShuffleKey) -> list[Future[Any]]:
        """The seals of a shuffle that run."""
        return [job.future for job in self.unsealed.jobs if job.shuffle == key]

    def remove(self, key: ShuffleKey) -> list[Path]:
        """Remove a shuffle: index first, then files; but files first where the index is so full that it cannot shrink.
        In the lane, when nothing of it is written or sealed any more. Raises OSError or NoRoomError; then it is to be
        removed again."""
        try:
            self.index.remove_shuffle(key)
        except (OSError, NoRoomError) as error:
            if isinstance(error, OSError) and not is_shortage(error):
                raise
            self.remove_folder(key)
            self.index.remove_shuffle(key)
        return self.remove_folder(key)

    def removed(self, key: ShuffleKey) -> None:
        """A shuffle is gone from the disk: nobody asks about it any more. Loop thread."""
        self.sealed.pop(key, None)
        self.away.pop(key, None)
        self.away_bytes.pop(key, None)
        self.leaving = {name for name in self.leaving if name.shuffle != key}
        self.unsealed.removed(key)

    def remove_folder(self, key: ShuffleKey) -> list[Path]:
        """Remove the folder of a shuffle and what is in it; all that there is of one that only empty_folders() knows.
        In the lane. Returns the folders that are gone; raises OSError."""
        folder = layout.folder_in(self.root, key)
        for name in self.files.names_if_any(folder):
            self.files.remove(folder / name)
        return remove_folders(self.files, folder)

    def remove_files(self, paths: Sequence[Path]) -> None:
        """In the lane. Raises OSError."""
        for path in paths:
            self.files.remove(path)

    def close(self) -> None:
        """Let running seals end and give the directory back; one that hangs is left to the end of the process."""
        if self.condition.hanging:
            for pool in (self.pool, self.lane):
                pool.shutdown(wait=False, cancel_futures=True)
            return
        self.pool.shutdown()
        self.lane.shutdown()  # behind it: what failed in there is marked here
        self.index.close()
        del self._lock_file
