"""Reads the winner files of a committed shuffle: decides which files to ask of which worker, and when to give up.

Rules: pure; events in, effects out; time is a number that comes with the events. Files that are complete are never
asked for again. Per copy of a file three *answers* that do not help are the end of it (a refusal, a checksum
mismatch, missing batches); refused and lost connections are no answers: they are tried again while the masters call
the worker alive or it has not been gone for the return grace. A copy whose worker is gone is given up at once if
another copy is left. Events of a stream that is over are ignored. Called by reader.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from holdfast.client.core.route import pause_ns
from holdfast.common.errors import CorruptError, DataLostError, GiveUpError, HoldfastError, Status
from holdfast.common.ids import MapId, WorkerId
from holdfast.common.layouts import MapWinner
from holdfast.common.limits import STREAM_FILES_MAX

#: Answers that did not help, per copy of a file, before the copy is given up.
TRIES_MAX = 3
#: Streams open at the same time: enough to hide one slow worker, few enough that each has a useful share of the credit.
STREAMS_MAX = 4
#: How long a worker may be gone before data of which it has the only copy is called lost. The masters' own
#: setting is worker.return_grace; this is its default.
RETURN_GRACE_NS = 30_000_000_000
#: How long a worker that the masters call alive may be out of our reach: a broken network must not hang a task.
REACH_NS = 120_000_000_000

#: Answers that say the data is not there or not right; the rest of the statuses end the read at once.
_ANSWERS = frozenset(
    {
        Status.UNKNOWN_FILE,
        Status.NOT_SEALED,
        Status.CORRUPT,
        Status.DATA_LOST,
        Status.DISK_FAILED,
        Status.FAILED_COPY,
        Status.INTERNAL,
        Status.TOO_LARGE,
    }
)
#: No answers: the connection was refused or lost, or the worker restarted or has no room for now.
_NO_ANSWERS = frozenset({Status.UNAVAILABLE, Status.UNKNOWN_STREAM, Status.BUSY, Status.STALE_INCARNATION})


class WorkerState(IntEnum):
    """What the masters say about a worker."""

    ALIVE = 0
    LOST = 1


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream for these maps' files, in this order."""

    stream: int
    worker: WorkerId
    maps: tuple[MapId, ...]


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close the stream; what still comes of it is ignored."""

    stream: int


@dataclass(frozen=True, slots=True)
class AskMasters:
    """Ask the masters, after so long, who is alive and where; answer with `workers_known` or `masters_silent`."""

    after_ns: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Every file is complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The read is over."""

    error: HoldfastError


Effect = OpenStream | CloseStream | AskMasters | Complete | Failed


@dataclass(slots=True)
class _File:
    winner: MapWinner
    #: copies not given up, in the order of preference
    copies: list[WorkerId]
    tries: Counter[WorkerId] = field(default_factory=Counter)
    #: the last thing that went wrong, for the error
    cause: str = ""
    status: Status = Status.OK


@dataclass(slots=True)
class _Stream:
    worker: WorkerId
    #: maps whose files this stream still owes
    owed: set[MapId]


class Fetch:
    """The state of one read. Methods named after events return effects, in the order to carry them out."""

    def __init__(
        self,
        files: Mapping[MapId, MapWinner],
        *,
        where: str,
        prefer: Sequence[WorkerId] = (),
        grace_ns: int = RETURN_GRACE_NS,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        rank = {worker: index for index, worker in enumerate(prefer)}
        self._files = {
            map_id: _File(winner, sorted(winner.workers, key=lambda worker: rank.get(worker, len(rank))))
            for map_id, winner in files.items()
        }
        #: names the shuffle and the partitions in errors
        self._where = where
        self._grace_ns = grace_ns
        self._streams_max = streams_max
        self._streams: dict[int, _Stream] = {}
        self._next_stream = 0
        #: when a worker first could not be reached, and how often since
        self._unreachable: dict[WorkerId, int] = {}
        self._refusals: Counter[WorkerId] = Counter()
        #: files per stream, where a worker refused a longer one without naming the file it meant
        self._files_max: dict[WorkerId, int] = {}
        #: unreachable workers wait for the masters' word before they are tried again
        self._waiting: set[WorkerId] = set()
        self.over = False

    # Events.

    def started(self) -> list[Effect]:
        """Open the first streams."""
        return self._continue()

    def file_complete(self, stream: int, map_id: MapId) -> list[Effect]:
        """A file was read to its end and checked."""
        state = self._streams.get(stream)
        if state is None or self.over:
            return []
        state.owed.discard(map_id)
        self._files.pop(map_id, None)
        self._reached(state.worker)
        return self._continue() if not self._files else []

    def stream_ended(self, stream: int) -> list[Effect]:
        """A stream came to its END."""
        state = self._streams.pop(stream, None)
        if state is None or self.over:
            return []
        for map_id in sorted(state.owed):
            failed = self._count_try(map_id, state.worker, Status.CORRUPT, "the stream ended before the file did")
            if failed is not None:
                return failed
        return self._continue()

    def file_bad(self, stream: int, map_id: MapId, cause: str) -> list[Effect]:
        """What came of a file was wrong or not all of it; the rest of its stream is asked for again too."""
        state = self._streams.pop(stream, None)
        if state is None or self.over:
            return []
        failed = self._count_try(map_id, state.worker, Status.CORRUPT, cause)
        return [CloseStream(stream), *(failed if failed is not None else self._continue())]

    def stream_failed(self, stream: int, error: HoldfastError, now_ns: int) -> list[Effect]:
        """A stream could not be opened, was refused, or broke off."""
        state = self._streams.pop(stream, None)
        if state is None or self.over:
            return []
        if error.status in _NO_ANSWERS:
            return self._no_answer(state.worker, str(error), now_ns)
        if error.status not in _ANSWERS:
            return self._stop(error)
        if len(state.owed) > 1:  # the worker does not say which file it means: halve until it is alone
            self._files_max[state.worker] = len(state.owed) // 2
            return self._continue()
        failed = None
        for map_id in state.owed:
            failed = self._count_try(map_id, state.worker, error.status, str(error))
        return failed if failed is not None else self._continue()

    def workers_known(self, states: Mapping[WorkerId, WorkerState], now_ns: int) -> list[Effect]:
        """The masters say who is alive; a worker they do not name is lost."""
        if self.over:
            return []
        for worker in sorted(self._waiting):
            gone = states.get(worker, WorkerState.LOST) == WorkerState.LOST
            waited_ns = now_ns - self._unreachable.get(worker, now_ns)
            if gone:
                failed = self._drop_worker(worker, waited_ns > self._grace_ns)
                if failed is not None:
                    return failed
            elif waited_ns > max(REACH_NS, self._grace_ns):
                return self._stop(self._out_of_reach(worker, waited_ns))
        self._waiting.clear()
        return self._continue()

    def masters_silent(self, error: HoldfastError, now_ns: int) -> list[Effect]:
        """The masters cannot be reached: go on trying the workers for as long as one may be gone."""
        if self.over:
            return []
        if all(now_ns - self._unreachable[worker] > self._grace_ns for worker in self._waiting):
            return self._stop(error)
        self._waiting.clear()
        return self._continue()

    # Decisions.

    def _continue(self) -> list[Effect]:
        """Open what can be opened."""
        if not self._files:
            self.over = True
            return [*(CloseStream(stream) for stream in self._streams), Complete()]
        effects: list[Effect] = []
        owed = {map_id for state in self._streams.values() for map_id in state.owed}
        wanted: dict[WorkerId, list[MapId]] = {}
        for map_id, file in self._files.items():
            if map_id not in owed:
                wanted.setdefault(self._choose(file), []).append(map_id)
        for worker, maps in wanted.items():
            if len(self._streams) >= self._streams_max:
                break
            if worker not in self._waiting and all(state.worker != worker for state in self._streams.values()):
                effects.append(self._open(worker, sorted(maps)[: self._files_max.get(worker, STREAM_FILES_MAX)]))
        return effects

    def _choose(self, file: _File) -> WorkerId:
        """The first copy that can be reached, as far as we know; else the first."""
        return next((worker for worker in file.copies if worker not in self._unreachable), file.copies[0])

    def _open(self, worker: WorkerId, maps: Iterable[MapId]) -> OpenStream:
        stream = self._next_stream
        self._next_stream += 1
        effect = OpenStream(stream, worker, tuple(maps))
        self._streams[stream] = _Stream(worker, set(effect.maps))
        return effect

    def _reached(self, worker: WorkerId) -> None:
        self._unreachable.pop(worker, None)
        self._refusals.pop(worker, None)

    def _no_answer(self, worker: WorkerId, cause: str, now_ns: int) -> list[Effect]:
        self._unreachable.setdefault(worker, now_ns)
        self._refusals[worker] += 1
        self._waiting.add(worker)
        for file in self._files.values():
            if worker in file.copies:
                file.cause = cause
        return [AskMasters(pause_ns(self._refusals[worker], 2)), *self._continue()]

    def _count_try(self, map_id: MapId, worker: WorkerId, status: Status, cause: str) -> list[Effect] | None:
        """Count an answer that did not help; returns how the read ends if no copy is left."""
        file = self._files[map_id]
        file.cause, file.status = cause, status
        file.tries[worker] += 1
        if file.tries[worker] >= TRIES_MAX:
            file.copies.remove(worker)
        elif len(file.copies) > 1:  # the other copy next
            file.copies.append(file.copies.pop(file.copies.index(worker)))
        if file.copies:
            return None
        tried = ", ".join(f"worker {copy} {count} times" for copy, count in file.tries.items())
        text = f"{self._name(map_id, file)} cannot be read whole ({tried}): {cause}"
        return self._stop(CorruptError(text) if file.status == Status.CORRUPT else DataLostError(text))

    def _drop_worker(self, worker: WorkerId, spent: bool) -> list[Effect] | None:
        """Give up the copies of a worker that is gone, where another copy is left or the grace is over."""
        for map_id, file in self._files.items():
            if worker not in file.copies or (len(file.copies) == 1 and not spent):
                continue
            file.copies.remove(worker)
            if not file.copies:
                text = (
                    f"{self._name(map_id, file)} is lost: worker {worker} is gone for more than "
                    f"{self._grace_ns // 10**9} s and has the last copy ({file.cause}). Start the worker again on "
                    "its directories, or run the map stage again."
                )
                return self._stop(DataLostError(text))
        return None

    def _out_of_reach(self, worker: WorkerId, waited_ns: int) -> HoldfastError:
        files = sum(worker in file.copies for file in self._files.values())
        cause = next((file.cause for file in self._files.values() if worker in file.copies), "")
        text = (
            f"{self._where}: worker {worker} holds {files} files that are wanted. The masters call it alive, but "
            f"it could not be read from here for {waited_ns // 10**9} s: {cause}. "
            "Is its data address reachable from this host?"
        )
        return GiveUpError(text, status=Status.UNAVAILABLE)

    def _name(self, map_id: MapId, file: _File) -> str:
        return f"{self._where}: map {map_id} attempt {file.winner.attempt} epoch {file.winner.epoch}"

    def _stop(self, error: HoldfastError) -> list[Effect]:
        self.over = True
        return [*(CloseStream(stream) for stream in self._streams), Failed(error)]

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        owed = [map_id for state in self._streams.values() for map_id in state.owed]
        assert len(owed) == len(set(owed)), "a file is asked for once at a time"
        assert len(self._streams) <= self._streams_max
        assert self._waiting <= set(self._unreachable) or self.over
        assert all(file.copies for file in self._files.values()) or self.over
