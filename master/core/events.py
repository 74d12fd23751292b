"""What happened in the cluster, for people: a bounded ring of events, told the time by its caller.

Rules: routine never drives out what matters: each level has a ring of its own. What repeats itself (a quota that
refuses, an election that wavers) is one event that counts. Numbers grow by one for each thing that happens, so that a
reader asks for what came after a number; it sees a gap where the ring was too small. Filled by observe/events.py.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum


class Level(StrEnum):
    """How much an event matters: routine, worth a look, or data and service at risk."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EventKind(StrEnum):
    """What can happen. A fixed set: it is a label of metrics."""

    STARTED = "started"
    LEADS = "leads"
    FOLLOWS = "follows"
    STOOD_STILL = "stood_still"
    RESTORED = "restored"
    MASTER_AWAY = "master_away"
    MASTER_BACK = "master_back"
    WORKER_REGISTERED = "worker_registered"
    WORKER_RESTARTED = "worker_restarted"
    WORKER_LOST = "worker_lost"
    WORKER_BACK = "worker_back"
    WORKER_DRAINS = "worker_drains"
    DRAIN_CANCELLED = "drain_cancelled"
    EPOCHS_MOVED = "epochs_moved"
    DIRECTORY_FAILING = "directory_failing"
    DIRECTORY_WELL = "directory_well"
    DIRECTORY_FULL = "directory_full"
    DFS_FAILING = "dfs_failing"
    DFS_WELL = "dfs_well"
    APPLICATION_REGISTERED = "application_registered"
    APPLICATION_SILENT = "application_silent"
    APPLICATION_HEARD = "application_heard"
    APPLICATION_ENDED = "application_ended"
    SHUFFLE_COMMITTED = "shuffle_committed"
    SHUFFLE_LOST_DATA = "shuffle_lost_data"
    SHUFFLE_UNDER_REPLICATED = "shuffle_under_replicated"
    SHUFFLE_COPIES_ADDED = "shuffle_copies_added"
    SHUFFLE_DROPPED = "shuffle_dropped"
    QUOTA_REFUSED = "quota_refused"
    NO_ROOM = "no_room"
    RELOADED = "reloaded"
    RELOAD_FAILED = "reload_failed"


_WARNINGS = frozenset(
    {
        EventKind.FOLLOWS,
        EventKind.STOOD_STILL,
        EventKind.RESTORED,
        EventKind.MASTER_AWAY,
        EventKind.WORKER_RESTARTED,
        EventKind.EPOCHS_MOVED,
        EventKind.DIRECTORY_FULL,
        EventKind.APPLICATION_SILENT,
        EventKind.SHUFFLE_UNDER_REPLICATED,
        EventKind.QUOTA_REFUSED,
        EventKind.RELOAD_FAILED,
    }
)
_ERRORS = frozenset(
    {
        EventKind.WORKER_LOST,
        EventKind.DIRECTORY_FAILING,
        EventKind.DFS_FAILING,
        EventKind.SHUFFLE_LOST_DATA,
        EventKind.NO_ROOM,
    }
)
#: Of these, what comes again within REPEAT_MS about the same subject is the same event once more.
_REPEATS = frozenset(
    {
        EventKind.QUOTA_REFUSED,
        EventKind.NO_ROOM,
        EventKind.WORKER_RESTARTED,
        EventKind.STOOD_STILL,
        EventKind.RELOAD_FAILED,
    }
)
REPEAT_MS = 60_000
#: Events of each level that are kept.
KEPT = 1_000


def level_of(kind: EventKind) -> Level:
    """How much it matters."""
    return Level.ERROR if kind in _ERRORS else Level.WARNING if kind in _WARNINGS else Level.INFO


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that happened: to whom or what, and a sentence about it without an end stop."""

    kind: EventKind
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """One that is kept. `index` is its place in the log, 0 for what only this master saw; `times` how often it came."""

    number: int
    time_ms: int
    index: int
    kind: EventKind
    subject: str
    text: str
    times: int = 1

    @property
    def level(self) -> Level:
        """How much it matters."""
        return level_of(self.kind)


class LatestEvents:
    """The latest events."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._rings: dict[Level, OrderedDict[int, Event]] = {level: OrderedDict() for level in Level}
        #: number of the latest event of what repeats itself, by kind and subject; as many as are kept
        self._repeating: OrderedDict[tuple[EventKind, str], int] = OrderedDict()
        #: how many things happened
        self.last = 0
        #: by kind, how often it happened
        self.counts: dict[EventKind, int] = dict.fromkeys(EventKind, 0)

    def add(self, time_ms: int, happened: Happened, index: int = 0) -> Event:
        """Keep what happened; the oldest of its level goes."""
        self.last += 1
        self.counts[happened.kind] += 1
        ring = self._rings[level_of(happened.kind)]
        event = Event(self.last, time_ms, index, happened.kind, happened.subject, happened.text)
        if happened.kind in _REPEATS:
            event = self._repeated(ring, event)
        assert not ring or event.number > next(reversed(ring)), "numbers grow"
        ring[event.number] = event
        if len(ring) > self._kept:
            ring.popitem(last=False)
        return event

    def _repeated(self, ring: OrderedDict[int, Event], event: Event) -> Event:
        """Return the event, counting on from the one that it repeats, which goes."""
        what = (event.kind, event.subject)
        before = ring.get(self._repeating.get(what, 0))
        if before is not None and event.time_ms - before.time_ms <= REPEAT_MS:
            del ring[before.number]
            event = replace(event, times=before.times + 1)
        self._repeating[what] = event.number
        self._repeating.move_to_end(what)
        if len(self._repeating) > self._kept:
            self._repeating.popitem(last=False)
        return event

    def latest(self, limit: int, after: int = 0, least: Level = Level.INFO) -> list[Event]:
        """Return the latest events above a number and of at least a level, newest first."""
        wanted = list(Level)[list(Level).index(least) :]
        newest = heapq.merge(
            *(reversed(self._rings[level].values()) for level in wanted), key=lambda event: -event.number
        )
        found: list[Event] = []
        for event in newest:
            if event.number <= after or len(found) >= limit:
                break
            found.append(event)
        return found

    def check(self) -> None:
        """An AssertionError is a bug."""
        for level, ring in self._rings.items():
            assert list(ring) == sorted(ring)
            assert len(ring) <= self._kept
            assert all(event.level is level and event.number == number for number, event in ring.items())
        assert len(self._repeating) <= self._kept
