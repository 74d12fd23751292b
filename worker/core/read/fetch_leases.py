"""Who may fetch from the DFS now: streams share a bounded memory, and one that is let in has room for all it needs.

Rules: a lease is room for the chunk that is sent and the one after it, taken at once or not at all, so nobody holds
room while it waits for more. Those that wait are let in as they came. While somebody waits, a lease has an end: it is
taken from whoever does not use it (its reader gives no credit, or takes nothing), from whoever has held the same chunk
for long, and it is given up between chunks when its turn is over. What was fetched is then fetched again. Time that
the DFS takes counts for nobody. Pure; loop thread only. Called by services/stream_sources.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: FetchLeases beside the bound in bytes: more would only wait for each other's fetches.
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
    #: as they came
    _waiting: dict[FetchLease, None] = field(default_factory=dict)
    _bytes: int = 0
    _look_ns: int = 0

    @property
    def crowded(self) -> bool:
        return bool(self._waiting)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def take(self, lease: FetchLease) -> bool:
        lease.asked_ns = self.clock()
        if lease not in self._active:
            self._waiting[lease] = None
            self._admit(lease.asked_ns)
        return lease in self._active

    def leave(self, lease: FetchLease) -> None:
        self._waiting.pop(lease, None)
        if lease in self._active:
            del self._active[lease]
            self._bytes -= lease.size_bytes
            assert self._bytes >= 0, "each lease is counted once"
            self._admit(self.clock())

    def _admit(self, now: int) -> None:
        while self._waiting:
            lease = next(iter(self._waiting))
            if now - lease.asked_ns > IDLE_NS:
                del self._waiting[lease]  # it comes again when it goes on
                continue
            if not self._fits(lease):
                self._free_some(now)
            if not self._fits(lease):
                return
            del self._waiting[lease]
            self._active[lease] = None
            self._bytes += lease.size_bytes
            assert self._bytes <= self.bytes_max or len(self._active) == 1, "a lease above the bound is alone"
            lease.began_ns = lease.since_ns = now

    def _fits(self, lease: FetchLease) -> bool:
        return not self._active or (len(self._active) < LEASES_MAX and self._bytes + lease.size_bytes <= self.bytes_max)

    def _free_some(self, now: int) -> None:
        if now < self._look_ns:
            return
        self._look_ns = now + LOOK_NS
        for lease in list(self._active):
            if now - lease.asked_ns > IDLE_NS or now - lease.since_ns > HOLD_NS:
                del self._active[lease]
                self._bytes -= lease.size_bytes
                lease.revoke()

    def check(self) -> None:
        assert self._bytes == sum(lease.size_bytes for lease in self._active)
        assert self._bytes <= self.bytes_max or len(self._active) == 1
        assert len(self._active) <= LEASES_MAX
        assert not self._active.keys() & self._waiting.keys()
