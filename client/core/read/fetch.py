"""Reads files of a committed shuffle: decides which files to request from which worker, and when to fail.

Rules: pure; events in, effects out; time is a number that comes with the events. A file is named by a key: the map
whose winner wrote it, or (partition, epoch) of one that was pushed to. Files that are complete are never asked for
again. Per copy of a file three *answers* that do not help are the end of it (a refusal, a checksum mismatch, missing
batches); refused and lost connections are no answers: they are tried again while the masters call the worker alive or
it has not been lost for the return grace, which starts again whenever that worker sent more of a file than ever
before. A copy whose worker is lost is left at once for another one, and waited for when no other is of any use; one
whose worker is merely silent is left for another one that may answer. A file may be wanted again from other workers
when it is complete, or when all copies of another one are abandoned: read/chunk_fetch.py decides that. The last try of
the last copy waits as long for one that may be sealed or made yet. A CopyOrder chooses which copy is read first, and
gets the outcome. A stream that is late may get a rival, which requests files of it from another worker; whichever
brings data first is read, the other one is closed, so data of two copies are never mixed. Events of a stream that is
over are ignored. Called by stream_reader.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.client.core.write.route import pause_ns
from holdfast.common.errors import CorruptError, DataLostError, GiveUpError, HoldfastError
from holdfast.common.ids import WorkerId
from holdfast.common.limits import STREAM_FILES_MAX
from holdfast.common.statuses import MEANINGS, FetchDisposition, Status

#: Answers without progress, per copy of a file, before the copy is abandoned.
TRIES_MAX = 3
#: Streams open at the same time: enough to hide one slow worker, few enough that each has a useful share of the credit.
STREAMS_MAX = 4
#: Rivals open at the same time, beside these: one shows whether another worker is quicker.
RIVALS_MAX = 2
#: How long a worker may be lost before data of which it has the only copy is called lost. The masters' own
#: setting is worker.return_grace; this is its default.
RETURN_GRACE_NS = 30_000_000_000
#: How long a worker that the masters call alive may be out of our reach: a broken network must not hang a task.
REACH_NS = 120_000_000_000


class _Key(Hashable, Protocol):
    """Names a file; files are asked for in this order."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Key)


class CopyOrder(Protocol):
    """Which copy is read first. The readers of a process share it (read_book.py, by shared_read_state.py)."""

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Return all copies, the one to ask first first."""

    def failed(self, worker: WorkerId) -> None:
        """A read from it failed: it was out of reach, or what it answered or sent was of no use."""

    def slow(self, worker: WorkerId) -> None:
        """A rival that was asked later brought data first."""


class AsGiven:
    """The order of the manifest, whatever is met: what tests and the simulation read in."""

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Return the copies."""
        return copies

    def failed(self, worker: WorkerId) -> None:
        """Does not matter."""

    def slow(self, worker: WorkerId) -> None:
        """Does not matter."""


class Source(NamedTuple):
    """Where a file can be read."""

    #: copies, in the order of preference
    workers: tuple[WorkerId, ...]
    #: for errors
    name: str


class WorkerState(IntEnum):
    """What the masters say about a worker."""

    ALIVE = 0
    LOST = 1


@dataclass(frozen=True, slots=True)
class OpenStream(Generic[K]):
    """Open a stream for these files, in this order."""

    stream: int
    worker: WorkerId
    files: tuple[K, ...]


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close the stream; what still comes of it is ignored."""

    stream: int


@dataclass(frozen=True, slots=True)
class AskMasters:
    """Ask the masters, after so long, for live workers; answer with `workers_known` or `masters_silent`."""

    after_ns: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Every file is complete, or is not needed any more."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The read is over."""

    error: HoldfastError


Effect = OpenStream[K] | CloseStream | AskMasters | Complete | ReadFailed


@dataclass(slots=True)
class _File:
    name: str
    #: copies not abandoned, in the order of preference
    copies: list[WorkerId]
    #: those of workers that were lost while another copy was left
    lost_copies: list[WorkerId] = field(default_factory=list)
    tries: Counter[WorkerId] = field(default_factory=Counter)
    #: how often the masters were asked for another copy, and when they first answered; it waits for their answer
    asked: int = 0
    asked_since_ns: int = 0
    awaits_masters: bool = False
    #: the latest failure, for the error
    cause: str = ""
    status: Status = Status.OK
    #: the copy that was abandoned last though its worker answers, and why, for the error
    abandoned: str = ""


@dataclass(slots=True)
class _Stream(Generic[K]):
    worker: WorkerId
    #: files that this stream still owes
    owed: set[K]
    #: the stream whose files it is asked for as well, None once it is the only one that is
    rival_of: int | None = None
    #: something came of it, and it has no rival any more
    came: bool = False


class Fetch(Generic[K]):
    """The state of one read. Methods named after events return effects, in the order to carry them out."""

    def __init__(
        self,
        files: Mapping[K, Source],
        *,
        where: str,
        gave_up: Callable[[K, HoldfastError], Mapping[K, Source] | HoldfastError] | None = None,
        may_have_more: Callable[[K], bool] = lambda _: False,
        order: CopyOrder | None = None,
        grace_ns: int = RETURN_GRACE_NS,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        """`where` names shuffle and partitions in errors. gave_up: asked when no copy of a file is left; returns
        files to read on account of that, or the error that ends the read. By default the first such file ends it.
        may_have_more: whether copies of a file may be known by now that were not."""
        self._order: CopyOrder = AsGiven() if order is None else order
        self._files: dict[K, _File] = {}
        self._want(files)
        self._where = where
        self._gave_up = gave_up
        self._may_have_more = may_have_more
        self._grace_ns = grace_ns
        self._streams_max = streams_max
        self._streams: dict[int, _Stream[K]] = {}
        self._next_stream = 0
        #: when a worker first could not be reached, and how often since
        self._unreachable: dict[WorkerId, int] = {}
        self._refusals: Counter[WorkerId] = Counter()
        #: those of them that answer, and cannot read what they have; and when others did not answer first
        self._failing: set[WorkerId] = set()
        self._silent: dict[WorkerId, int] = {}
        #: files per stream, where a worker refused a longer one without naming the file it meant
        self._files_max: dict[WorkerId, int] = {}
        #: unreachable workers wait for the masters' word before they are tried again
        self._waiting: set[WorkerId] = set()
        #: questions to the masters that are not answered yet; the answer to any of them is for all who wait
        self._asked = 0
        #: of the latest event that said it
        self._now_ns = 0
        self.over = False

    # Events.

    def started(self) -> list[Effect[K]]:
        """Open the first streams."""
        return self._continue()

    def file_complete(self, stream: int, key: K, more: Mapping[K, Source] | None = None) -> list[Effect[K]]:
        """A file was read to its end and checked. `more`: files to read on account of that, maybe this one again."""
        state = self._streams.get(stream)
        if state is None or self.over:
            return []
        effects = self._settle(stream, state)
        state.owed.discard(key)
        self._files.pop(key, None)
        waited = self._reached(state.worker)
        self._want(more or {})
        return effects + (self._continue() if more or waited or not self._files else [])

    def progressed(self, stream: int) -> list[Effect[K]]:
        """More of a file than ever before came and was verified: what happened to its worker before counts no more.

        What comes again is no progress, or a worker that dies at the same place each time would be asked for ever.
        """
        state = self._streams.get(stream)
        if state is None or self.over:
            return []
        for key in state.owed & self._files.keys() if self._unreachable else ():
            for worker in self._files[key].lost_copies:  # nobody tries it while another copy is read
                if worker not in self._waiting:
                    self._reached(worker)
        return self._continue() if self._reached(state.worker) else []

    def data_came(self, stream: int) -> list[Effect[K]]:
        """The first data of a stream came, or its END; said where reads are speculative, of every stream."""
        state = self._streams.get(stream)
        return [] if state is None or self.over else self._settle(stream, state)

    def late(self, stream: int) -> list[Effect[K]]:
        """Nothing came of a stream for long: ask the worker that has most of what it owes for that, too.

        Only where all of it has another copy in reach: otherwise the read ends no sooner.
        """
        state = self._streams.get(stream)
        if state is None or self.over or state.came or state.rival_of is not None or not self.may_switch(stream):
            return []
        rivals = [each.rival_of for each in self._streams.values() if each.rival_of is not None]
        if stream in rivals or len(rivals) >= RIVALS_MAX:
            return []
        found = self._elsewhere(state)
        if not found:
            return []
        worker = max(found, key=lambda each: len(found[each]))
        return [self._open(worker, found[worker], rival_of=stream)]

    def stream_ended(self, stream: int) -> list[Effect[K]]:
        """A stream came to its END."""
        state = self._streams.get(stream)
        if state is None or self.over:
            return []
        effects = self._settle(stream, state)
        self._end(stream)
        for key in sorted(state.owed):
            effects += self._count_try(key, state.worker, Status.CORRUPT, "the stream ended before the file did")
        return self._then(effects)

    def file_bad(self, stream: int, key: K, cause: str) -> list[Effect[K]]:
        """What came of a file was wrong or not all of it; the rest of its stream is asked for again too."""
        state = self._end(stream)
        if state is None or self.over:
            return []
        return self._then([CloseStream(stream), *self._count_try(key, state.worker, Status.CORRUPT, cause)])

    def stream_failed(self, stream: int, error: HoldfastError, now_ns: int) -> list[Effect[K]]:
        """A stream could not be opened, was refused, or broke off."""
        self._now_ns = now_ns
        state = self._end(stream)
        if state is None or self.over:
            return []
        answer = MEANINGS[error.status].fetch
        if answer is FetchDisposition.NO_ANSWER:
            self._failing.discard(state.worker)
            self._silent.setdefault(state.worker, now_ns)
            return self._no_answer(state.worker, str(error), now_ns)
        if answer is FetchDisposition.STOP:
            return self._stop(error)
        if len(state.owed) > 1:  # the worker does not say which file it means: halve until it is alone
            self._files_max[state.worker] = len(state.owed) // 2
            return self._continue()
        if answer is FetchDisposition.UNREADABLE:
            self._failing.add(state.worker)
            self._silent.pop(state.worker, None)
            return self._no_answer(state.worker, str(error), now_ns)
        effects: list[Effect[K]] = []
        for key in state.owed:
            effects += self._count_try(key, state.worker, error.status, str(error))
        return self._then(effects)

    def workers_known(self, states: Mapping[WorkerId, WorkerState], now_ns: int) -> list[Effect[K]]:
        """The masters list live workers; a worker that is not listed is lost."""
        self._now_ns = now_ns
        if self.over:
            return []
        back = {worker for worker, state in states.items() if state != WorkerState.LOST}
        for file in self._files.values():
            file.copies += [worker for worker in file.lost_copies if worker in back]
            file.lost_copies = [worker for worker in file.lost_copies if worker not in back]
        for worker in sorted(self._waiting):
            waited_ns = now_ns - self._unreachable.get(worker, now_ns)
            if worker in self._failing and self._is_out_of_reach(worker, now_ns, self._grace_ns):
                return self._stop(self._cannot_read(worker, waited_ns))
            if worker not in back:
                failed = self._drop_worker(worker, now_ns - self._silent.get(worker, now_ns) > self._grace_ns)
                if failed is not None:
                    return failed
            elif self._is_out_of_reach(worker, now_ns, max(REACH_NS, self._grace_ns)):
                return self._stop(self._out_of_reach(worker, waited_ns))
        return self._try_again()

    def copies_found(self, key: K, workers: Iterable[WorkerId]) -> None:
        """A file has copies on these workers, too, which were not known; said before `workers_known`."""
        file = self._files.get(key)
        if file is not None:
            file.copies.extend(workers)

    def masters_silent(self, error: HoldfastError, now_ns: int) -> list[Effect[K]]:
        """The masters cannot be reached: keep trying the workers for the return grace."""
        self._now_ns = now_ns
        if self.over:
            return []
        if self._waiting and all(self._is_out_of_reach(worker, now_ns, self._grace_ns) for worker in self._waiting):
            return self._stop(error)
        return self._try_again()

    def stop(self, error: HoldfastError) -> list[Effect[K]]:
        """What was read cannot be helped by reading more: the read is over."""
        return [] if self.over else self._stop(error)

    def may_switch(self, stream: int) -> bool:
        """Whether all that is missing of a stream has another copy, on a worker that is known to answer."""
        state = self._streams.get(stream)
        return state is not None and all(
            any(worker != state.worker and worker not in self._unreachable for worker in self._files[key].copies)
            for key in state.owed & self._files.keys()
        )

    def name_of(self, key: K) -> str:
        """What a file is called in errors and logs; of one that was read, by a rival of the stream that brings it, only
        the shuffle."""
        return self._name(self._files[key]) if key in self._files else self._where

    def waits_for(self) -> str:
        """What the read waits for while nothing comes, for the log."""
        workers = sorted(self._waiting | {state.worker for state in self._streams.values() if state.rival_of is None})
        cause = next((file.cause for file in self._files.values() if file.cause), "")
        return f"{len(self._files)} files of workers {workers}{cause and '; the last error: '}{cause}"

    # Decisions.

    def _want(self, files: Mapping[K, Source]) -> None:
        for key, source in files.items():
            self._files[key] = _File(source.name, list(self._order.ordered(source.workers)))

    def _then(self, effects: list[Effect[K]]) -> list[Effect[K]]:
        """These, and whatever can be opened, unless the read is over with them."""
        return effects if self.over else effects + self._continue()

    def _continue(self) -> list[Effect[K]]:
        """Open what can be opened."""
        if not self._files:
            self.over = True
            return [*(CloseStream(stream) for stream in self._streams), Complete()]
        effects: list[Effect[K]] = []
        owed = {key for state in self._streams.values() for key in state.owed}
        wanted: dict[WorkerId, list[K]] = {}
        for key, file in self._files.items():
            if key not in owed and not file.awaits_masters:
                wanted.setdefault(self._choose(file), []).append(key)
        busy = [state.worker for state in self._streams.values() if state.rival_of is None]
        for worker, files in wanted.items():
            if len(busy) >= self._streams_max:
                break
            if worker not in self._waiting and worker not in busy:
                effects.append(self._open(worker, files))
                busy.append(worker)
        return effects

    def _choose(self, file: _File) -> WorkerId:
        """The first copy that is known to be reachable; else the one whose worker was tried least often."""
        return min(file.copies, key=lambda worker: (worker in self._unreachable, self._refusals[worker]))

    def _open(self, worker: WorkerId, files: Iterable[K], rival_of: int | None = None) -> OpenStream[K]:
        stream = self._next_stream
        self._next_stream += 1
        effect = OpenStream(stream, worker, tuple(sorted(files)[: self._files_max.get(worker, STREAM_FILES_MAX)]))
        assert effect.files, "a stream is opened for something"
        self._streams[stream] = _Stream(worker, set(effect.files), rival_of)
        return effect

    def _end(self, stream: int) -> _Stream[K] | None:
        """Forget a stream; its rival continues alone."""
        state = self._streams.pop(stream, None)
        for each in self._streams.values():
            if each.rival_of == stream:
                each.rival_of = None
        return state

    def _elsewhere(self, state: _Stream[K]) -> dict[WorkerId, list[K]]:
        """What a stream owes, by the workers that are asked for it next."""
        found: dict[WorkerId, list[K]] = {}
        for key in sorted(state.owed & self._files.keys()):
            copies = self._files[key].copies
            others = [each for each in copies if each != state.worker and each not in self._unreachable]
            if others:
                found.setdefault(others[0], []).append(key)
        return found

    def _settle(self, stream: int, state: _Stream[K]) -> list[Effect[K]]:
        """Something came of a stream: close the other one that is asked for the same files."""
        if state.came:
            return []
        state.came = True
        first = state.rival_of
        if first is None:
            rivals = [number for number, each in self._streams.items() if each.rival_of == stream]
            for number in rivals:
                del self._streams[number]
            return [CloseStream(number) for number in rivals]
        lost = self._end(first)
        assert lost is not None, "the second stream continues alone after the first has ended"
        self._order.slow(lost.worker)
        for file in self._files.values():
            if lost.worker in file.copies:
                _put_last(file.copies, lost.worker)
        return [CloseStream(first), *self._continue()]

    def _reached(self, worker: WorkerId) -> bool:
        """What happened to a worker before counts no more; returns whether it waited for the masters' word."""
        self._unreachable.pop(worker, None)
        self._failing.discard(worker)
        self._silent.pop(worker, None)
        self._refusals.pop(worker, None)
        waited = worker in self._waiting
        self._waiting.discard(worker)
        return waited

    def _no_answer(self, worker: WorkerId, cause: str, now_ns: int) -> list[Effect[K]]:
        self._order.failed(worker)
        self._unreachable.setdefault(worker, now_ns)
        self._refusals[worker] += 1
        self._waiting.add(worker)
        for file in self._files.values():
            if worker in file.copies:
                file.cause = cause
        return [*self._ask(pause_ns(self._refusals[worker], 2)), *self._continue()]

    def _ask(self, pause: int) -> list[Effect[K]]:
        """Ask the masters: at once, or together with others who asked."""
        if pause and self._asked:
            return []  # if each asked with each answer, there would be more and more questions
        self._asked += 1
        return [AskMasters(pause)]

    def _try_again(self) -> list[Effect[K]]:
        """The masters answered, or did not: all who waited for that are tried again."""
        self._asked = max(0, self._asked - 1)
        self._waiting.clear()
        for file in self._files.values():
            if file.awaits_masters and file.asked == 1:
                file.asked_since_ns = self._now_ns
            file.awaits_masters = False
        return self._continue()

    def _count_try(self, key: K, worker: WorkerId, status: Status, cause: str) -> list[Effect[K]]:
        """Count an answer that did not help; the read may end with that, if no copy is left. Before the last try of the
        last copy the masters are asked, if they may know of another one by now; again and again for the grace."""
        file = self._files.get(key)
        if file is None or worker not in file.copies or self.over:
            return []  # abandoned meanwhile
        self._order.failed(worker)
        file.cause, file.status = cause, status
        file.tries[worker] += 1
        last = file.copies == [worker] and not file.lost_copies and file.tries[worker] >= TRIES_MAX - 1
        in_time = not file.asked or self._now_ns - file.asked_since_ns <= self._grace_ns
        if last and in_time and self._may_have_more(key):
            file.tries[worker] = TRIES_MAX - 1
            file.asked += 1
            file.awaits_masters = True
            return self._ask(pause_ns(file.asked, 2))
        if file.tries[worker] >= TRIES_MAX:
            file.copies.remove(worker)
            file.abandoned = f"; the copy on worker {worker} cannot be read: {cause}"
        elif len(file.copies) > 1:  # the other copy next
            _put_last(file.copies, worker)
        if file.copies or self._retry_lost(file):
            return []
        tried = ", ".join(f"worker {copy} {count} times" for copy, count in file.tries.items())
        text = f"{self._name(file)} cannot be read whole ({tried}): {cause}"
        return self._no_copy(key, CorruptError(text) if file.status == Status.CORRUPT else DataLostError(text)) or []

    def _drop_worker(self, worker: WorkerId, spent: bool) -> list[Effect[K]] | None:
        """Abandon the copies of a lost worker if the grace is over; leave them where another copy is left."""
        for key, file in list(self._files.items()):
            if worker not in file.copies or (len(file.copies) == 1 and not spent):
                continue
            file.copies.remove(worker)
            if not spent:
                file.lost_copies.append(worker)
            if not file.copies and not self._retry_lost(file):
                text = (
                    f"{self._name(file)} is lost: worker {worker} has been lost for more than "
                    f"{self._grace_ns // 10**9} s and held the last copy ({file.cause}){file.abandoned}. Start "
                    f"worker {worker} again on its directories, or run the map stage again."
                )
                failed = self._no_copy(key, DataLostError(text))
                if failed is not None:
                    return failed
        return None

    @staticmethod
    def _retry_lost(file: _File) -> bool:
        """No other copy is of any use: those whose workers were lost are tried again, and waited for."""
        file.copies, file.lost_copies = file.lost_copies, []
        return bool(file.copies)

    def _no_copy(self, key: K, error: HoldfastError) -> list[Effect[K]] | None:
        """The last copy of a file is abandoned; returns the result of the read, if this ends it."""
        verdict = error if self._gave_up is None else self._gave_up(key, error)
        if isinstance(verdict, HoldfastError):
            return self._stop(verdict)
        del self._files[key]
        self._want(verdict)
        return None

    def _is_out_of_reach(self, worker: WorkerId, now_ns: int, limit_ns: int) -> bool:
        """Whether some file of this worker has no copy that was reached within `limit_ns`."""
        late = {each for each, since in self._unreachable.items() if now_ns - since > limit_ns}
        return any(worker in file.copies and late.issuperset(file.copies) for file in self._files.values())

    def _cannot_read(self, worker: WorkerId, waited_ns: int) -> HoldfastError:
        name, cause = next((self._name(file), file.cause) for file in self._files.values() if worker in file.copies)
        waited = f"for {waited_ns // 10**9} s (DISK_FAILED)"
        text = f"{name} is not lost, but worker {worker} could not read it {waited}: {cause}"
        return GiveUpError(text, status=Status.DISK_FAILED)

    def _out_of_reach(self, worker: WorkerId, waited_ns: int) -> HoldfastError:
        files = sum(worker in file.copies for file in self._files.values())
        cause = next((file.cause for file in self._files.values() if worker in file.copies), "")
        text = (
            f"{self._where}: worker {worker} holds {files} files that are wanted. The masters call it alive, but "
            f"it could not be read from here for {waited_ns // 10**9} s: {cause}. "
            "Is its data address reachable from this host?"
        )
        return GiveUpError(text, status=Status.UNAVAILABLE)

    def _name(self, file: _File) -> str:
        return f"{self._where}: {file.name}"

    def _stop(self, error: HoldfastError) -> list[Effect[K]]:
        self.over = True
        return [*(CloseStream(stream) for stream in self._streams), ReadFailed(error)]

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        rivals = [state for state in self._streams.values() if state.rival_of is not None]
        owed = [key for state in self._streams.values() if state.rival_of is None for key in state.owed]
        assert len(owed) == len(set(owed)), "a file is asked for once at a time"
        asked = [state.rival_of for state in rivals]
        assert len(asked) == len(set(asked)) <= RIVALS_MAX, "a stream has one rival"
        for state in rivals:
            assert state.rival_of is not None
            first = self._streams[state.rival_of]
            assert state.owed <= first.owed, "it is asked for nothing else"
            assert first.worker != state.worker
            assert not first.came
        assert len(self._streams) - len(rivals) <= self._streams_max
        assert all(file.copies for file in self._files.values()) or self.over


def _put_last(copies: list[WorkerId], worker: WorkerId) -> None:
    copies.append(copies.pop(copies.index(worker)))
