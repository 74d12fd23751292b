"""Who may fetch from the DFS now: streams share a bounded memory, and one that is let in has room for all it needs.

Rules: a lease is room for the chunk that is sent and the one after it, taken at once or not at all, so nobody holds
room while it waits for more. Those that wait are let in as they came, but for those whose owner has its share
(common/shares.py). While somebody waits, a lease has an end: it is taken from whoever does not use it (its reader gives
no credit, or takes nothing), from whoever has held the same chunk for long, and it is given up between chunks when its
turn is over. What was fetched is then fetched again. Time that the DFS takes counts for nobody. Pure; loop thread only.
Called by services/stream_sources.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from holdfast.common.shares import FairQueue, Shares

#: However small they are, each counts as this part of the room: more would only wait for each other's fetches.
LEASES_MAX = 64
#: A lease that is not used for so long is free, and so is a place in the queue.
IDLE_NS = 500_000_000
#: After so long others go first, between two chunks.
TURN_NS = 2_000_000_000
#: A chunk that was fetched is sent within this, or goes.
HOLD_NS = 10_000_000_000
#: How often leases are looked through while somebody waits.
LOOK_NS = 20_000_000


@dataclass(slots=True, eq=False)
class FetchLease:
    """What one stream has of the room: a lease, a place in the queue, or nothing. It is the stream's to `leave` it."""

    leases: FetchLeases
    #: has its stream let go of all that it fetched
    revoke: Callable[[], None]
    #: what it needs
    size_bytes: int = 0
    #: whose stream it is
    owner: Hashable = ()
    asked_ns: int = 0
    began_ns: int = 0
    since_ns: int = 0

    def take(self) -> bool:
        """Whether the stream may fetch; ask again before the next step."""
        return self.leases.take(self)

    def renew(self) -> None:
        """The DFS is being waited for, or the next chunk begins."""
        self.since_ns = self.leases.clock()

    @property
    def turn_over(self) -> bool:
        """Somebody waits, and this one had its turn."""
        return self.leases.crowded and self.leases.clock() - self.began_ns > TURN_NS

    def leave(self) -> None:
        """Give it back; nothing that was fetched may be held any more."""
        self.leases.leave(self)


@dataclass(slots=True)
class FetchLeases:
    """All fetch leases of a worker, `bytes_max` together; one that needs more is alone."""

    bytes_max: int
    #: nanoseconds that never go back
    clock: Callable[[], int]
    _active: dict[FetchLease, None] = field(default_factory=dict)
    _waiting: FairQueue[FetchLease] = field(init=False)
    #: what those who hold a lease may fetch, by owner
    _shares: Shares = field(init=False)
    _look_ns: int = 0

    def __post_init__(self) -> None:
        self._shares = Shares(self.bytes_max)
        self._waiting = FairQueue(self._shares)

    @property
    def crowded(self) -> bool:
        return len(self._waiting) > 0

    @property
    def held_bytes(self) -> int:
        return self._shares.total

    def take(self, lease: FetchLease) -> bool:
        lease.asked_ns = self.clock()
        if lease not in self._active:
            self._waiting.join(lease, lease.owner)
            self._admit(lease.asked_ns)
        return lease in self._active

    def leave(self, lease: FetchLease) -> None:
        self._waiting.leave(lease)
        if lease in self._active:
            self._end(lease)
            self._admit(self.clock())

    def _admit(self, now: int) -> None:
        while self._waiting:
            lease = self._waiting.next(self._wants)
            if lease is None and self._free_some(now):
                lease = self._waiting.next(self._wants)
            if lease is None:
                return
            if now - lease.asked_ns > IDLE_NS:
                continue  # it comes again when it goes on
            self._active[lease] = None
            self._shares.add(lease.owner, self._counted(lease))
            lease.began_ns = lease.since_ns = now

    def _end(self, lease: FetchLease) -> None:
        del self._active[lease]
        self._shares.give(lease.owner, self._counted(lease))

    def _counted(self, lease: FetchLease) -> int:
        """What a lease takes of the room; one that needs more than all of it takes all, and is alone."""
        return min(max(lease.size_bytes, self.bytes_max // LEASES_MAX), self.bytes_max)

    def _wants(self, lease: FetchLease) -> int:
        """What a lease that waits would take; nothing where its stream asks no more, so that it goes."""
        return 0 if self.clock() - lease.asked_ns > IDLE_NS else self._counted(lease)

    def _free_some(self, now: int) -> bool:
        """Take the leases of those who do not use them; return whether any was looked at."""
        if now < self._look_ns:
            return False
        self._look_ns = now + LOOK_NS
        for lease in list(self._active):
            if now - lease.asked_ns > IDLE_NS or now - lease.since_ns > HOLD_NS:
                self._end(lease)
                lease.revoke()
        return True

    def check(self) -> None:
        self._shares.check()
        assert self.held_bytes == sum(map(self._counted, self._active))
        assert self._active.keys().isdisjoint(self._waiting)
