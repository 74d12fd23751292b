"""Keeps sealed files in the order in which they should leave their directory: largest, lru or lrfu.

Rules: a file has a score, larger is hotter; among equal scores the one changed first leaves first. A move keeps the
score. Scores are kept so that they compare at any time without being brought up to date:

    largest   the size, negative
    lru       a counter that ticks at every commit and access
    lrfu      each touch counts 1 and fades: F(t) = attenuation ** (-step * t) after t ticks. What orders two files at
              one tick orders them at every other, so ln(sum) + step * ln(attenuation) * tick of the last touch is kept

Source: the annotators of Alluxio; LRFU only decays, as in its paper (Lee et al., IEEE ToC 50(12), 2001), and nothing
is added to files that were not touched (ADR 0017, A2). Pure. Called by the edges of the worker's storage.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Generic, Literal

from holdfast.worker.core.tiers.view import FileId, FileView, Heat

#: The score of a file after a commit or an access, from the one before, its size and the tick of the clock.
Measure = Callable[[float, int, int], float]
#: The score of what nobody has touched: below every other.
UNTOUCHED = -math.inf
#: Entries of a heap that are out of date, beyond as many as there are files, before it is made anew.
STALE_MAX = 64
#: With more of them than this a look makes the heap anew, which is faster than taking them out one by one.
STALE_POPS_MAX = 1024


@dataclass(slots=True)
class _Note:
    """What is known of one file."""

    directory: int
    size_bytes: int
    #: by each measure
    scores: list[float]
    change: int


#: A file's place in an order of its directory: score, number of the change, and the file.
_HeapEntry = tuple[float, int, FileId]


@dataclass(slots=True)
class _Shelf(Generic[FileId]):
    """Places of one directory's files as a heap for each measure; some are out of date."""

    heaps: list[list[_HeapEntry[FileId]]]
    files: int = 0


class Annotator(Generic[FileId]):
    """The orders of all files, one by each measure."""

    def __init__(self, *measures: Measure) -> None:
        self._measures = measures
        self._notes: dict[FileId, _Note] = {}
        self._shelves: dict[int, _Shelf[FileId]] = {}
        self._changes = 0
        #: commits and accesses so far
        self.clock = 0

    def committed(self, file: FileId, directory: int, size_bytes: int) -> None:
        """A file was sealed in a directory, or found there at the start."""
        assert file not in self._notes, file
        note = self._notes[file] = _Note(directory, size_bytes, [UNTOUCHED] * len(self._measures), 0)
        self._touch(note)
        self._put(file, note)

    def accessed(self, file: FileId) -> None:
        """A reader opened it. Unknown files are let go: it may have been removed since."""
        note = self._notes.get(file)
        if note is not None:
            self._take_out(note)
            self._touch(note)
            self._put(file, note)

    def _touch(self, note: _Note) -> None:
        self.clock += 1
        scores = zip(self._measures, note.scores, strict=True)
        note.scores = [measure(score, note.size_bytes, self.clock) for measure, score in scores]

    def moved(self, file: FileId, directory: int) -> None:
        """It lies in another directory now; that is no touch."""
        note = self._notes.get(file)
        if note is not None:
            self._take_out(note)
            note.directory = directory
            self._put(file, note)

    def removed(self, file: FileId) -> None:
        note = self._notes.pop(file, None)
        if note is not None:
            self._take_out(note)

    def score(self, file: FileId, order: int = 0) -> float:
        """How hot it is by a measure, comparable with every other file by that. Raises KeyError."""
        return self._notes[file].scores[order]

    def coldest(self, directories: Collection[int], order: int = 0) -> Iterator[FileId]:
        """Files of these directories, the first to leave first; one that changes while this is read is left out."""
        shelves = [self._shelves[one] for one in set(directories) if one in self._shelves]
        for shelf in shelves:
            self._clear_top(shelf, order)
        for _, _, file in heapq.merge(*(self._in_order(list(shelf.heaps[order])) for shelf in shelves)):
            yield file

    def hottest(self, directories: Collection[int], order: int = 0) -> Iterator[FileId]:
        """The same files the other way round."""
        heap = [
            (-score, -change, file)
            for one in set(directories)
            if one in self._shelves
            for score, change, file in self._shelves[one].heaps[order]
            if self._is_current(change, file)
        ]
        heapq.heapify(heap)
        while heap:
            yield heapq.heappop(heap)[2]

    def __len__(self) -> int:
        return len(self._notes)

    def _is_current(self, change: int, file: FileId) -> bool:
        note = self._notes.get(file)
        return note is not None and note.change == change

    def _in_order(self, heap: list[_HeapEntry[FileId]]) -> Iterator[_HeapEntry[FileId]]:
        while heap:
            entry = heapq.heappop(heap)
            if self._is_current(entry[1], entry[2]):
                yield entry

    def _put(self, file: FileId, note: _Note) -> None:
        """Note the file's place; the one it had is out of date from now on."""
        self._changes += 1
        note.change = self._changes
        shelf = self._shelves.setdefault(note.directory, _Shelf([[] for _ in self._measures]))
        shelf.files += 1
        for heap, score in zip(shelf.heaps, note.scores, strict=True):
            heapq.heappush(heap, (score, note.change, file))
        self._trim(shelf)

    def _take_out(self, note: _Note) -> None:
        shelf = self._shelves[note.directory]
        shelf.files -= 1
        self._trim(shelf)

    def _trim(self, shelf: _Shelf[FileId]) -> None:
        for order, heap in enumerate(shelf.heaps):
            if len(heap) > 2 * shelf.files + STALE_MAX:
                self._renew(shelf, order)

    def _clear_top(self, shelf: _Shelf[FileId], order: int) -> None:
        """Let go of what is out of date at the cold end, where it gathers and would be passed over at every look."""
        if len(shelf.heaps[order]) - shelf.files > STALE_POPS_MAX:
            self._renew(shelf, order)
        heap = shelf.heaps[order]
        while heap and not self._is_current(*heap[0][1:]):
            heapq.heappop(heap)

    def _renew(self, shelf: _Shelf[FileId], order: int) -> None:
        heap = [entry for entry in shelf.heaps[order] if self._is_current(entry[1], entry[2])]
        heapq.heapify(heap)
        shelf.heaps[order] = heap

    def check(self) -> None:
        counts = dict.fromkeys(self._shelves, 0)
        for note in self._notes.values():
            counts[note.directory] += 1
        for number, shelf in self._shelves.items():
            for heap in shelf.heaps:
                current = [file for _, change, file in heap if self._is_current(change, file)]
                assert len(current) == len(set(current)) == shelf.files == counts[number], (number, shelf)
                assert len(heap) <= 2 * shelf.files + STALE_MAX + 1, (number, shelf)


def largest(_: float, size_bytes: int, __: int) -> float:
    """The largest file leaves first: one move makes the most room. The default of memory."""
    return float(-size_bytes)


def lru(_: float, __: int, clock: int) -> float:
    """The file that was touched longest ago leaves first. The default of disks."""
    return float(clock)


def lrfu(step: float, attenuation: float) -> Measure:
    """The file with the least sum of fading touches leaves first. A step of 0 counts touches (LFU), one of 1 is close
    to LRU."""
    fade = step * math.log(attenuation)

    def touched(score: float, _: int, clock: int) -> float:
        # ln(weight + 1) at this tick, and back to the measure that compares at any tick
        return math.log1p(math.exp(score - fade * clock)) + fade * clock

    return touched


def measure_of(name: Literal["largest", "lru", "lrfu"], lrfu_step: float, lrfu_attenuation: float) -> Measure:
    """By its name in the configuration."""
    return {"largest": largest, "lru": lru, "lrfu": lrfu(lrfu_step, lrfu_attenuation)}[name]


#: Which order is which.
_DISK, _MEMORY = 0, 1


class Orders(Annotator[FileId]):
    """The two orders of a worker's sealed files: one for leaving memory, one for leaving disks.

    Both hear of every file, so that a move between tiers changes nobody's score, and upkeep can compare tiers by the
    order of disks. `facts` gives what is true of a file now, or None if it is not to be planned with (it is being
    removed).
    """

    def __init__(
        self,
        memory: Measure,
        disk: Measure,
        memory_directories: Collection[int],
        facts: Callable[[FileId], FileView[FileId] | None],
    ) -> None:
        super().__init__(disk, memory)
        self._memory_directories = frozenset(memory_directories)
        self._facts = facts

    def first_to_leave(self, directories: Collection[int]) -> Iterator[FileView[FileId]]:
        """Files in the order in which they should leave; memory has its own order where it is asked for alone."""
        in_memory = self._memory_directories.issuperset(directories)
        return self._views(self.coldest(directories, _MEMORY if in_memory else _DISK))

    @property
    def heat(self) -> Heat[FileId]:
        """The order of disks for files of all tiers: what upkeep compares tiers by."""
        return Heat(
            lambda directories: self._views(self.coldest(directories)),
            lambda directories: self._views(self.hottest(directories)),
            self.score,
        )

    def _views(self, files: Iterator[FileId]) -> Iterator[FileView[FileId]]:
        return (view for view in map(self._facts, files) if view is not None)
