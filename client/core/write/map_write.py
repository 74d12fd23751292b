"""Writes one map attempt: decides what to send where, and when to start again elsewhere.

Rules: pure; events in, effects out; time is a number that comes with the events. Frames are known by index and size
only, the edge (writer.py) keeps their bytes until the attempt is sealed, so everything can be sent again. All
copies are in the same epoch; when one of them fails, all start again in the next epoch, because a winner names one
epoch. Events of an earlier epoch are ignored. Called by writer.py.

    opening --opened--> writing --finished, all acknowledged--> sealing --sealed--> done, per copy
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from holdfast.client.core.write.route import FULL, locations, pause_ns
from holdfast.common.errors import HoldfastError, NoRoomError, RetryError, error_for
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import FileTotals
from holdfast.common.ids import AttemptId, Epoch, MapId, WorkerId
from holdfast.common.statuses import MEANINGS, Status

#: Body bytes sent and not yet acknowledged, per copy: keeps the worker busy over one round trip and bounds its memory.
WINDOW_BYTES = 8 << 20
#: Frames sent and not yet acknowledged, per copy.
WINDOW_FRAMES = 16
#: An attempt without progress for this long fails: twice the time a worker has to come back.
PATIENCE_NS = 60_000_000_000
#: Starts of one attempt. A worker that takes frames and fails every seal must not keep a task for ever.
EPOCHS_MAX = 64


@dataclass(frozen=True, slots=True)
class Open:
    """Open the file of this copy on the worker."""

    copy: int
    worker: WorkerId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame."""

    copy: int
    epoch: Epoch
    frame: int


@dataclass(frozen=True, slots=True)
class AskSeal:
    """Ask for the seal, by key, on any connection."""

    copy: int
    worker: WorkerId
    epoch: Epoch
    totals: FileTotals


@dataclass(frozen=True, slots=True)
class Abandon:
    """Tell the worker, if it can be reached, to drop the file of this epoch."""

    copy: int
    worker: WorkerId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class WakeMap:
    """Call `woken` after so long: to open all copies, or to ask for the seal of one again."""

    after_ns: int
    epoch: Epoch
    copy: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Every copy is sealed: the attempt's output is safe on these workers."""

    epoch: Epoch
    workers: tuple[WorkerId, ...]


@dataclass(frozen=True, slots=True)
class MapFailed:
    """The attempt is over."""

    error: HoldfastError


Effect = Open | SendFrame | AskSeal | Abandon | WakeMap | Written | MapFailed


class Phase(IntEnum):
    """How far a copy is."""

    OPENING = 0
    WRITING = 1
    SEALING = 2
    SEALED = 3


@dataclass(slots=True)
class _Copy:
    worker: WorkerId
    phase: Phase = Phase.OPENING
    #: index of the next frame to send
    next: int = 0
    #: sent and not acknowledged: frame -> body bytes
    unacked: dict[int, int] = field(default_factory=dict)
    unacked_bytes: int = 0
    #: failed asks for the seal since the last frame was acknowledged
    seal_failures: int = 0


class MapWrite:
    """The state of one attempt's output. Methods named after events return effects, in the order to carry them out."""

    def __init__(
        self,
        assignment: MapAssignment,
        map_id: MapId,
        attempt: AttemptId,
        *,
        window_bytes: int = WINDOW_BYTES,
        window_frames: int = WINDOW_FRAMES,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        self._assignment = assignment
        self._map = map_id
        self._attempt = attempt
        self._window_bytes = window_bytes
        self._window_frames = window_frames
        self._patience_ns = patience_ns
        self._sizes: list[int] = []
        self._totals: FileTotals | None = None
        self._copies: list[_Copy] = []
        self._failures = 0
        self._progress_ns = 0
        self.epoch = Epoch(0)
        self.over = False

    @property
    def settled(self) -> int:
        """Frames that every copy of the present epoch has acknowledged, counted from the first."""
        return min((min(copy.unacked, default=copy.next) for copy in self._copies), default=0)

    # Events.

    def started(self, now_ns: int) -> list[Effect]:
        """Begin in epoch 0."""
        self._progress_ns = now_ns
        return self._open_all()

    def frame_added(self, size: int, now_ns: int) -> list[Effect]:
        """The caller has one more frame, of `size` body bytes."""
        assert self._totals is None, "frames are added before the end"
        self._go_on(now_ns)
        self._sizes.append(size)
        return self._advance_all()

    def finished(self, totals: FileTotals, now_ns: int) -> list[Effect]:
        """No more frames: seal when all are acknowledged."""
        self._go_on(now_ns)
        self._totals = totals
        return self._advance_all()

    def opened(self, copy: int, epoch: Epoch, now_ns: int) -> list[Effect]:
        """The worker has opened the file."""
        if self._stale(epoch):
            return []
        self._copies[copy].phase = Phase.WRITING
        self._progress_ns = now_ns
        return self._advance(copy)

    def acked(self, copy: int, epoch: Epoch, frame: int, now_ns: int) -> list[Effect]:
        """The worker keeps the frame at the file's level."""
        if self._stale(epoch):
            return []
        state = self._copies[copy]
        state.unacked_bytes -= state.unacked.pop(frame)
        assert state.unacked_bytes >= 0, "each frame is acknowledged once"
        self._failures = 0
        self._progress_ns = now_ns
        return self._advance(copy)

    def sealed(self, copy: int, epoch: Epoch, totals: FileTotals) -> list[Effect]:
        """The worker has made the file final, with these totals."""
        if self._stale(epoch):
            return []
        if totals != self._totals:
            text = (
                f"the seal of map {self._map} attempt {self._attempt} epoch {epoch} names {totals}, not {self._totals}"
            )
            return self._stop(error_for(Status.CORRUPT, text))
        self._copies[copy].phase = Phase.SEALED
        if any(state.phase != Phase.SEALED for state in self._copies):
            return []
        self.over = True
        return [Written(epoch, tuple(state.worker for state in self._copies))]

    def failed(self, copy: int, epoch: Epoch, error: HoldfastError, now_ns: int) -> list[Effect]:
        """A request of this copy was refused, or its connection was refused or lost (status UNAVAILABLE)."""
        if self._stale(epoch) or self._copies[copy].phase == Phase.SEALED:
            return []
        if not MEANINGS[error.status].moves_map:
            return self._stop(error)
        if now_ns - self._progress_ns > self._patience_ns or self.epoch >= EPOCHS_MAX:
            return self._stop(self._spent(error, now_ns))
        self._failures += 1
        state = self._copies[copy]
        if state.phase == Phase.SEALING and self._ask_again(state, error.status):
            # The answer may have been lost and the file be safe: asking by key costs less than sending all again.
            state.seal_failures += 1
            return [WakeMap(pause_ns(state.seal_failures, 1), epoch, copy)]
        return self._move_on()

    def woken(self, epoch: Epoch, copy: int | None) -> list[Effect]:
        """The time of a WakeMap has come."""
        if self._stale(epoch):
            return []
        return self._open_all() if copy is None else [self._seal(copy)]

    def aborted(self) -> list[Effect]:
        """The caller gives the attempt up: drop what was written."""
        if self.over:
            return []
        self.over = True
        return self._abandon_all()

    # Decisions.

    def _go_on(self, now_ns: int) -> None:
        """There is something to do: where there was nothing, patience begins here, however long the caller took."""
        if self.settled == len(self._sizes):
            self._progress_ns = now_ns

    def _stale(self, epoch: Epoch) -> bool:
        return self.over or epoch != self.epoch

    def _ask_again(self, state: _Copy, status: Status) -> bool:
        """A seal is asked again where the worker may come back with it: a few times, or long if it is the only one."""
        alone = len(self._assignment.workers) <= len(self._copies)
        return status in (Status.UNAVAILABLE, Status.BUSY) and (alone or state.seal_failures < 4)

    def _move_on(self) -> list[Effect]:
        effects = self._abandon_all()
        self._copies = []
        self.epoch = Epoch(self.epoch + 1)
        pause = pause_ns(self._failures, len(self._assignment.workers))
        return [*effects, WakeMap(pause, self.epoch)] if pause else [*effects, *self._open_all()]

    def _open_all(self) -> list[Effect]:
        workers = locations(self._assignment, self._map, self.epoch)
        self._copies = [_Copy(worker) for worker in workers]
        return [Open(index, worker, self.epoch) for index, worker in enumerate(workers)]

    def _abandon_all(self) -> list[Effect]:
        return [Abandon(index, state.worker, self.epoch) for index, state in enumerate(self._copies)]

    def _advance_all(self) -> list[Effect]:
        return [effect for index in range(len(self._copies)) for effect in self._advance(index)]

    def _advance(self, copy: int) -> list[Effect]:
        """Send what the window lets through; seal once nothing is left."""
        state = self._copies[copy]
        if state.phase != Phase.WRITING:
            return []
        effects: list[Effect] = []
        while state.next < len(self._sizes) and self._fits(state, self._sizes[state.next]):
            size = self._sizes[state.next]
            state.unacked[state.next] = size
            state.unacked_bytes += size
            effects.append(SendFrame(copy, self.epoch, state.next))
            state.next += 1
        if self._totals is not None and not state.unacked and state.next == len(self._sizes):
            state.phase = Phase.SEALING
            assert not state.unacked_bytes, "all of it is acknowledged"
            effects.append(self._seal(copy))
        return effects

    def _fits(self, state: _Copy, size: int) -> bool:
        if not state.unacked:
            return True
        return len(state.unacked) < self._window_frames and state.unacked_bytes + size <= self._window_bytes

    def _seal(self, copy: int) -> AskSeal:
        assert self._totals is not None
        return AskSeal(copy, self._copies[copy].worker, self.epoch, self._totals)

    def _stop(self, error: HoldfastError) -> list[Effect]:
        self.over = True
        return [*self._abandon_all(), MapFailed(error)]

    def _spent(self, error: HoldfastError, now_ns: int) -> HoldfastError:
        seconds = (now_ns - self._progress_ns) / 1e9
        how = f"nothing accepted for {seconds:.0f} s" if seconds >= 1 else "each took a part of it at most"
        text = (
            f"map {self._map} attempt {self._attempt} found no worker that takes its output: {self.epoch + 1} places "
            f"tried, {how}, the last one said: {error}. See `holdfast workers`."
        )
        return NoRoomError(text) if error.status in FULL else RetryError(text)

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        for state in self._copies:
            assert state.unacked_bytes == sum(state.unacked.values()) >= 0
            assert state.next <= len(self._sizes)
            assert all(frame < state.next for frame in state.unacked)
            assert len(state.unacked) <= self._window_frames
            assert state.phase < Phase.SEALING or (self._totals is not None and not state.unacked)
