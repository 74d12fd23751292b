"""The latest events of the cluster, for people: a bounded ring; the caller passes the time.

Rules: routine never drives out what matters: each level has a ring of its own. What repeats itself (a quota that
refuses, an election that wavers) is one event that counts. Numbers grow by one for each thing that happens, so that a
reader asks for what came after a number; it sees a gap where the ring was too small. Filled by observe/events.py.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from dataclasses import dataclass, replace

from holdfast.common.log_events import Level, LogEvent, facts_text

#: The levels of events, each with a ring of its own.
LEVELS = (Level.INFO, Level.WARNING, Level.ERROR)
#: Of these, what comes again within REPEAT_MS about the same subject is the same event once more.
_REPEATS = frozenset(
    {
        LogEvent.QUOTA_EXCEEDED,
        LogEvent.PLACEMENT_NO_ROOM,
        LogEvent.WORKER_RESTARTED,
        LogEvent.MASTER_STALLED,
        LogEvent.CONFIGURATION_REFUSED,
        LogEvent.SHUFFLE_FALLBACK,
    }
)
REPEAT_MS = 60_000
#: Events of each level that are kept.
KEPT = 1_000


class Happened:
    """Something that happened: an event of the catalogue, and facts, the first of which says to whom or what."""

    __slots__ = ("event", "facts")

    def __init__(self, event: LogEvent, /, **facts: object) -> None:
        assert event.level in LEVELS
        self.event, self.facts = event, facts

    @property
    def subject(self) -> str:
        """To whom or what."""
        return str(next(iter(self.facts.values())))

    @property
    def text(self) -> str:
        """For people: as in a log, but for the event's name."""
        return f"{facts_text(self.facts)} — {self.event.sentence}"


@dataclass(frozen=True, slots=True)
class Event:
    """One that is kept. `index` is its place in the log, 0 for what only this master saw; `times` how often it came."""

    number: int
    time_ms: int
    index: int
    happened: Happened
    times: int = 1

    @property
    def level(self) -> Level:
        """How much it matters."""
        return self.happened.event.level


class LatestEvents:
    """The latest events."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._rings: dict[Level, OrderedDict[int, Event]] = {level: OrderedDict() for level in LEVELS}
        #: number of the latest of what repeats itself, by event and subject; as many as are kept
        self._repeating: OrderedDict[tuple[LogEvent, str], int] = OrderedDict()
        #: how many things happened
        self.last = 0
        #: how often each of them did
        self.counts: Counter[LogEvent] = Counter()

    def add(self, time_ms: int, happened: Happened, index: int = 0) -> Event:
        """Keep an event; the oldest of its level is dropped."""
        self.last += 1
        self.counts[happened.event] += 1
        ring = self._rings[happened.event.level]
        event = Event(self.last, time_ms, index, happened)
        if happened.event in _REPEATS:
            event = self._repeated(ring, event)
        assert not ring or event.number > next(reversed(ring)), "numbers grow"
        ring[event.number] = event
        if len(ring) > self._kept:
            ring.popitem(last=False)
        return event

    def _repeated(self, ring: OrderedDict[int, Event], event: Event) -> Event:
        """Return the event, with the count of the one that it repeats, which is dropped."""
        what = (event.happened.event, event.happened.subject)
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
        wanted = [reversed(ring.values()) for level, ring in self._rings.items() if level >= least]
        newest = heapq.merge(*wanted, key=lambda event: -event.number)
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
