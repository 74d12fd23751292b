"""The events of this master: those from the log, the same on every master, and its own.

Rules: the log's events come from Raft's thread, all others from the event loop; a lock held for microseconds keeps them
apart. Everything is logged where it is seen; what commands of the log did, by the leader alone. After a start the log
is applied from the last snapshot on, and gives the events of that time, with their times. Called by main.py and by
all that report events; read by admin.py, web and metrics.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from holdfast.common.log_events import Level, LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.log import log_facts
from holdfast.master.core.conditions import ConnectedPeers
from holdfast.master.core.events import LEVELS, Event, Happened, LatestEvents
from holdfast.master.raft.node import RaftStatus

_LIMIT_DEFAULT, LIMIT_MAX = 100, 3_000
_LOOK_SECONDS = 1.0
#: Masters that start together find each other within this; before that, a missing one is no event.
_SETTLE_SECONDS = 10.0
_LEVELS = {level.word: level for level in LEVELS}


class Events:
    """One ring for one master."""

    def __init__(self, name: str, now_ms: Callable[[], int]) -> None:
        """`name` is this master's; `now_ms` the wall clock."""
        self._name, self._now_ms = name, now_ms
        self._ring = LatestEvents()
        self._lock = threading.Lock()
        self._peers = ConnectedPeers()

    def applied(self, time_ms: int, index: int, happened: Iterable[Happened]) -> None:
        """Take in what an entry of the log did; any thread."""
        with self._lock:
            for each in happened:
                self._ring.add(time_ms, each, index)

    def tell(self, event: LogEvent, /, **facts: object) -> None:
        """Take in what this master saw or did, and log it."""
        self.tell_all((Happened(event, **facts),))

    def tell_all(self, happened: Collection[Happened]) -> None:
        """Take in several of them, and log them."""
        for each in happened:
            with self._lock:
                self._ring.add(self._now_ms(), each)
        log_all(happened)

    def latest(self, limit: int, after: int = 0, least: Level = Level.INFO) -> list[Event]:
        """The latest events, newest first."""
        with self._lock:
            return self._ring.latest(limit, after, least)

    def counts(self) -> Mapping[LogEvent, int]:
        """How often each of them happened, since this master started or as far back as its log reaches."""
        with self._lock:
            return dict(self._ring.counts)

    def reply(self, request: pb.ListEventsRequest) -> pb.ListEventsReply:
        """Answer Admin/ListEvents."""
        least = _LEVELS.get(request.least, Level.INFO)
        with self._lock:
            found = self._ring.latest(min(request.limit or _LIMIT_DEFAULT, LIMIT_MAX), request.after, least)
            last = self._ring.last
        return pb.ListEventsReply(name=self._name, last=last, events=[event_of(each, self._name) for each in found])

    async def watch(self, status: Callable[[], RaftStatus]) -> None:
        """Look every second at which other masters are connected, until cancelled."""
        self.tell(LogEvent.MASTER_STARTED, master=self._name)
        began = time.monotonic()
        while True:
            connected = {name: peer.connected for name, peer in status().peers.items()}
            self.tell_all(self._peers.look(connected, time.monotonic() - began > _SETTLE_SECONDS))
            await asyncio.sleep(_LOOK_SECONDS)


def log_all(happened: Iterable[Happened]) -> None:
    """Log what happened."""
    for each in happened:
        log_facts(each.event, each.facts)


def event_of(event: Event, master: str) -> pb.Event:
    """An event as the wire has it; what only this master saw carries its name."""
    return pb.Event(
        number=event.number,
        time_ms=event.time_ms,
        raft_index=event.index,
        master="" if event.index else master,
        level=event.level.word,
        event=event.happened.event.dotted,
        subject=event.happened.subject,
        text=event.happened.text,
        times=event.times,
    )
