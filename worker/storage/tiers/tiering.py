"""Where new epochs begin, and which sealed files move between the tiers of a worker: facts for core/tiers, and its word
carried out.

Rules: the policies decide (core/tiers), moving.py moves, this keeps the books: which sealed file lies where, how it was
used, what is on its way. Files are followed only where there is more than one place to lie in. What a look at the
directories found is used until the next look; an epoch that begins meanwhile counts with EPOCH_BYTES. Loop thread only.
Called by store.py and services/push_service.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.common.config.config import TiersSection
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.core.tiers.allocators import Allocator, accept_all, probabilistic
from holdfast.worker.core.tiers.annotators import Orders, measure_of
from holdfast.worker.core.tiers.space import moves_for
from holdfast.worker.core.tiers.upkeep import Backoff, Wishes, upkeep
from holdfast.worker.core.tiers.view import UNLIMITED, DirectorySet, DirectoryView, FileView, StoreView, Tier
from holdfast.worker.core.tiers.view import TierMove as PlannedMove
from holdfast.worker.core.tiers.watermarks import Marks, demotion, hurried, overfull
from holdfast.worker.core.write.space import Space
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.index.records import DataRecord
from holdfast.worker.storage.layout import DataKey
from holdfast.worker.storage.tiers.moving import FileMover

if TYPE_CHECKING:
    from holdfast.worker.storage.read.sealed_locations import SealedLocations

MEMORY, DFS = "MEMORY", "DFS"
#: What an epoch that has just begun counts until its directory is looked at again.
EPOCH_BYTES = 1 * MIB
#: A file that could not be moved is left where it is for so long.
PAUSE_SECONDS = 5.0


@dataclass(slots=True)
class _File:
    directory: int
    size_bytes: int
    #: it may lie in memory as well; not if it was acknowledged as synced, or nobody knows
    anywhere: bool
    #: it moves, or failed to move: not before this time is it moved again
    not_before: float = 0.0


@dataclass(slots=True)
class MoveCounts:
    """What was moved since the start."""

    files: int = 0
    bytes: int = 0
    failed: int = 0


class Tiering:
    """The books of one worker."""

    def __init__(
        self,
        directories: Sequence[StorageDirectory],
        mover: FileMover,
        places: SealedLocations,
        settings: TiersSection,
        *,
        dfs: bool,
        draw: Callable[[], float],
    ) -> None:
        self._directories = directories
        self._mover = mover
        self._places = places
        self.counts = MoveCounts()
        self._settings = settings
        self._tiers = [settings.order.index(one.tier) for one in directories]
        #: the number that stands for the DFS in plans
        self._dfs = len(directories) if dfs else None
        #: where epochs of each level may begin
        everything = frozenset(one.tier for one in directories)
        self._media = {Ack.MEMORY: everything, Ack.WRITTEN: everything, Ack.SYNCED: everything - {MEMORY}}
        self._lasting = everything - {MEMORY} | {DFS}
        self._has_memory = MEMORY in everything
        #: there is another place where sealed files may go
        self.follows = dfs or len(set(self._tiers)) > 1
        review = settings.reviewer == "probabilistic"
        hard, soft = int(settings.reviewer_hard), int(settings.reviewer_soft)
        self._allocator = Allocator(settings.allocator, probabilistic(draw, hard, soft) if review else accept_all)
        memory = [number for number, one in enumerate(directories) if one.tier == MEMORY]
        self._orders = Orders[DataKey](
            measure_of(settings.memory_annotator, settings.lrfu_step, settings.lrfu_attenuation),
            measure_of(settings.annotator, settings.lrfu_step, settings.lrfu_attenuation),
            memory,
            self._facts,
        )
        self._marks = Marks(settings.high_watermark, settings.low_watermark)
        self._wishes = Wishes(
            align=settings.align,
            promote=settings.promote,
            quota=float(settings.promote_quota),
            files_max=settings.range,
        )
        self._backoff = Backoff(settings.backoff == "any", settings.cooldown.ns)
        #: a swap found no room: the reserve is given back before the next one
        self._restore_first = False
        #: since the last look it was tried to make room for who found none
        self._room_planned = False
        self._files: dict[ShuffleKey, dict[DataKey, _File]] = {}
        self._now = 0.0
        self._view = StoreView(())
        for number, directory in enumerate(directories if self.follows else ()):
            with directory.index.reading() as reader:
                for key, size in [one for each in directory.sealed for one in reader.data_files(each)]:
                    self._add(key, number, size)

    # what is where

    def sealed(self, directory: StorageDirectory, records: Iterable[DataRecord]) -> None:
        """Files were sealed in a directory."""
        if self.follows:
            number = self._directories.index(directory)
            for record in records:
                anywhere = all(epoch.ack is not Ack.SYNCED for _, epoch in record.epochs)
                self._add(record.key, number, record.file_bytes, anywhere)

    def _add(self, key: DataKey, directory: int, size: int, anywhere: bool = False) -> None:
        files = self._files.setdefault(key.shuffle, {})
        if key not in files:
            files[key] = _File(directory, size, anywhere)
            self._orders.committed(key, directory, size)

    def _file(self, key: DataKey) -> _File | None:
        return self._files.get(key.shuffle, {}).get(key)

    def read(self, key: DataKey) -> None:
        """A reader opens a file."""
        file = self._file(key) if self.follows else None
        if file is not None:
            self._orders.accessed(key)
            self._backoff.used(file.directory, int(self._now * 1e9))  # to a look, which is often enough

    def forget(self, shuffle: ShuffleKey) -> None:
        """A shuffle is deleted."""
        for key in self._files.pop(shuffle, ()):
            self._orders.removed(key)

    def _facts(self, key: DataKey) -> FileView[DataKey] | None:
        file = self._file(key)
        if file is None:
            return None
        return FileView(
            file=key,
            directory=file.directory,
            size_bytes=file.size_bytes,
            marked=file.not_before > self._now,
            locked=self._places.reads(key),
            media=None if file.anywhere else self._lasting,
        )

    # where epochs begin

    def look(self, spaces: Sequence[Space | None]) -> None:
        """Take in what a look at all directories found; None: nothing may be written there."""
        self._room_planned = False
        self._view = StoreView(
            tuple(
                DirectoryView(
                    number=number,
                    tier=self._tiers[number],
                    medium=self._directories[number].tier,
                    capacity_bytes=space.capacity,
                    unused_bytes=space.unused,
                    reserved_bytes=space.kept_free,
                )
                for number, space in enumerate(spaces)
                if space is not None
            )
        )

    def choose(self, hint: int, ack: Ack) -> int | None:
        """The number of the directory for a new epoch, None if none has room. `hint`: that number plus one, or 0.

        Memory first, as long as it accepts; then the hint; then any that accepts; then any that has room at all. Where
        none has, files begin to move so that the next one finds some.
        """
        media = self._media[ack]
        attempts = [(DirectorySet(media=media & {MEMORY}), True)] if self._has_memory else []
        if hint:
            attempts.append((DirectorySet(directory=hint - 1, media=media), True))
        attempts += [(DirectorySet(media=media), True), (DirectorySet(media=media), False)]
        for location, reviewed in attempts:
            found = self._allocator.allocate(self._view, 1, location, reviewed=reviewed)
            if found is not None:
                self._view = self._view.with_taken(found.number, min(EPOCH_BYTES, found.free_bytes - 1))
                return found.number
        self._make_room(media)
        return None

    # moving

    def _make_room(self, media: frozenset[str]) -> None:
        """Have files moved for an epoch on one of these media, if there is a plan that ends well; once a look."""
        if not self.follows or self._room_planned or self._mover.busy:
            return
        self._room_planned = True
        view = StoreView((*self._view.directories, *self._dfs_view()))
        ahead = int(self._settings.free_ahead)
        for move in moves_for(view, DirectorySet(media=media), EPOCH_BYTES, ahead, self._orders.first_to_leave):
            self._start(move)

    def step(self, now: float) -> list[tuple[int, int]]:
        """Take in moves that have ended, and plan others where a tier is past its mark. Where sealed files do not make
        enough room: return (directory, bytes of open epochs that should be split, so that they can move)."""
        self._now = now
        self._mover.look()
        self._take_ended()
        if not self.follows or self._mover.busy:
            return []
        view = self._usable()
        marks = [self._marks_of(tier) for tier in view.tiers]
        moves = demotion(view, marks, self._orders.first_to_leave, self._settings.range)
        for move in moves or self._upkeep():
            self._start(move)
        return [] if len(moves) >= self._settings.range else list(_shortfalls(view, marks, moves))

    def _marks_of(self, tier: Tier) -> Marks:
        """The marks of a tier; what found no room in any of its directories lowers them."""
        most = max(one.free_bytes for one in tier)
        wanted = max(
            (self._directories[one.number].room.wanted_bytes for one in tier if one.number != self._dfs), default=0
        )
        if wanted <= most:
            return self._marks
        capacity, used = sum(one.capacity_bytes for one in tier), sum(one.used_bytes for one in tier)
        return hurried(self._marks, capacity, used, sum(one.free_bytes for one in tier) + wanted - most)

    def _upkeep(self) -> tuple[PlannedMove[DataKey], ...]:
        """What makes hot files lie above cold ones, where that was asked for: between directories only."""
        now_ns = int(self._now * 1e9)
        if not (self._wishes.align or self._wishes.promote) or self._backoff.pauses_all(now_ns):
            return ()
        orders, busy = self._orders, self._backoff.busy(now_ns)
        found = upkeep(
            self._view, self._wishes, orders.first_to_leave, orders.heat, restore_first=self._restore_first, busy=busy
        )
        self._restore_first = found.lacks_room
        return found.moves

    def _usable(self) -> StoreView:
        """The directories without what is kept for seals and indexes, and the DFS. What is used of one may be more than
        its capacity, if that was made smaller: less than nothing is unused then."""
        views = [
            DirectoryView(
                number=one.number,
                tier=one.tier,
                medium=one.medium,
                capacity_bytes=max(0, one.capacity_bytes - one.reserved_bytes),
                unused_bytes=one.unused_bytes - one.reserved_bytes,
            )
            for one in self._view.directories
        ]
        return StoreView((*views, *self._dfs_view()))

    def _dfs_view(self) -> list[DirectoryView]:
        if self._dfs is None or not self._mover.away_is_well(self._now):
            return []
        tier, size = self._settings.order.index(DFS), UNLIMITED
        return [DirectoryView(number=self._dfs, tier=tier, medium=DFS, capacity_bytes=size, unused_bytes=size)]

    def _start(self, planned: PlannedMove[DataKey]) -> None:
        source = self._directories[planned.source]
        target = None if planned.target == self._dfs else self._directories[planned.target]
        home = target or self._home_of(source)
        move = self._mover.move(planned.file, planned.size_bytes, source, target, home)
        if self._mover.start(move):
            self._files[planned.file.shuffle][planned.file].not_before = math.inf

    def _home_of(self, source: StorageDirectory) -> StorageDirectory:
        """The directory whose index has the epochs of a file on the DFS: one that outlives a start of the machine."""
        if source.tier != MEMORY:
            return source
        lasting = [one for one in self._directories if one.tier != MEMORY and not one.problem]
        return lasting[0] if lasting else source

    def _take_ended(self) -> None:
        for move in self._mover.take_ended():
            file = self._file(move.key)
            if file is None or move.dropped:
                continue
            if move.problem:
                self.counts.failed += not move.full
                file.not_before = self._now + PAUSE_SECONDS
                if not move.full and not move.unusable:
                    log_event(LogEvent.FILE_MOVE_FAILED, reason=move.problem)
                continue
            if move.remains:
                log_event(LogEvent.FILE_SOURCE_LEFT, reason=move.remains)
            self.counts.files += 1
            self.counts.bytes += move.size_bytes
            if move.target is None:
                del self._files[move.key.shuffle][move.key]
                self._orders.removed(move.key)
            else:
                file.directory, file.not_before = self._directories.index(move.target), 0.0
                self._orders.moved(move.key, file.directory)


def _shortfalls(
    view: StoreView, marks: Sequence[Marks], moves: Sequence[PlannedMove[DataKey]]
) -> Iterator[tuple[int, int]]:
    """For directories of what is past its mark: how much is missing after these moves."""
    for found in overfull(view, marks):
        if found.position == len(view.tiers) - 1:
            continue  # there is nowhere to go
        tier = found.within(view)
        inside = {one.number for one in tier}
        leaving = sum(move.size_bytes for move in moves if move.source in inside and move.target not in inside)
        missing = found.keep_unused_bytes - sum(one.unused_bytes for one in tier) - leaving
        fullest = max(tier, key=lambda one: one.used_bytes)
        if missing > 0:
            yield fullest.number, missing
