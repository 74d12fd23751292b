"""REDUCE partitions over all directories of a worker: what the services use.

    store.begin(state)                           # an epoch begins
    failures = store.append(decision, rows, body)   # a frame is written; failures are (index, status)
    store.flush(states)                          # what is pending goes into the partition files
    store.seal(shuffle, final, epochs)           # a future with one answer for each
    store.chunks(shuffle, partition, epoch)      # where a sealed epoch lies

Loop thread only; nothing waits for a sync. A frame's small batches go to the log of their epoch's directory with one
write, larger runs straight into the partition files. Made by store.py.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from holdfast.common.errors import DataLostError, HoldfastError, RerouteError, RetryError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY, SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import EpochState
from holdfast.worker.core.write.seen_batches import PushDecision
from holdfast.worker.storage.engine.answers import failed_copy, not_sealed, unknown_file, unreadable
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.partition import PartitionCopy
from holdfast.worker.storage.engine.rounds import Missing, Wanted
from holdfast.worker.storage.engine.seal import EpochSeal, SealWork
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.index.records import DataRecord, EpochRecord
from holdfast.worker.storage.layout import DataKey, EpochKey, OpenKey, PackKey, sealed_path
from holdfast.worker.storage.log.log_records import RECORD_BYTES, RecordHead
from holdfast.worker.storage.log.push_log import Segment
from holdfast.worker.storage.read.sealed_locations import SealedLocation, SealedLocations
from holdfast.worker.storage.tiers.arriving import Arrival
from holdfast.worker.storage.tiers.moving import FileMove

if TYPE_CHECKING:
    from holdfast.worker.storage.dfs.away import Away

#: Batches of one partition that come together and are not shorter than this go straight into its file.
DIRECT_BYTES = 32 * KIB
#: What a byte in the log takes of a directory's room: it has to be written elsewhere in the end.
LOG_TAKES = 2
#: A log that nobody's pushes empty is emptied by so much a second, and the loop stands still for so long at most.
EMPTIED_BYTES = 32 * MIB
EMPTYING_NS = 50_000_000
_SIZE = itemgetter(3)

Failure = tuple[int, Status]


class ReduceStore:
    """All REDUCE data of a worker."""

    def __init__(self, directories: list[StorageDirectory], away: Away | None = None) -> None:
        self._directories = directories
        self._away = away
        self.places = SealedLocations()
        for directory in directories:
            directory.unsealed.ended = partial(self._ended, directory)
            directory.unsealed.gave_up = self._gave_up
        #: pack files made since the start; over all directories, since files move from one to another
        self._packs = 0
        #: told of files that were sealed, and of those that are read
        self.on_sealed: Callable[[StorageDirectory, Sequence[DataRecord]], None] = lambda *_: None
        self.on_read: Callable[[DataKey], None] = lambda _: None
        #: told of open epochs whose copy is given up
        self.on_given_up: Callable[[EpochState], object] = lambda _: None
        #: why something that is not known here may be sealed all the same; "" if it is not
        self.not_known_yet: Callable[[], str] = lambda: ""
        #: bytes written straight into partition files, and into the log
        self.direct_bytes = 0
        self.log_bytes = 0
        self.flushes = 0

    # writing

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[tuple[int, int]]]:
        """What the disks remember of a shuffle: whether it was sealed for good, and its closed epochs."""
        found = [directory.unsealed.past(shuffle) for directory in self._directories]
        return any(final for final, _ in found), [(key.partition, key.epoch) for _, keys in found for key in keys]

    @property
    def full(self) -> bool:
        """A push log cannot be emptied as fast as it grows: take nothing for the moment."""
        return any(one.unsealed.log.full and not one.problem for one in self._directories)

    def begin(self, state: EpochState) -> None:
        """Begin the copy of an epoch; raises OSError."""
        unsealed = self._directories[state.directory].unsealed
        try:
            unsealed.begin(state)
        except OSError as error:
            unsealed.broke(error)
            raise

    def _copy(self, state: EpochState) -> PartitionCopy:
        return self._directories[state.directory].unsealed.copy_of[state]

    def has_file(self, state: EpochState) -> bool:
        """Whether anything of an epoch that is not sealed is outside the log."""
        copy = self._directories[state.directory].unsealed.copy_of.get(state)
        return copy is not None and copy.file_bytes > 0

    def append(self, decision: PushDecision, rows: bytes | memoryview, body: memoryview) -> list[Failure]:
        """Write what was taken of a frame; `rows` are its entries as they came. Returns (index, status) of failures."""
        entries, states = decision.push.entries, decision.states
        count = len(entries)
        scattered = len(body) < DIRECT_BYTES * count and (count == 1 or entries[0][0] != entries[1][0])
        if decision.whole and scattered and len(self._directories) == 1:
            return self._append_whole(decision, rows, body)
        small: dict[int, list[tuple[int, int, int]]] = {}
        failures: list[Failure] = []
        offset = index = 0
        while index < count:
            state, first, start = states[index], index, offset
            while index < count and states[index] is state and (state is not None or index == first):
                offset += entries[index][3]
                index += 1
            if state is None:
                continue
            if offset - start >= DIRECT_BYTES:
                failures += self._write_run(decision, state, first, index, body[start:offset])
            else:
                some = small.setdefault(state.directory, [])
                for one in range(first, index):
                    some.append((one, start, entries[one][3]))
                    start += entries[one][3]
        for directory, some in small.items():
            failures += self._append_some(decision, directory, some, body)
        return sorted(failures)

    def _append_whole(self, decision: PushDecision, rows: bytes | memoryview, body: memoryview) -> list[Failure]:
        """The hot path: the whole body is one record of the log."""
        push = decision.push
        unsealed = self._directories[0].unsealed
        count = len(push.entries)
        size = RECORD_BYTES + len(body) + len(rows)
        try:
            unsealed.room.take(LOG_TAKES * size)
            segment = unsealed.log.room(size)
            head = RecordHead(
                push.shuffle,
                push.map,
                push.attempt,
                count,
                len(body),
                push.body_crc,
                crc32c(rows),
                segment.number,
                push.ack,
            )
            position = unsealed.log.append(segment, [head.encode(), body, rows], size, count)
        except OSError as error:
            return self._failed(list(enumerate(decision.states)), error)
        sizes = list(map(_SIZE, push.entries))
        starts = accumulate(sizes, initial=position + RECORD_BYTES)
        # Loops in C: the arrays of every copy take its position and size.
        deque(map(array.append, map(unsealed.positions_of.__getitem__, decision.states), starts), maxlen=0)
        deque(map(array.append, map(unsealed.sizes_of.__getitem__, decision.states), sizes), maxlen=0)
        self.log_bytes += size
        self._keep_short(unsealed, size)
        return []

    def _append_some(
        self, decision: PushDecision, directory: int, some: list[tuple[int, int, int]], body: memoryview
    ) -> list[Failure]:
        """One record of the log for some batches (index, offset, length) of a frame."""
        push = decision.push
        parts = [body[offset : offset + length] for _, offset, length in some]
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        rows = b"".join([PUSH_ENTRY.pack(*push.entries[index]) for index, _, _ in some])
        length = sum([length for _, _, length in some])
        size = RECORD_BYTES + length + len(rows)
        unsealed = self._directories[directory].unsealed
        log = unsealed.log
        try:
            unsealed.room.take(LOG_TAKES * size)
            segment = log.room(size)
            head = RecordHead(
                push.shuffle, push.map, push.attempt, len(some), length, crc, crc32c(rows), segment.number, push.ack
            )
            position = log.append(segment, [head.encode(), *parts, rows], size, len(some))
        except OSError as error:
            return self._failed([(index, decision.states[index]) for index, _, _ in some], error)
        at = position + RECORD_BYTES
        for index, _, length in some:
            state = decision.states[index]
            assert state is not None, "only what was taken is written"
            self._copy(state).pending.add(at, length)
            at += length
        self.log_bytes += size
        self._keep_short(unsealed, size)
        return []

    def _write_run(
        self, decision: PushDecision, state: EpochState, first: int, past: int, body: memoryview
    ) -> list[Failure]:
        sizes = [entry[3] for entry in decision.push.entries[first:past]]
        try:
            self._directories[state.directory].unsealed.write_run(self._copy(state), body, sizes, decision.push.map)
        except OSError as error:
            return self._failed([(index, state) for index in range(first, past)], error)
        self.direct_bytes += len(body)
        return []

    def _failed(self, batches: Sequence[tuple[int, EpochState | None]], error: OSError) -> list[Failure]:
        """A write failed: with a full disk what is there stays good, after any other error the copies are given up."""
        if is_shortage(error):
            return [(index, Status.NO_ROOM) for index, _ in batches]
        for state in dict.fromkeys(state for _, state in batches if state is not None):
            self.give_up(state, error)
        return [(index, Status.FAILED_COPY) for index, _ in batches]

    @staticmethod
    def _keep_short(unsealed: UnsealedEpochs, grown: int) -> None:
        """The log grew by so much: it is emptied twice as fast, if it is long."""
        if unsealed.log.crowded:
            unsealed.empty(2 * grown)

    def give_up(self, state: EpochState, error: Exception) -> None:
        """This copy is given up for good; one that never began, or is sealed or dropped by now, stays what it is."""
        unsealed = self._directories[state.directory].unsealed
        copy = unsealed.copy_of.get(state)
        if copy is not None:
            unsealed.give_up(copy.key, error)

    def flush(self, states: Sequence[EpochState]) -> list[tuple[EpochState, Status]]:
        """Bring what is pending of these into their files, as far as they began; return those whose disk is full, or
        that are given up."""
        told = []
        for state in states:
            unsealed = self._directories[state.directory].unsealed
            copy = unsealed.copy_of.get(state)
            if copy is None or copy.key in unsealed.sealing:
                continue
            try:
                self.flushes += unsealed.flush(copy) > 0
            except OSError as error:
                if is_shortage(error):
                    told.append((state, Status.NO_ROOM))
                else:
                    self.give_up(state, error)
                    told.append((state, Status.FAILED_COPY))
        return told

    def sync(self, decision: PushDecision) -> list[Future[Missing]]:
        """Bring everything that was taken of a frame to the disk: what SYNCED waits for. One future for each directory,
        with the epochs for which that failed: their copies are given up."""
        wanted: dict[int, Wanted] = {}
        for state in decision.states:
            if state is not None:
                found = wanted.setdefault(state.directory, Wanted({}, {}, {}))
                copy = self._copy(state)
                found.copies[copy] = None
                found.segments.update(dict.fromkeys(self._unsynced_segments(state.directory, copy)))
                if copy.file_bytes:
                    found.files[copy] = None
        return [self._directories[number].unsealed.syncing.sync(found) for number, found in wanted.items()]

    def _unsynced_segments(self, directory: int, copy: PartitionCopy) -> Iterator[Segment]:
        """What is to be synced; of segments that failed only what this copy needs, which fails it. Others were given up
        when it failed, and what came since lies elsewhere."""
        for segment in self._directories[directory].unsealed.log.segments.values():
            if segment.synced < segment.end and (not segment.failed or copy.needs(segment.number)):
                yield segment

    # sealing

    def seal(
        self, shuffle: ShuffleKey, final: bool, epochs: Sequence[tuple[int, int]], *, new: bool = False
    ) -> list[tuple[EpochKey, Future[dict[EpochKey, SealedEpoch]] | SealedEpoch]]:
        """Seal epochs, or repeat what was answered; for each its answer or the future of its job. `new`: the shuffle
        was registered after this start, so nothing of it can be where it is not known yet.

        Raises CorruptError if a recorded answer cannot be read; RetryError BUSY while an answer may become known again.
        """
        keys = [EpochKey(shuffle, PartitionId(partition), Epoch(epoch)) for partition, epoch in epochs]
        why = self.not_known_yet()
        if why and not new:
            self._wait_for(keys, why)
        jobs: dict[EpochKey, Future[dict[EpochKey, SealedEpoch]]] = {}
        known: dict[EpochKey, SealedEpoch] = {}
        for directory in self._directories:
            unsealed, gone = directory.unsealed, directory.condition.is_gone
            todo = []
            for key in keys:
                running = unsealed.sealing.get(key)
                record = None if running is not None else self._recorded(directory, key)
                if running is not None:
                    jobs[key] = running.future
                elif record is not None:
                    answer = record.answer(key) if not gone else _lost(key)
                    if known.setdefault(key, answer).status != Status.OK:
                        known[key] = answer
                elif unsealed.has(key):
                    todo.append(key)
            if todo or final:
                self._start(directory, shuffle, final, todo, jobs)
        doubtful = next((one for one in self._directories if one.unsealed.unnamed), None)
        unknown = [key for key in keys if key not in jobs and key not in known]
        if doubtful is not None and unknown:  # recorded, since a later start may know of no damage any more
            self._start(doubtful, shuffle, False, unknown, jobs)
        return [(key, jobs.get(key) or known.get(key) or _unknown(key)) for key in keys]

    def _wait_for(self, keys: Sequence[EpochKey], why: str) -> None:
        """Raise RetryError if an epoch may have been sealed: nothing is here of it, or only what the log still has of
        it, which may be less than all."""
        for key in keys:
            here = [one.unsealed for one in self._directories if one.unsealed.has(key)]
            in_log = any(key in one.left and one.left[key].path is None for one in here)
            if (not here or in_log) and all(self._recorded(one, key) is None for one in self._directories):
                raise RetryError(f"{key}: {why}", status=Status.BUSY)

    def _start(
        self,
        directory: StorageDirectory,
        shuffle: ShuffleKey,
        final: bool,
        todo: list[EpochKey],
        jobs: dict[EpochKey, Future[dict[EpochKey, SealedEpoch]]],
    ) -> None:
        unsealed = directory.unsealed
        if not todo and unsealed.past(shuffle)[0]:
            return
        if not todo and not unsealed.past(shuffle)[1]:
            return  # nothing of it is or was here: nothing has to be remembered beyond this start
        self._packs += 1
        job = unsealed.seal(shuffle, final, unsealed.log.incarnation, self._packs, todo)
        for key in todo:
            jobs[key] = job.future

    def _gave_up(self, state: EpochState) -> None:
        self.on_given_up(state)

    def _ended(self, directory: StorageDirectory, job: EpochSeal, work: SealWork) -> None:
        """A seal has ended."""
        if not job.dropped and work.error is None:
            directory.count_sealed(job.shuffle, [record.file_bytes for record in work.data])
            if work.map is None:  # files of maps stay where they are
                self.on_sealed(directory, work.data)

    # copies of what other workers have sealed

    def kept(self, key: EpochKey) -> SealedEpoch | None:
        """What became of an epoch here, as a seal would say it; FAILED_COPY of one that was written here and never
        sealed. None: nothing of it is or was here. Raises RetryError BUSY while it is being sealed."""
        return self._kept(key, self._directories)

    def _kept(self, key: EpochKey, directories: Iterable[StorageDirectory]) -> SealedEpoch | None:
        found: SealedEpoch | None = None
        for directory in directories:
            if key in directory.unsealed.sealing:
                raise RetryError(f"{key} is being sealed", status=Status.BUSY)
            record = self._recorded(directory, key)
            if record is not None and record.status is Status.OK:
                return record.answer(key)
            if record is not None:
                found = record.answer(key)
            elif found is None and directory.unsealed.has(key):
                found = SealedEpoch(key.partition, key.epoch, Status.FAILED_COPY)
        return found

    def held(self, shuffle: ShuffleKey, epochs: Sequence[tuple[int, int]]) -> list[SealedEpoch]:
        """What is sealed here of these epochs, in directories that are there; UNKNOWN_FILE where nothing is. Raises
        RetryError BUSY while that may become known, or one is being sealed."""
        there = [each for each in self._directories if not each.condition.is_gone]
        keys = [EpochKey(shuffle, PartitionId(partition), Epoch(epoch)) for partition, epoch in epochs]
        found = [self._kept(key, there) or _unknown(key) for key in keys]
        why = self.not_known_yet()
        if why and any(each.status is Status.UNKNOWN_FILE for each in found):
            raise RetryError(f"{shuffle}: {why}", status=Status.BUSY)
        return found

    def arrive(self, directory: int, ack: Ack, wanted: Sequence[tuple[EpochKey, int]]) -> Arrival:
        """Begin to take epochs of one shuffle, each with its bytes, into a directory. Raises OSError."""
        chosen = self._directories[directory]
        self._packs += 1
        pack = PackKey(wanted[0][0].shuffle, chosen.unsealed.log.incarnation, self._packs)
        try:
            return Arrival(chosen, pack, ack, wanted, self.on_sealed)
        except OSError as error:
            chosen.unsealed.broke(error)
            raise

    def hangs(self, shuffle: ShuffleKey) -> str:
        """Why seals of a shuffle that run may not end soon: the disk that one of them needs hangs. "" if none does."""
        for directory in self._directories:
            if directory.condition.hanging and any(job.shuffle == shuffle for job in directory.unsealed.jobs):
                return f"{directory.root_text} {directory.condition.problem}"
        return ""

    def _recorded(self, directory: StorageDirectory, key: EpochKey) -> EpochRecord | None:
        try:
            return directory.recorded(key)
        except OSError as error:
            raise unreadable(key, directory.root_text, error) from error

    # reading

    def chunks(self, shuffle: ShuffleKey, partition: int, epoch: int, owner: Hashable = ()) -> SealedLocation:
        """Where a sealed epoch lies, for a reader of this owner. Raises RerouteError UNKNOWN_FILE, NOT_SEALED or
        FAILED_COPY, DataLostError, CorruptError; all name it. Raises RetryError BUSY past the bound of
        SealedLocations."""
        key = EpochKey(shuffle, PartitionId(partition), Epoch(epoch))
        refusals: list[HoldfastError] = []
        for directory in self._directories:
            try:
                record = self._recorded(directory, key)
            except HoldfastError as error:  # another one may have it
                refusals.insert(0, error)
                continue
            if record is None:
                continue
            if record.status == Status.OK:
                file = record.place(key)
                self.on_read(file)
                token = directory.away_files(shuffle).get(file)
                if token is not None:
                    return self.places.share(key, record, self._away_name(file, token), owner=owner, away=True)
                if file in directory.leaving:
                    continue  # it is in another directory by now
                path = f"{directory.root_text}/{sealed_path(file)}"
                return self.places.share(key, record, path, directory.fetches, owner=owner)
            # One that was asked while the others were away may have called lost what they have.
            if record.status == Status.DATA_LOST:
                refusals.append(DataLostError(f"{key} cannot be vouched for here"))
            if record.status == Status.FAILED_COPY:
                refusals.append(failed_copy(key, "a write or sync failed"))
        raise refusals[0] if refusals else self._missing(key)

    def _away_name(self, file: DataKey, token: bytes) -> str:
        if self._away is None:
            raise RerouteError(
                f"{file} was moved to the DFS, and this worker has none: set [dfs] url as it was",
                status=Status.DISK_FAILED,
            )
        return self._away.name_of(file, token)

    def _missing(self, key: EpochKey) -> HoldfastError:
        why = self.not_known_yet()
        if why:
            return RetryError(f"{key}: {why}", status=Status.BUSY)
        return not_sealed(key) if any(one.unsealed.has(key) for one in self._directories) else unknown_file(key)

    def relocate(self, move: FileMove) -> None:
        """A file that moved is complete where it is now: whoever opens it next opens it there."""
        move.source.leaving.add(move.key)
        root = move.target.root_text if move.target is not None else ""
        path = f"{root}/{sealed_path(move.key)}" if root else self._away_name(move.key, move.token)
        for key in move.epochs:
            self.places.moved(key, path, move.target.fetches if move.target is not None else None, away=not root)

    # what goes on beside

    def tick(self, no_room: Collection[int] = ()) -> None:
        """Once a second. `no_room`: directories that have none. There, where a push found too little, and where the log
        is full, nobody pushes who would have it emptied; but what a disk that is not well refuses would be given up."""
        for number, directory in enumerate(self._directories):
            if directory.condition.hanging:
                continue
            unsealed, short = directory.unsealed, number in no_room or directory.room.wanted_bytes > 0
            if not (directory.problem or directory.condition.silent):
                if unsealed.log.full or short:
                    unsealed.empty(EMPTIED_BYTES, EMPTYING_NS // len(self._directories))
                unsealed.marks.mark()  # those that found no room
            unsealed.tick(no_room=short)

    def gauges(self) -> dict[str, int]:
        """What goes up and down, by name."""
        all_of = [directory.unsealed for directory in self._directories]
        return {
            "log_bytes": sum(one.log.size_bytes for one in all_of),
            "log_segments": sum(len(one.log.segments) for one in all_of),
            "epochs_writing": sum(_count(one.copies) + _count(one.sealing) for one in all_of),
            "epochs_left": sum(len(one.left) for one in all_of),
            "epochs_failed": sum(_count(one.failed) for one in all_of),
        }


def _count(keys: Iterable[OpenKey]) -> int:
    """How many of these are epochs of partitions."""
    return sum([isinstance(key, EpochKey) for key in keys])


def _lost(key: EpochKey) -> SealedEpoch:
    return SealedEpoch(key.partition, key.epoch, Status.DATA_LOST)


def _unknown(key: EpochKey) -> SealedEpoch:
    return SealedEpoch(key.partition, key.epoch, Status.UNKNOWN_FILE)


__all__ = ["Ack", "ReduceStore", "SealedLocation"]
