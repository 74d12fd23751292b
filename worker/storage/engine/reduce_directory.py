"""The REDUCE partitions of one storage directory: copies being written, the push log, seals, what earlier starts left.

Rules: everything runs on the loop thread, which owns all tables, but seals, syncs, marks and removals: those run in
threads with what they need as it was, and what they find is taken in on the loop, where what has left meanwhile is
passed over by name. A failure names the segment or the copy that failed. A segment of the log goes when nothing pending
refers to it, and, at level SYNCED, when what was flushed from it is synced. The oldest segments are emptied bit by bit,
twice as fast as the log grows. Facts and steps only; reduce_store.py decides what goes where. Made by opening.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.core.health import WindowMean
from holdfast.worker.core.write.epochs import EpochState
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.folders import Folders, Unsynced
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.engine.partition import HandedOver, PartitionCopy
from holdfast.worker.storage.engine.reduce_seal import ReduceSealJob, SealWork, mark_failed
from holdfast.worker.storage.engine.rounds import Missing, Round, Synced, SyncFile, SyncSegment, Wanted, sync_all
from holdfast.worker.storage.engine.sealing import Sealer
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env, Handle
from holdfast.worker.storage.index.index import FINAL_SPACE, Index
from holdfast.worker.storage.index.records import DataRecord, EpochRecord, FileHead, encode_shuffle
from holdfast.worker.storage.layout import EpochKey, open_path
from holdfast.worker.storage.log.push_log import SEGMENT_BYTES_MAX, SEGMENT_SHIFT, PushLog, Segment
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.recovery.inventory import Inventory

#: The kernel is asked to begin writing a partition file every time so much has come. What is left is written while its
#: seal waits: for 2 GB in 32 files two cores are idle for 1.3 s with 16 MiB, for 0.5 s with 4 MiB and what seals start
#: themselves. Less would have disks that turn seek too often.
WRITE_BACK_BYTES = 4 << 20


class ReduceDirectory:
    """REDUCE data of one directory."""

    def __init__(
        self,
        *,
        root: Path,
        env: Env,
        index: Index,
        folders: Folders,
        threads: DirectoryThreads,
        sealer: Sealer,
        writers: OpenFiles,
        incarnation: Incarnation,
        boot_id: bytes,
        found: Inventory,
        broke: Callable[[Exception], None],
        room: DirectoryRoom,
        flushes: WindowMean,
        segment_bytes: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self.root = root
        self.index = index
        self.left = found.left
        self.failed = {key for key in found.failed if isinstance(key, EpochKey)}
        self.unnamed = found.unnamed
        self.log = PushLog(env, index, root, incarnation, boot_id, flushes, threads.pool, segment_bytes)
        #: open and being sealed
        self.copies: dict[EpochKey, PartitionCopy] = {}
        #: the same by what is decided on, and the arrays of what is pending: no batch costs more than one look
        self.copy_of: dict[EpochState, PartitionCopy] = {}
        self.positions_of: dict[EpochState | None, array[int]] = {}
        self.sizes_of: dict[EpochState | None, array[int]] = {}
        self.sealing: dict[EpochKey, ReduceSealJob] = {}
        self._aside = found.aside
        self._env, self._files, self._now_ns = env, env.files, env.clock.now_ns
        self._folders = folders
        self._pool, self._lane, self._owner = threads
        self._writers = writers
        self._boot_id = boot_id
        self._old_segments, self._old_logs = found.old_segments, found.old_logs
        self._old_log_bytes = sum(map(env.files.held_bytes, found.old_segments))
        #: told of every write, sync or commit that failed
        self.broke = broke
        self.room = room
        self._flushes = flushes
        #: copies that are given up, which the disk does not say yet
        self.unmarked: set[EpochKey] = set()
        self._marking = False
        #: of what seals have for themselves; and seals that wait for the end of a round of syncs
        self._handed: dict[EpochKey, HandedOver] = {}
        self._held_up: list[tuple[ReduceSealJob, SealWork]] = []
        #: hears of seals that have ended, before they are answered
        self.ended: Callable[[ReduceSealJob, SealWork], object] = lambda *_: None
        self._sealer = sealer
        #: files that seals finished before they met a full disk
        self._finished: dict[EpochKey, DataRecord] = {}
        self._emptying: list[PartitionCopy] = []
        #: SYNCED copies that were flushed since their last sync
        self._unsynced: set[PartitionCopy] = set()
        self._releasing: tuple[int, Future[Missing]] | None = None
        #: what is being synced, and what is next
        self._running: Round | None = None
        self._round: Round | None = None

    # writing

    def begin(self, state: EpochState) -> None:
        """Begin an epoch; raises OSError. Its file is made with its first flush."""
        key = EpochKey(state.shuffle, state.partition, state.epoch)
        self._folders.make(self.root / layout.shuffle_folder(key.shuffle))
        head = FileHead(key, state.ack, self.log.incarnation, self._boot_id)
        copy = PartitionCopy(self.root, head, self.log.views)
        copy.state = state
        self._take(copy)

    def _take(self, copy: PartitionCopy) -> None:
        """From now on the loop has this copy."""
        self.copies[copy.key] = copy
        if copy.state is not None:
            self.copy_of[copy.state] = copy
            self.positions_of[copy.state], self.sizes_of[copy.state] = copy.pending.positions, copy.pending.sizes

    def _close(self, key: EpochKey) -> None:
        """Let go of a copy that takes nothing more."""
        copy = self.copies.pop(key, None)
        if copy is not None and copy.state is not None:
            del self.copy_of[copy.state], self.positions_of[copy.state], self.sizes_of[copy.state]

    def flush(self, copy: PartitionCopy) -> int:
        """Bring what is pending of a copy into its file; return its bytes. Raises OSError; then it is still pending."""
        began = self._now_ns()
        size = copy.flush(self._files, self._writers)
        if size:
            self._wrote(copy, began)
        return size

    def write_run(self, copy: PartitionCopy, body: memoryview, sizes: Sequence[int], map_id: int) -> None:
        """Write batches of one map straight into the file; raises OSError."""
        self.room.take(len(body))
        began = self._now_ns()
        copy.append_run(self._files, self._writers, body, sizes, map_id)
        self._wrote(copy, began)

    def _wrote(self, copy: PartitionCopy, began_ns: int) -> None:
        ended = self._now_ns()
        self._flushes.add(ended, ended - began_ns)
        if copy.ack is Ack.SYNCED:
            self._unsynced.add(copy)
        start = copy.write_back_from
        if copy.file_bytes - start >= WRITE_BACK_BYTES:
            copy.write_back_from = copy.file_bytes
            handle = self._writers.open(copy.path_text)
            self._pool.submit(self._write_back, handle, start, copy.file_bytes - start)

    def _write_back(self, handle: Handle, start: int, length: int) -> None:
        self._files.start_write_back(handle, start, length)

    def empty_some(self, size: int) -> list[tuple[PartitionCopy, OSError]]:
        """The log grew by `size`: flush twice as much out of its oldest segments; return what failed."""
        if not self.log.crowded:
            return []
        errors = []
        if not self._emptying:
            end = (next(iter(self.log.segments)) + 1) << SEGMENT_SHIFT
            self._emptying = [
                copy
                for key, copy in self.copies.items()
                if copy.pending and copy.pending.positions[0] < end and key not in self.sealing
            ]
            if not self._emptying:
                self.release()
        left = 2 * size
        while self._emptying and left > 0:
            copy = self._emptying.pop()
            if copy.key in self.sealing or copy.key not in self.copies:
                continue
            try:
                left -= self.flush(copy)
            except OSError as error:
                errors.append((copy, error))
        if not self._emptying:
            self.release()
        return errors

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
            if not synced.done():
                return
            self._releasing = None
            if not synced.result():  # else the copies that failed are given up, and the next round is without them
                self.log.remove_before(number)
        firsts = [one.first for one in self._handed.values() if one.first >= 0]
        firsts += [copy.pending.positions[0] for copy in self.copies.values() if copy.pending]
        first = min(firsts, default=-1)
        number = first >> SEGMENT_SHIFT if first >= 0 else self.log.newest
        if not self.log.segments or number <= next(iter(self.log.segments)):
            return
        if self._unsynced or self._running is not None:
            self._releasing = number, self.sync(Wanted(set(self._unsynced), set(), set(self._unsynced)))
        else:
            self.log.remove_before(number)

    def tick(self) -> None:
        """Once a second: let go of the log as far as it is not needed."""
        try:
            if not self._handed and not any(copy.pending for copy in self.copies.values()):
                self.log.rest()
            self.log.tell_synced()
            self.release()
            if not self.log.size_bytes:
                self.log.remove_spares()
            if not self.left and not self._handed:
                self._remove_old_log()
        except (OSError, NoRoomError) as error:
            self.broke(error)

    def _remove_old_log(self) -> None:
        """Nothing is left of earlier starts. The word that their logs must be there goes first."""
        if self._old_logs:
            self.index.remove_logs(self._old_logs)
            self._old_logs = set()
        for path in self._old_segments:
            self._files.remove(path)
        self._old_segments, self._old_log_bytes = [], 0

    # syncing

    def sync(self, wanted: Wanted) -> Future[Missing]:
        """Bring segments and partition files to the disk. Asks that wait together share one round."""
        future: Future[Missing] = Future()
        if self._round is None:
            self._round = Round()
        self._round.segments |= wanted.segments
        self._round.files |= wanted.files
        self._round.waiting.append((wanted.copies, future))
        if self._running is None:
            self._begin_round()
        return future

    def _begin_round(self) -> None:
        """Sync what is asked for, with all of it as it is now."""
        found, self._round = self._round, None
        self._running = found
        if found is None:
            return
        self._unsynced -= found.files
        segments = [(one, one.end) for one in found.segments]
        files = [(one, self._folders.unsynced(one.path.parent)) for one in found.files]
        log_folders = (self.root / names.LOG, self.root)
        work = partial(
            sync_all,
            self._files,
            [SyncSegment(one.handle, one.failed, () if one.noted else log_folders) for one, _ in segments],
            [SyncFile(self._writers.known(one.path_text) or one.path_text, folders) for one, folders in files],
        )
        done = self._pool.submit(work)
        done.add_done_callback(lambda done: self._owner(partial(self._round_over, found, segments, files, done)))

    def _round_over(
        self,
        found: Round,
        segments: list[tuple[Segment, int]],
        files: list[tuple[PartitionCopy, Unsynced]],
        done: Future[list[Synced]],
    ) -> None:
        """Take in what a round came to, answer who waits for it, and begin the next one."""
        try:
            outcomes = iter(done.result())
            unsynced = self._lost_segments(segments, outcomes)
            lost = self._lost_files(files, outcomes)
            # What waits for its seal writes anew what is in the log, and needs that no more.
            for copy, error in ({one: unsynced[one] for one in unsynced if one.key in self.copies} | lost).items():
                self.give_up(copy.key, error)
            missing = unsynced.keys() | lost.keys()
            failed = any(segment.failed for segment, _ in segments)
            for copies, future in found.waiting:
                keys = frozenset(one.key for one in copies if one in missing or one.key in self.failed)
                # What was flushed meanwhile needs that segment no more, and is in its file alone: that is not synced.
                flushed = {one for one in copies & self._unsynced if one.key not in keys} if failed else set()
                self._answer(future, keys, flushed)
        finally:
            self._begin_round()
            self._let_seals_go_on()

    def _answer(self, future: Future[Missing], missing: Missing, flushed: set[PartitionCopy]) -> None:
        """Answer who waits, when the files of these copies are synced."""
        if not flushed:
            future.set_result(missing)
            return
        files = self.sync(Wanted(flushed, set(), flushed))
        files.add_done_callback(lambda done: future.set_result(missing | done.result()))

    def _lost_segments(
        self, segments: list[tuple[Segment, int]], outcomes: Iterator[Synced]
    ) -> dict[PartitionCopy, Exception]:
        """The copies that need a segment which could not be brought to the disk."""
        lost: dict[PartitionCopy, Exception] = {}
        copies = [*self.copies.values(), *[copy for _, work in self._held_up for copy in work.copies]]
        for (segment, end), (error, _) in zip(segments, outcomes, strict=False):
            if error is None:
                segment.synced, segment.noted = max(segment.synced, end), True
                continue
            segment.failed = True
            self.broke(error)
            lost |= dict.fromkeys([copy for copy in copies if copy.needs(segment.number)], error)
        return lost

    def _lost_files(
        self, files: list[tuple[PartitionCopy, Unsynced]], outcomes: Iterator[Synced]
    ) -> dict[PartitionCopy, Exception]:
        """Those whose file could not be, but for what was dropped meanwhile. Another sync of it, such as that of a seal
        that waits, would tell that all is well."""
        lost: dict[PartitionCopy, Exception] = {}
        waiting = {copy: work for job, work in self._held_up if not job.dropped for copy in work.copies}
        for (copy, folders), (error, missing) in zip(files, outcomes, strict=True):
            if error is None:
                self._folders.synced(folders)
            why = error or missing
            if why is None:
                continue
            if copy in waiting:
                waiting[copy].copies.remove(copy)
                waiting[copy].failed.append(copy.key)
            elif self.copies.get(copy.key) is not copy:
                continue
            lost[copy] = why
        return lost

    # sealing

    def seal(
        self,
        shuffle: ShuffleKey,
        final: bool,
        incarnation: Incarnation,
        pack: int,
        keys: Sequence[EpochKey],
        began: Callable[[ReduceSealJob], object],
    ) -> ReduceSealJob:
        """Start to seal epochs that are in this directory: open, left behind, or given up; others may have been here,
        and are recorded as lost. `pack` is the number of the pack file, of this incarnation over all directories;
        `began` hears of the seal before it can end."""
        folder = self.root / layout.shuffle_folder(shuffle)
        if any(key in self.left for key in keys):  # what was synced of them may be in the log only, and no folder was
            self._make_folder(folder)
        job = ReduceSealJob(shuffle, tuple(keys))
        began(job)
        lost = EpochRecord(status=Status.DATA_LOST, ack=Ack.MEMORY, incarnation=incarnation)
        unknown = [key for key in keys if not self.has(key)]
        given_up = [key for key in keys if key in self.failed]
        sound = [key for key in keys if key not in self.failed]
        copies = [self.copies[key] for key in sound if key in self.copies]
        left = [self.left.pop(key) for key in sound if key in self.left]
        for copy in copies:
            self._handed[copy.key] = copy.hand_over()
            self._close(copy.key)
            self._writers.close(copy.path_text)
        for one in left:
            self._handed.setdefault(one.key, HandedOver(one.file_bytes, -1))
        work = SealWork(
            self._env,
            self.root,
            self._boot_id,
            shuffle,
            final,
            incarnation,
            pack,
            copies,
            left,
            given_up,
            {key: self._finished[key] for key in keys if key in self._finished},
            dict.fromkeys(unknown, lost),
            partial(self._sealed, job),
        )
        self.sealing.update(dict.fromkeys(keys, job))
        self._held_up.append((job, work))
        self._let_seals_go_on()
        return job

    def _make_folder(self, folder: Path) -> None:
        try:
            self._folders.make(folder)
        except OSError as error:  # the seal meets the same, and says so
            self.broke(error)

    def _let_seals_go_on(self) -> None:
        """Begin the seals of which nothing is being synced: a file is with one thread at a time."""
        syncing = {copy for one in (self._running, self._round) if one is not None for copy in one.copies()}
        ready = [one for one in self._held_up if syncing.isdisjoint(one[1].copies)]
        self._held_up = [one for one in self._held_up if one not in ready]
        for _, work in ready:
            self._unsynced.difference_update(work.copies)
            self._sealer.seal(work)

    def _sealed(self, job: ReduceSealJob, work: SealWork) -> None:
        """A seal has ended; what it sealed is in the index, and the log needs it no more. One that failed has recorded
        nothing, however far it came. What it did for a shuffle that was dropped meanwhile goes with that."""
        for key in [key for key, running in self.sealing.items() if running is job]:
            del self.sealing[key]
            self._handed.pop(key, None)
            self._finished.pop(key, None)
        if work.error is None and not job.dropped:
            self._put_aside(work)
        for error in work.broken.values():
            self.broke(error)
        if not job.dropped:
            self.failed.update(work.broken)
            self.unmarked.update(work.broken)
            self.mark()
            if work.error is not None:
                self._finished |= work.finished
                self._take_back(work)
        self.ended(job, work)
        self.release()
        if work.error is not None:
            job.future.set_exception(work.error)
        else:
            job.future.set_result({key: record.answer(key) for key, record in work.records.items()})

    def _put_aside(self, work: SealWork) -> None:
        """Files whose epochs have their answer, and it is not OK, take room until their shuffle goes."""
        for key in work.failed:
            self._close(key)
            self.left.pop(key, None)
        for key, record in work.records.items():
            if record.status is not Status.OK:
                self._aside[key.shuffle] += self._files.held_bytes(self.root / open_path(key))

    def _take_back(self, work: SealWork) -> None:
        """Nothing was recorded: what a seal had is as it was, and will be sealed another time."""
        for one in work.left:
            self.left[one.key] = one
        for copy in work.copies:
            copy.views = self.log.views
            self._take(copy)
            if copy.ack is Ack.SYNCED and copy.file_bytes:
                self._unsynced.add(copy)

    def give_up(self, key: EpochKey, error: Exception) -> None:
        """A write or sync of this copy failed: it is given up, also after a restart."""
        self.failed.add(key)
        self.unmarked.add(key)
        self.broke(error)
        self.mark()

    def mark(self) -> None:
        """Have the disk say which copies are given up; what fails is tried again after the next good check of it."""
        if self.unmarked and not self._marking:
            self._marking = True
            keys = list(self.unmarked)
            done = self._lane.submit(self._mark_all, keys)
            done.add_done_callback(lambda done: self._owner(partial(self._marked, keys, done)))

    def _mark_all(self, keys: Sequence[EpochKey]) -> list[tuple[EpochKey, OSError]]:
        """In the lane; returns those that have no mark."""
        errors: list[tuple[EpochKey, OSError]] = []
        for key in keys:
            try:
                mark_failed(self._files, self.root, key)
            except FileNotFoundError as error:
                if not self._files.exists(self.root / names.DATA):  # else its folder went with its shuffle
                    errors.append((key, error))
            except OSError as error:
                errors.append((key, error))
        return errors

    def _marked(self, keys: Sequence[EpochKey], done: Future[list[tuple[EpochKey, OSError]]]) -> None:
        self._marking = False
        failure = done.exception()
        errors = dict(done.result()) if failure is None else dict.fromkeys(keys, OSError(str(failure)))
        self.unmarked.difference_update([key for key in keys if key not in errors])
        for error in list(errors.values())[:1]:
            self.broke(error)
        if not errors:
            self.mark()  # those that came meanwhile

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

    # looking up

    def has(self, key: EpochKey) -> bool:
        """Whether anything of it is here that is not sealed."""
        return key in self.copies or key in self.left or key in self.failed or key in self._handed

    def find(self, key: EpochKey) -> EpochRecord | None:
        """What became of a sealed epoch; None if it is not recorded. Raises CorruptError."""
        with self.index.reading() as reader:
            return reader.epoch(key)

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[EpochKey]]:
        """Whether the generation was sealed for good, and its epochs that never accept again."""
        prefix = encode_shuffle(shuffle)
        with self.index.reading() as reader:
            try:
                final = reader.get(FINAL_SPACE + prefix) is not None
                recorded = list(reader.epochs(prefix))
            except CorruptError:
                final, recorded = True, []
        others = [key for key in (*self.left, *self._handed, *self.failed) if key.shuffle == shuffle]
        return final, recorded + others

    @property
    def pending_bytes(self) -> int:
        """Bytes in the logs that a seal has yet to write elsewhere, at most."""
        return self.log.size_bytes + self._old_log_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the logs and of unsealed partition files, those of earlier starts, too."""
        files = sum([copy.file_bytes for copy in self.copies.values()])
        left = sum([one.file_bytes for one in self.left.values()]) + sum(
            [one.size_bytes for one in self._handed.values()]
        )
        handed = sum([one.size_bytes for one in self._handed.values()])
        return self.log.held_bytes + self._old_log_bytes + files + left + handed + sum(self._aside.values())

    def holds(self, shuffle: ShuffleKey) -> bool:
        """Whether anything of a shuffle is here that is not sealed."""
        parts = (self.copies, self.left, self._handed, self.failed)
        return shuffle in self._aside or any(key.shuffle == shuffle for part in parts for key in part)

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which anything is here that is not sealed."""
        parts = (self.copies, self.left, self._handed, self.failed)
        return {key.shuffle for part in parts for key in part} | self._aside.keys()

    # removing

    def drop(self, shuffle: ShuffleKey) -> None:
        """Let go of everything of a shuffle, whose files are about to go."""
        size = 0
        known = self.holds(shuffle)
        for key in [key for key in self.copies if key.shuffle == shuffle]:
            copy = self.copies[key]
            self._close(key)
            self._unsynced.discard(copy)
            self._writers.close(copy.path_text)
            size += copy.file_bytes
        for key in [key for key in self.left if key.shuffle == shuffle]:
            size += self.left.pop(key).file_bytes
        for key in [key for key in self._handed if key.shuffle == shuffle]:
            size += self._handed.pop(key).size_bytes
        if known:  # until it is gone from the disk, also where its batches were in the log alone
            self._aside[shuffle] += size

    def removed(self, shuffle: ShuffleKey) -> None:
        """The files of a dropped shuffle are gone."""
        self._aside.pop(shuffle, None)
        for part in (self.failed, self.unmarked):
            part.difference_update([key for key in part if key.shuffle == shuffle])
        for key in [key for key in self._finished if key.shuffle == shuffle]:
            del self._finished[key]
