"""When the unsealed epochs of a directory are brought to the disk.

Rules: one round of syncs at a time for all partitions, and one for each map file; who asks meanwhile is in the next.
A failure names the segment or the copy that failed, which is given up, since another sync of it would tell that all is
well; what was not tried, for want of descriptors, is tried again. One thread at a time syncs a file: the kernel tells
an error once, and whoever came second would take the file for whole. Loop thread only; what runs in threads is in
rounds.py. Made by unsealed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.common.ids import MapFileKey
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.engine.folders import Unsynced
from holdfast.worker.storage.engine.partition import PartitionCopy
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.engine.rounds import (
    Broken,
    Copy,
    Missing,
    Round,
    Synced,
    SyncFile,
    SyncSegment,
    Wanted,
    map_synced,
    sync_all,
)
from holdfast.worker.storage.engine.seal import EpochSeal, SealWork
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.errors import was_tried
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.index.records import DataRecord
from holdfast.worker.storage.layout import OpenKey
from holdfast.worker.storage.log.push_log import Segment
from holdfast.worker.storage.read.handles import OpenFiles

#: Why a copy is not on the disk that was given up before.
_EARLIER = OSError("a write or sync failed")


@dataclass(frozen=True, slots=True)
class Books:
    """What unsealed.py has of its epochs."""

    copies: dict[OpenKey, Copy]
    failed: dict[OpenKey, Status]
    #: files that seals finished before they met a full disk
    finished: dict[OpenKey, DataRecord]
    #: seals that wait for the end of a round
    held_up: list[tuple[EpochSeal, SealWork]]


class Syncing:
    """The rounds of one directory."""

    def __init__(
        self,
        parts: DirectoryParts,
        writers: OpenFiles,
        run: Callable[[Callable[[], Any], Callable[[Future[Any]], None]], None],
        books: Books,
        give_up: Callable[[OpenKey, Exception], None],
        go_on: Callable[[], None],
    ) -> None:
        """`run` does something in a thread, and goes on behind it; `give_up` is told of copies that are not on the
        disk, and `go_on` that a round is over."""
        self._root, self._files, self._folders = parts.root, parts.env.files, parts.folders
        self._writers, self._run, self._books = writers, run, books
        self._give_up, self._go_on, self._broke = give_up, go_on, parts.broke
        #: SYNCED copies whose files were written to since their last sync, each with where in the log the oldest batch
        #: of that lies; -1 if none does
        self.unsynced: dict[Copy, int] = {}
        #: what is being synced, and what is next: all of partitions together (None), and each map file by itself
        self._running: dict[MapFileKey | None, Round] = {}
        self._next: dict[MapFileKey | None, Round] = {}

    @property
    def goes_on(self) -> bool:
        """Whether anything of partitions is being synced."""
        return None in self._running

    def copies(self) -> set[Copy]:
        """All of which something is being synced, or will be next."""
        return {copy for one in (*self._running.values(), *self._next.values()) for copy in one.copies()}

    def comes_before(self, number: int) -> bool:
        """Whether a segment before this one is being synced, or next. Used again meanwhile, what is written to its file
        then may fail in that sync, and the next one would tell that all is well."""
        rounds = filter(None, (self._running.get(None), self._next.get(None)))
        return any(segment.number < number for one in rounds for segment in one.segments)

    def concerned(self, copy: PartitionCopy) -> Sequence[int]:
        """The segments that a copy is about to be flushed from, while some are being synced."""
        running = self._running.get(None)
        return copy.segments() if running is not None and running.segments else ()

    def flushed(self, copy: PartitionCopy, segments: Sequence[int]) -> None:
        """It was, from those that were `concerned`."""
        if segments:
            self._running[None].flushed.setdefault(copy, set()).update(segments)

    def sync(self, wanted: Wanted, of_map: MapFileKey | None = None) -> Future[Missing]:
        """Bring segments and files to the disk. Asks that wait together share one round."""
        future = self._next.setdefault(of_map, Round()).add(wanted)
        if of_map not in self._running:
            self._begin_round(of_map)
        return future

    def sync_map(self, writer: MapFileWriter) -> Future[None]:
        """Bring all that was appended to a map file to the disk, its name included."""
        mine: dict[Copy, None] = {writer: None}
        return map_synced(writer, self.sync(Wanted(mine, {}, mine), writer.key))

    def _begin_round(self, of_map: MapFileKey | None) -> None:
        """Sync what is asked for, with all of it as it is now."""
        found = self._next.pop(of_map, None)
        if found is None:
            self._running.pop(of_map, None)
            return
        self._running[of_map] = found
        for copy in found.files:
            self.unsynced.pop(copy, None)
        segments = [(one, one.end) for one in found.segments]
        files = [(one, () if one.noted else self._folders.unsynced(one.path.parent)) for one in found.files]
        log_folders = (self._root / names.LOG, self._root)
        work = partial(
            sync_all,
            self._files,
            [SyncSegment(one.handle, one.failed, () if one.noted else log_folders) for one, _ in segments],
            [SyncFile(one.opened(self._writers) or self._path_of(one), folders) for one, folders in files],
        )
        self._run(work, partial(self._round_over, of_map, found, segments, files))

    def _path_of(self, copy: Copy) -> str:
        """Where its file is now: one that a seal finished has its sealed name."""
        return f"{self._root}/{layout.sealed_path(copy.key)}" if copy.key in self._books.finished else copy.path_text

    def _round_over(
        self,
        of_map: MapFileKey | None,
        found: Round,
        segments: list[tuple[Segment, int]],
        files: list[tuple[Copy, Unsynced]],
        done: Future[list[Synced]],
    ) -> None:
        """Take in what a round came to, answer who waits for it, and begin the next one."""
        try:
            outcomes, untried = iter(done.result()), dict[Copy, Exception]()
            unsynced = self._lost_segments(found, segments, outcomes, untried)
            lost = self._lost_files(files, outcomes, untried)
            if of_map in self._next:
                self._next[of_map].broken |= unsynced | lost
            missing = found.broken | unsynced | lost
            # What waits for its seal writes anew what is in the log, and needs that no more.
            for copy, error in missing.items():
                if self._books.copies.get(copy.key) is copy:
                    self._give_up(copy.key, error)
            failed = any(segment.failed for segment, _ in segments)
            for who in found.waiting:
                gone = [one for one in who.copies if one in missing or one in untried or one.key in self._books.failed]
                reasons = {one.key: missing.get(one) or untried.get(one, _EARLIER) for one in gone}
                # What was flushed before it began needs that segment no more, and is in its file alone, unsynced.
                left = who.copies if failed else ()
                flushed = dict.fromkeys([one for one in left if one in self.unsynced and one.key not in reasons])
                who.answer(reasons, self.sync(Wanted(flushed, {}, flushed)) if flushed else None)
        finally:
            self._begin_round(of_map)
            self._go_on()

    def _lost_segments(
        self, found: Round, ends: list[tuple[Segment, int]], outcomes: Iterator[Synced], untried: Broken
    ) -> Broken:
        """The copies that need a segment which could not be brought to the disk, or were flushed from it since: the
        cache may have lost it by then. `untried` gets those for which that was not tried, and may be later."""
        lost: Broken = {}
        waiting = {copy: work for _, work in self._books.held_up for copy in work.copies}
        copies = [*self._books.copies.values(), *waiting]
        for (segment, end), (error, _) in zip(ends, outcomes, strict=False):
            if error is None:
                segment.synced, segment.noted = max(segment.synced, end), True
                continue
            flushed = [copy for copy, of in found.flushed.items() if segment.number in of]
            theirs = dict.fromkeys([copy for copy in copies if copy.needs(segment.number)] + flushed, error)
            if not was_tried(error):
                untried |= theirs
                continue
            segment.failed = True
            self._broke(error)
            lost |= theirs
            for copy in [one for one in flushed if one in waiting]:
                waiting.pop(copy).give_up_before(copy, error)
        for copy in lost.keys() & waiting.keys():
            waiting[copy].doubted.add(copy.key)
        return lost

    def _lost_files(self, files: list[tuple[Copy, Unsynced]], outcomes: Iterator[Synced], untried: Broken) -> Broken:
        """Those whose file could not be, but for what was dropped meanwhile. Another sync of it, such as that of a seal
        that waits, would tell that all is well."""
        lost: Broken = {}
        waiting = {copy: work for job, work in self._books.held_up if not job.dropped for copy in work.copies}
        for (copy, folders), (error, missing) in zip(files, outcomes, strict=True):
            if error is None:
                self._folders.synced(folders)
                if isinstance(copy, MapFileWriter):
                    copy.noted = missing is None
            why = error or missing
            if why is None:
                continue
            if not was_tried(why):
                untried[copy] = why
                if self._books.copies.get(copy.key) is copy:
                    self.unsynced[copy] = 0  # wherever that was in the log
                continue
            if copy in waiting:
                waiting[copy].give_up_before(copy, why)
            elif self._books.copies.get(copy.key) is not copy:
                continue
            lost[copy] = why
        return lost
