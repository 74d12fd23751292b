"""Epochs that are read by ranges of maps: an index of every chunk by map, with a sorted copy where runs are short.

A skewed partition is read in slices, each a range of maps, maybe hundreds of them. Without help every slice costs a
pass over all batch headers of the epoch. The first slice pays that. When a second one is asked for, a view is made in
a thread, and the slices that come after it read only what is theirs.

Rules: a view is derived and never needed. Chunks keep their number, place and length in it; only the order of the
batches within a chunk differs, so a reader that comes back finds the same chunks with or without it. Where the runs of
one map are long the view is an index of the file; where they are too short to read well it has a copy with every chunk
sorted by map. That copy has no name: its room is free again when it is let go, and when the process ends, however it
ends; until then it counts in its directory. Called by the stream service, on the loop thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import HEADER, HEADER_BYTES, MAGIC
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.storage.engine.owner import Owner
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env, Files, Handle, ThreadEvent
from holdfast.worker.storage.index.records import ChunkRow
from holdfast.worker.storage.read.loans import Loan, leaves_enough

#: Runs that are shorter than this on average are sorted: below it a disk spends more time seeking than reading.
RUN_BYTES_MIN = 64 * KIB
#: Memory of the index of one view, and of all of them.
VIEW_BYTES_MAX = 16 * MIB
VIEWS_BYTES_MAX = 64 * MIB
#: Sorted copies, each an open file.
COPIES_MAX = 64
#: Epochs that are remembered as asked for.
ASKED_MAX = 4_096
#: A view that nobody used for so long is let go.
IDLE_SECONDS = 300.0

#: A file and the offset of its first chunk: one epoch.
ViewKey = tuple[str, int]


class Runs(NamedTuple):
    """The runs of one chunk: run i is of maps[i] and lies at [starts[i], starts[i + 1]) within the chunk."""

    maps: array[int]
    #: one more than maps: the last is the length of the chunk
    starts: array[int]


def scan(data: bytes, first: int, size: int, what: str) -> Runs:
    """Return the runs of the batches whose headers lie in `data`, which begins with the one at `first` of a chunk of
    `size` bytes, neighbours of one map joined; the last of `starts` is where the batch after them begins.

    Raises CorruptError, which says `what`; also if not one whole header is there.
    """
    maps, starts = array("I"), array("I")
    unpack = HEADER.unpack_from
    at, last, room = first, -1, size - HEADER_BYTES
    end = first + len(data) - HEADER_BYTES
    while at <= end:
        magic, _, _, map_id, _, _, length, _ = unpack(data, at - first)
        if magic != MAGIC or at + length > room:
            raise CorruptError(f"{what}: no whole batch at {at}")
        if map_id != last:
            maps.append(map_id)
            starts.append(at)
            last = map_id
        at += HEADER_BYTES + length
    if at == first:
        raise CorruptError(f"{what}: a batch header is cut at {at}")
    starts.append(at)
    return Runs(maps, starts)


def find_runs(data: bytes, what: str) -> Runs:
    """Return the runs of a whole chunk's batches. Raises CorruptError, which says `what`."""
    runs = scan(data, 0, len(data), what)
    if runs.starts[-1] < len(data):
        raise CorruptError(f"{what}: a batch header is cut at {runs.starts[-1]}")
    return runs


def select(runs: Runs, begin: int, end: int) -> list[tuple[int, int]]:
    """Return (start, length) within the chunk of the runs of maps [begin, end), neighbours joined."""
    ranges: list[tuple[int, int]] = []
    start = -1
    for map_id, at in zip(runs.maps, runs.starts, strict=False):
        if begin <= map_id < end:
            if start < 0:
                start = at
        elif start >= 0:
            ranges.append((start, at - start))
            start = -1
    if start >= 0:
        ranges.append((start, runs.starts[-1] - start))
    return ranges


def join(ranges: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    """Put `more` behind `ranges`; where they touch they become one."""
    if ranges and more and sum(ranges[-1]) == more[0][0]:
        start, length = ranges.pop()
        more[0] = start, length + more[0][1]
    ranges += more


def sort_runs(data: bytes, runs: Runs) -> tuple[list[memoryview], Runs]:
    """Return the chunk's parts in the order of their maps, batches of one map as they came, and their runs."""
    view = memoryview(data)
    starts = runs.starts
    maps, begins, parts = array("I"), array("I"), []
    at = 0
    for map_id, run in sorted((map_id, run) for run, map_id in enumerate(runs.maps)):
        if not maps or maps[-1] != map_id:
            maps.append(map_id)
            begins.append(at)
        parts.append(view[starts[run] : starts[run + 1]])
        at += starts[run + 1] - starts[run]
    begins.append(at)
    return parts, Runs(maps, begins)


class Lender(Protocol):
    """A directory."""

    def lend(self, size: int) -> Loan | None:
        """Room for a copy; None if that left too little."""

    @property
    def is_low(self) -> bool:
        """Copies take room that is short by now; asks no disk."""


@dataclass(slots=True, eq=False)
class MapRangeIndex:
    """One epoch by maps."""

    chunks: Sequence[Runs]
    #: the copy with sorted chunks; None: the file itself is read
    copy: Handle | None
    path: Path
    used_at: float = 0.0

    @property
    def index_bytes(self) -> int:
        """Memory of the index."""
        return sum([4 * (len(runs.maps) + len(runs.starts)) for runs in self.chunks])

    def ranges(self, chunk: int, begin: int, end: int) -> list[tuple[int, int]]:
        """Return (start, length) within the chunk of what belongs to maps [begin, end)."""
        runs = self.chunks[chunk]
        if self.copy is None:
            return select(runs, begin, end)
        first, past = bisect_left(runs.maps, begin), bisect_left(runs.maps, end)
        start = runs.starts[first]
        return [(start, runs.starts[past] - start)] if first < past else []


def has_room(files: Files, folder: Path, size: int) -> bool:
    """Whether a copy of `size` bytes may be in this folder. Raises OSError."""
    capacity, free = files.file_system(folder)
    return leaves_enough(capacity, free, size)


def copy_bytes(rows: Sequence[ChunkRow]) -> int:
    """Bytes of a sorted copy: where chunks lie in the file they lie in it too, and the space between is a hole."""
    return sum([row.length for row in rows])


def build(
    files: Files, path: Path, rows: Sequence[ChunkRow], loan: Loan | None, wanted: Callable[[], bool]
) -> MapRangeIndex | None:
    """Make the view of an epoch; None if its index were too large, there is no room for a copy it needs (the `loan` is
    what its directory has for one), or it is not `wanted` any more, which is asked for every chunk.

    Raises OSError, and CorruptError where chunks are not made of whole batches.
    """
    source = files.open(path)
    copy: Handle | None = None
    chunks: list[Runs] = []
    size = 0
    for number, row in enumerate(rows):
        if not wanted():
            return None
        data = files.read(source, row.length, row.offset)
        if len(data) != row.length:
            raise CorruptError(f"{path} chunk {number} is cut")
        runs = find_runs(data, f"{path} chunk {number}")
        if not number and len(runs.maps) * RUN_BYTES_MIN > row.length:
            if loan is None or not has_room(files, path.parent, copy_bytes(rows)):
                return None
            copy = files.create_unnamed(path.parent)
            copy.kept = loan
        if copy is not None:
            parts, runs = sort_runs(data, runs)
            files.write_parts(copy, parts, row.length, row.offset)
        size += 4 * (len(runs.maps) + len(runs.starts))
        if size > VIEW_BYTES_MAX:
            return None
        chunks.append(runs)
    return MapRangeIndex(chunks, copy, path)


def _build(
    files: Files, path: Path, rows: Sequence[ChunkRow], loan: Loan | None, unwanted: ThreadEvent
) -> MapRangeIndex | None:
    """The same in a thread: what fails is told of, and there is no view."""
    try:
        return build(files, path, rows, loan, lambda: not unwanted.is_set())
    except (OSError, CorruptError) as error:
        log_event(LogEvent.VIEW_FAILED, path=path, reason=error)
        return None


class MapRangeIndexes:
    """The views of a worker, those used last at the end. Made in a thread of their own, one after another."""

    def __init__(self, env: Env, lender: Callable[[str], Lender], owner: Owner) -> None:
        """`lender` gives the directory that a file is in."""
        self.built = 0
        self._env = env
        self._lender = lender
        self._owner = owner
        #: by key; None: asked for once, is being made, or cannot be made
        self._views: OrderedDict[ViewKey, MapRangeIndex | None] = OrderedDict()
        #: those that are being made, with what ends that
        self._building: dict[ViewKey, ThreadEvent] = {}
        self._hopeless: set[ViewKey] = set()
        self._pool: Executor | None = None

    def find(self, path: str, rows: Sequence[ChunkRow]) -> MapRangeIndex | None:
        """Return the view of an epoch that is read by a range of maps, if there is one; asked twice, one is made."""
        key = path, rows[0].offset
        view = self._views.get(key)
        if view is not None:
            view.used_at = self._env.clock.now()
            self._views.move_to_end(key)
        elif key not in self._views:
            self._views[key] = None
            self._bound()
        elif key not in self._building and key not in self._hopeless:
            unwanted = self._building[key] = self._env.threads.event()
            if self._pool is None:
                self._pool = self._env.threads.pool(1, "holdfast-views")
            loan = self._lender(path).lend(copy_bytes(rows))
            done = self._pool.submit(_build, self._env.files, Path(path), rows, loan, unwanted)
            done.add_done_callback(lambda done: self._owner(partial(self._built, key, unwanted, done)))
        return view

    def _built(self, key: ViewKey, unwanted: ThreadEvent, done: Future[MapRangeIndex | None]) -> None:
        if self._building.get(key) is not unwanted or done.cancelled():
            return  # forgotten meanwhile
        del self._building[key]
        view = done.result()
        if view is None:
            self._hopeless.add(key)
            return
        view.used_at = self._env.clock.now()
        self._views[key] = view
        self._views.move_to_end(key)
        self.built += 1
        self._bound()

    def _bound(self) -> None:
        """Let go of what was used longest ago, past the bounds."""
        while len(self._views) > ASKED_MAX:
            self._drop(next(iter(self._views)))
        kept = [(key, view) for key, view in self._views.items() if view is not None]
        size, copies = sum([view.index_bytes for _, view in kept]), sum([view.copy is not None for _, view in kept])
        for key, view in kept:
            if size <= VIEWS_BYTES_MAX and copies <= COPIES_MAX:
                return
            size -= view.index_bytes
            copies -= view.copy is not None
            self._drop(key)

    def _drop(self, key: ViewKey) -> None:
        self._views.pop(key, None)
        unwanted = self._building.pop(key, None)
        if unwanted is not None:
            unwanted.set()
        self._hopeless.discard(key)

    def forget(self, folder: str) -> None:
        """A folder is being deleted: let go of the views of its files, so that their room is free."""
        for key in [key for key in self._views if key[0].startswith(f"{folder}/")]:
            self._drop(key)

    def tick(self) -> None:
        """Once a second: let go of views that nobody uses, and of copies on a disk that is short of room."""
        now = self._env.clock.now()
        kept = [(key, view) for key, view in self._views.items() if view is not None]
        copied = {view.path.parent: view.path for _, view in kept if view.copy}
        low = {folder for folder, path in copied.items() if self._lender(str(path)).is_low}
        for key, view in kept:
            if now - view.used_at > IDLE_SECONDS or (view.copy is not None and view.path.parent in low):
                self._drop(key)

    def close(self) -> None:
        """Let go of everything."""
        for key in list(self._views):
            self._drop(key)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        return sum([view is not None for view in self._views.values()])
