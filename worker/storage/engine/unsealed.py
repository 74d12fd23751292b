"""The epochs of one storage directory that are not sealed, of partitions and of maps: copies being written, the push
log, seals, what earlier starts left.

Rules: everything runs on the loop thread, which owns all tables, but seals, syncs, marks and removals: those run in
threads with what they need as it was, and what they find is taken in on the loop, where what has left meanwhile is
passed over by name. A failure names the segment or the copy that failed. A segment of the log goes when nothing pending
refers to it, and, at level SYNCED, when what was flushed from it is synced. The oldest segments are emptied bit by bit,
twice as fast as the log grows. One thread at a time syncs a file: the kernel tells an error once, and whoever came
second would take the file for whole. Of a map nothing is in the log, and its copy is closed as soon as it is given up,
since it is written anew elsewhere. Facts and steps only; store.py and reduce_store.py decide what goes where. Made by
directory.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.formats.messages import Ack, FileTotals
from holdfast.common.ids import Incarnation, MapFileKey, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import EpochState, Life
from holdfast.worker.storage import layout
from holdfast.worker.storage.engine.marks import Due, FailureMarks
from holdfast.worker.storage.engine.partition import HandedOver, PartitionCopy
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.engine.rounds import Copy, Missing, Wanted
from holdfast.worker.storage.engine.seal import EpochSeal, SealWork
from holdfast.worker.storage.engine.sealing import Sealer
from holdfast.worker.storage.engine.syncing import Books, Syncing
from holdfast.worker.storage.engine.writer import Leftover, MapFileWriter
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.index.records import DataRecord, EpochRecord, FileHead
from holdfast.worker.storage.layout import EpochKey, OpenKey
from holdfast.worker.storage.log.old_logs import OldLogs
from holdfast.worker.storage.log.push_log import SEGMENT_BYTES_MAX, SEGMENT_SHIFT, PushLog
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.recovery.inventory import Inventory


class UnsealedEpochs:
    """The unsealed epochs of one directory."""

    def __init__(
        self, parts: DirectoryParts, found: Inventory, writers: OpenFiles, segment_bytes: int = SEGMENT_BYTES_MAX
    ) -> None:
        self.root, self.index = parts.root, parts.index
        self._parts = parts
        self._env, self._files, self._now_ns = parts.env, parts.env.files, parts.env.clock.now_ns
        self._folders = parts.folders
        self._pool, self._lane, self._owner = parts.threads
        self.broke, self.room = parts.broke, parts.room
        self._boot_id = parts.starts.boot_id
        incarnation = parts.starts.incarnation
        self.log = PushLog(
            parts.env, parts.index, parts.root, incarnation, self._boot_id, parts.flushes, self._pool, segment_bytes
        )
        self._writers = writers
        self._sealer = Sealer(parts.env.files, parts.folders, parts.index, parts.threads)
        self.left = found.left
        #: unsealed map files that an earlier start left behind, or that cannot be removed now
        self.leftovers = {
            key: Leftover(path, parts.env.files.held_bytes(path)) for key, path in found.unsealed_maps().items()
        }
        #: copies that are given up for good
        self.marks, self.failed = FailureMarks(parts, found.failed), found.failed
        self.unnamed = found.unnamed
        #: open
        self.copies: dict[OpenKey, Copy] = {}
        #: those of partitions by what is decided on, and the arrays of what is pending: no batch costs more than one
        #: look
        self.copy_of: dict[EpochState, PartitionCopy] = {}
        self.positions_of: dict[EpochState | None, array[int]] = {}
        self.sizes_of: dict[EpochState | None, array[int]] = {}
        #: seals that run, by epoch, and all of them
        self.sealing: dict[OpenKey, EpochSeal] = {}
        self.jobs: list[EpochSeal] = []
        self._aside = found.aside
        self._old_logs = OldLogs(parts.env.files, parts.index, found.old_segments, found.old_logs)
        #: of what seals have for themselves; and seals that wait for the end of a round of syncs
        self._handed: dict[OpenKey, HandedOver] = {}
        self._held_up: list[tuple[EpochSeal, SealWork]] = []
        #: hears of seals that have ended, before they are answered; and of open epochs whose copy is given up
        self.ended: Callable[[EpochSeal, SealWork], object] = lambda *_: None
        self.gave_up: Callable[[EpochState], object] = lambda _: None
        #: files that seals finished before they met a full disk
        self._finished: dict[OpenKey, DataRecord] = {}
        self._emptying: list[PartitionCopy] = []
        self._releasing: tuple[int, Future[Missing]] | None = None
        books = Books(self.copies, self.failed, self._finished, self._held_up)
        self.syncing = Syncing(parts, writers, self._sealer.run, books, self.give_up, self._let_seals_go_on)

    # writing

    def begin(self, state: EpochState) -> None:
        """Begin an epoch; raises OSError. Its file is made with its first flush."""
        key = EpochKey(state.shuffle, state.partition, state.epoch)
        self._folders.make(layout.folder_in(self.root, key.shuffle))
        head = FileHead(key, state.ack, self.log.incarnation, self._boot_id)
        copy = PartitionCopy(self.root, head, self.log.views)
        copy.state = state
        self._take(copy)

    def begin_map(self, key: MapFileKey, partitions: int, ack: Ack, incarnation: Incarnation) -> MapFileWriter:
        """Create a map file; raises OSError or ProtocolError."""
        self._folders.make(layout.folder_in(self.root, key.shuffle))
        writer = MapFileWriter(self._parts, self, key, partitions=partitions, ack=ack, incarnation=incarnation)
        self.copies[key] = writer
        return writer

    def abort(self, key: MapFileKey) -> None:
        """Remove what is unsealed of a map file, if anything. Raises OSError; then it is left over, to be removed
        later."""
        writer = self.copies.pop(key, None)
        if isinstance(writer, MapFileWriter):
            writer.life = Life.GONE
            self.leftovers[key] = Leftover(writer.path, writer.file_bytes)
            self._files.remove(writer.path)
        elif key in self.leftovers:
            self._files.remove(self.leftovers[key].path)
        self.leftovers.pop(key, None)

    def take_leftovers(self, shuffles: set[ShuffleKey]) -> dict[MapFileKey, Leftover]:
        """The unsealed map files that were left of these shuffles, which are about to be removed."""
        return {key: self.leftovers.pop(key) for key in list(self.leftovers) if key.shuffle in shuffles}

    def _take(self, copy: PartitionCopy) -> None:
        """From now on the loop has this copy."""
        self.copies[copy.key] = copy
        if copy.state is not None:
            self.copy_of[copy.state] = copy
            self.positions_of[copy.state], self.sizes_of[copy.state] = copy.pending.positions, copy.pending.sizes

    def _close(self, key: OpenKey) -> None:
        """Let go of a copy that takes nothing more."""
        copy = self.copies.pop(key, None)
        if isinstance(copy, PartitionCopy) and copy.state is not None:
            del self.copy_of[copy.state], self.positions_of[copy.state], self.sizes_of[copy.state]

    def flush(self, copy: PartitionCopy) -> int:
        """Bring what is pending of a copy into its file; return its bytes. Raises OSError; then it is still pending."""
        began = self._now_ns()
        first = copy.pending.positions[0] if copy.pending else -1
        segments = self.syncing.concerned(copy)
        size = copy.flush(self._files, self._writers)
        if size:
            self.syncing.flushed(copy, segments)
            self._wrote(copy, began, first)
        return size

    def write_run(self, copy: PartitionCopy, body: memoryview, sizes: Sequence[int], map_id: int) -> None:
        """Write batches of one map straight into the file; raises OSError."""
        self.room.take(len(body))
        began = self._now_ns()
        copy.append_run(self._files, self._writers, body, sizes, map_id)
        self._wrote(copy, began, -1)

    def _wrote(self, copy: PartitionCopy, began_ns: int, first: int) -> None:
        if copy.ack is Ack.SYNCED and self.syncing.unsynced.get(copy, -1) < 0:
            self.syncing.unsynced[copy] = first
        self.wrote(copy, began_ns)

    def wrote(self, copy: Copy, began_ns: int) -> None:
        """A write succeeded: have the kernel begin to bring the file to the disk when much of it has come."""
        ended = self._now_ns()
        self._parts.flushes.add(ended, ended - began_ns)
        start = copy.write_back_from
        if copy.file_bytes - start >= copy.write_back_bytes:
            copy.write_back_from = copy.file_bytes
            handle = copy.opened(self._writers) or self._writers.open(copy.path_text)
            self._pool.submit(self._files.start_write_back, handle, start, copy.file_bytes - start)

    def empty(self, size: int, most_ns: int = 0) -> None:
        """Flush so many bytes out of the oldest segments of the log; with `most_ns`, for no longer than that. What
        finds no room waits for the next time, or for its seal; a copy that fails is given up. Either ends it."""
        if not self.log.segments:
            return
        if not self._emptying:
            end = (next(iter(self.log.segments)) + 1) << SEGMENT_SHIFT
            self._emptying = [copy for copy in self._pending() if copy.pending.positions[0] < end]
        began_ns = self._now_ns()
        while self._emptying and size > 0 and not 0 < most_ns <= self._now_ns() - began_ns:
            copy = self._emptying.pop()
            if self.copies.get(copy.key) is not copy or copy.key in self.failed:
                continue
            try:
                size -= self.flush(copy)
            except OSError as error:
                if not is_shortage(error):
                    self.give_up(copy.key, error)
                break
        if not self._emptying:
            self.release()

    def release(self) -> None:
        """Remove the segments that nothing refers to. A disk that fails keeps them, and is told of: it is no concern of
        whoever pushes or seals."""
        try:
            self._release()
        except OSError as error:
            self.broke(error)

    def _release(self) -> None:
        if self._releasing is not None:
            number, synced = self._releasing
            if not synced.done() or self.syncing.comes_before(number) or self.marks.due:
                return
            self._releasing = None
            if not synced.result():  # else the copies that failed are given up, and the next round is without them
                self.log.remove_before(number)
        firsts = [one.first for one in self._handed.values() if one.first >= 0]
        firsts += [copy.pending.positions[0] for copy in self._pending()]
        number = min(firsts) >> SEGMENT_SHIFT if firsts else self.log.newest
        # Of a copy that was given up the log alone tells the next start, until it is marked.
        if self.marks.due or not self.log.segments or number <= next(iter(self.log.segments)):
            return
        if self.syncing.unsynced or self.syncing.goes_on:
            unsynced = dict.fromkeys(self.syncing.unsynced)
            self._releasing = number, self.syncing.sync(Wanted(unsynced, {}, unsynced))
        else:
            self.log.remove_before(number)

    def _pending(self) -> list[PartitionCopy]:
        """The copies of which something is in the log only."""
        pending = [copy for copy in self.copies.values() if copy.pending and isinstance(copy, PartitionCopy)]
        return [copy for copy in pending if copy.key not in self.failed]

    def tick(self, *, no_room: bool = False) -> None:
        """Once a second: let go of the log as far as it is not needed; `no_room`: of what is kept for reuse, too."""
        try:
            if not self._handed and not self._pending():
                self.log.rest()
            self.log.tell_synced()
            self.release()
            if no_room or not self.log.size_bytes:
                self.log.remove_spares()
            # A copy that was given up, and has no mark yet, would have been never here for the next start.
            if not self.left and not self._handed and not self.marks.due:
                self._old_logs.remove()
        except (OSError, NoRoomError) as error:
            self.broke(error)

    # sealing

    def seal(
        self, shuffle: ShuffleKey, final: bool, incarnation: Incarnation, pack: int, keys: Sequence[EpochKey]
    ) -> EpochSeal:
        """Start to seal epochs that are in this directory: open, left behind, or given up; others may have been here,
        and are recorded as lost. `pack` is the number of the pack file, of this incarnation over all directories."""
        folder = layout.folder_in(self.root, shuffle)
        no_room = None
        if any(key in self.left for key in keys):  # what was synced of them may be in the log only, and no folder was
            no_room = self._make_folder(folder)
        lost = EpochRecord(status=Status.DATA_LOST, ack=Ack.MEMORY, incarnation=incarnation)
        unknown = [key for key in keys if not self.has(key)]
        sound = [key for key in keys if key not in self.failed]
        left = [self.left.pop(key) for key in sound if key in self.left]
        job = EpochSeal(shuffle, tuple(keys))
        work = self._work(job, incarnation, [self.copies[key] for key in sound if key in self.copies])
        work.final, work.pack, work.left, work.no_room = final, pack, left, no_room
        work.failed = {key: self.failed[key] for key in keys if key in self.failed}
        work.finished = {key: self._finished[key] for key in keys if key in self._finished}
        work.named = frozenset(work.finished)
        work.records = dict.fromkeys(unknown, lost)
        for one in left:
            self._handed.setdefault(one.key, HandedOver(one.file_bytes, -1))
        self._start(job, work)
        return job

    def seal_map(self, writer: MapFileWriter, totals: FileTotals) -> EpochSeal:
        """Finish a map file and start its seal; raises CorruptError or FAILED_COPY as MapFileWriter.finish does."""
        try:
            writer.finish(totals)
        except CorruptError:
            self.abort(writer.key)
            raise
        job = EpochSeal(writer.key.shuffle, (writer.key,), totals, (writer.path, writer.sealed_path))
        work = self._work(job, self.log.incarnation, [writer])
        work.map = writer.key
        self._start(job, work)
        return job

    def _work(self, job: EpochSeal, incarnation: Incarnation, copies: list[Copy]) -> SealWork:
        """What a seal needs, with the copies handed over to it."""
        for copy in copies:
            self._handed[copy.key] = copy.hand_over()
            self._close(copy.key)
            self._writers.close(copy.path_text)
        ended = partial(self._sealed, job)
        return SealWork(self._env, self.root, self._boot_id, job.shuffle, incarnation, ended, copies)

    def _start(self, job: EpochSeal, work: SealWork) -> None:
        self.jobs.append(job)
        self.sealing.update(dict.fromkeys(job.keys, job))
        self._held_up.append((job, work))
        self._let_seals_go_on()

    def _make_folder(self, folder: Path) -> OSError | None:
        """Returns what a full disk said. Whatever else is wrong the seal meets as well, and says so."""
        try:
            self._folders.make(folder)
        except OSError as error:
            self.broke(error)
            return error if is_shortage(error) else None
        return None

    def _let_seals_go_on(self) -> None:
        """Begin the seals of which nothing is being synced: a file is with one thread at a time."""
        if not self._held_up:
            return
        syncing = self.syncing.copies()
        ready = [one for one in self._held_up if syncing.isdisjoint(one[1].copies)]
        for one in ready:
            self._held_up.remove(one)
        for _, work in ready:
            for copy in work.copies:
                first = self.syncing.unsynced.pop(copy, -1)
                if first >= 0 and copy.key in self._handed:  # the log alone has that on the disk, until it is sealed
                    self._handed[copy.key] = self._handed[copy.key]._replace(first=first)
            self._sealer.seal(work)

    def _sealed(self, job: EpochSeal, work: SealWork) -> None:
        """A seal has ended; what it sealed is in the index, and the log needs it no more. One that failed has recorded
        nothing, however far it came. What it did for a shuffle that was dropped meanwhile goes with that."""
        for key in job.keys:
            if self.sealing.get(key) is job:
                self._handed.pop(key, None)
                self._finished.pop(key, None)
        for error in work.broken.values():
            self.broke(error)
        if not job.dropped:
            self.marks.add(dict.fromkeys(work.broken, Due(job.paths)))
            if work.error is None:
                self._let_go(work)
            else:
                self._finished |= work.finished
                self._take_back(work)
        self.ended(job, work)
        if work.map is None:
            self.marks.mark()
            self.release()
        # A start that finds a sealed name believes it: the mark comes first, also for those who ask again meanwhile.
        if work.broken or work.unrecorded:
            self.marks.mark(partial(self._answer, job, work))
        else:
            self._answer(job, work)

    def _answer(self, job: EpochSeal, work: SealWork) -> None:
        self.jobs.remove(job)
        for key in job.keys:
            if self.sealing.get(key) is job:
                del self.sealing[key]
        job.answer(work)

    def _let_go(self, work: SealWork) -> None:
        """Files whose epochs have their answer, and it is not OK, are of no use to anybody."""
        for key in work.failed:
            self._close(key)
        records = [(key, one) for key, one in work.records.items() if isinstance(key, EpochKey)]
        for key, status in [(key, one.status) for key, one in records if one.status in layout.MARKS.values()]:
            self.left.pop(key, None)
            self.marks.add_file(key, status, named=key in work.broken or key in work.named)

    def _take_back(self, work: SealWork) -> None:
        """Nothing was recorded: what a seal had is as it was, and will be sealed another time."""
        for one in work.left:
            self.left[one.key] = one
        for copy in work.copies:
            assert isinstance(copy, PartitionCopy), "that of a map is given up"
            copy.views = self.log.views
            self._take(copy)
            # Of one that was finished the sealed name may not be on the disk yet.
            if copy.ack is Ack.SYNCED and copy.file_bytes:
                self.syncing.unsynced[copy] = 0  # wherever that was in the log

    def give_up(self, key: OpenKey, error: Exception) -> None:
        """A write or sync of this copy failed: it is given up, also after a restart."""
        writer = self.copies.get(key)
        due = Due()
        if isinstance(writer, MapFileWriter):
            self._close(key)
            writer.life, due = Life.FAILED, Due((writer.path, writer.sealed_path), writer.file_bytes)
        elif writer is not None and writer.state is not None:
            self.gave_up(writer.state)
        self.marks.add({key: due})
        self.broke(error)
        self.marks.mark()

    def pass_over(self, keys: Sequence[EpochKey]) -> None:
        """What the logs have of these is sealed in another directory."""
        for key in keys:
            del self.left[key]

    def renew(self) -> None:
        """The disk is to be trusted again: what follows goes into a new segment of the log."""
        try:
            self.log.renew()
        except OSError as error:
            self.broke(error)

    def has(self, key: OpenKey) -> bool:
        """Whether anything of it is here that is not sealed."""
        return any(key in part for part in self._tables)

    @property
    def _tables(self) -> tuple[Collection[OpenKey], ...]:
        """Everything that is not sealed."""
        return self.copies, self.left, self.leftovers, self._handed, self.failed

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[EpochKey]]:
        """Whether the generation was sealed for good, and its epochs that never accept again."""
        final, recorded = self.index.past(shuffle)
        others = [key for part in (self.left, self._handed, self.failed) for key in part if key.shuffle == shuffle]
        return final, recorded + [key for key in others if isinstance(key, EpochKey)]

    @property
    def pending_bytes(self) -> int:
        """Bytes in the logs that a seal has yet to write elsewhere, at most."""
        return self.log.size_bytes + self._old_logs.held_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the logs and of unsealed files, those of earlier starts, too."""
        files = sum([copy.file_bytes for copy in self.copies.values()])
        left = sum([one.file_bytes for one in self.left.values()])
        others = sum([one.size_bytes for part in (self.leftovers, self._handed) for one in part.values()])
        gone = sum(self._aside.values()) + self.marks.held_bytes
        return self.log.held_bytes + self._old_logs.held_bytes + files + left + others + gone

    def holds(self, shuffle: ShuffleKey) -> bool:
        """Whether anything of a shuffle is here that is not sealed."""
        return shuffle in self._aside or any(key.shuffle == shuffle for part in self._tables for key in part)

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which anything is here that is not sealed."""
        return {key.shuffle for part in self._tables for key in part} | self._aside.keys()

    def drop(self, shuffle: ShuffleKey) -> None:
        """Let go of everything of a shuffle, whose files are about to go."""
        size = 0
        known = self.holds(shuffle)
        for key in [key for key in self.copies if key.shuffle == shuffle]:
            copy = self.copies[key]
            if isinstance(copy, MapFileWriter):
                copy.life = Life.GONE
            self._close(key)
            self.syncing.unsynced.pop(copy, None)
            self._writers.close(copy.path_text)
            size += copy.file_bytes
        for key in [key for key in self.left if key.shuffle == shuffle]:
            size += self.left.pop(key).file_bytes
        for key in [key for key in self._handed if key.shuffle == shuffle]:
            size += self._handed.pop(key).size_bytes
        for job in self.jobs:
            job.dropped = job.dropped or job.shuffle == shuffle
        size += self.marks.drop(shuffle)
        if known:  # until it is gone from the disk, also where its batches were in the log alone
            self._aside[shuffle] += size

    def removed(self, shuffle: ShuffleKey) -> None:
        """The files of a dropped shuffle are gone."""
        self._aside.pop(shuffle, None)
        self.marks.removed(shuffle)
        self.take_leftovers({shuffle})
        for key in [key for key in self._finished if key.shuffle == shuffle]:
            del self._finished[key]
