"""Decides who may push how much: windows of unanswered body bytes, byte-exact, first come first served.

Rules: the windows of all connections together, and what is unanswered beyond them, never exceed the budget. A window
lapses when it is given back, or not used for CREDIT_LIFE_NS (a tenth of it if others wait). Who wants more gives up
what is unused and goes to the end of the line, where those are passed over whose owner has its share (shares.py). A
push beyond its window is refused. What is left of a window while it is used depends on whose it is:

* clients: all of it, until others wait; then it shrinks by whatever is answered. So nobody starves, and nobody who is
  alone asks twice. Clients come and go, and give back what they no longer need.
* with `standing_bytes` (other workers, whose connections stay): it shrinks by whatever is answered, down to a fair
  share of `standing_bytes`, which with the largest window is at most the budget. What is beyond the shares was
  asked for because it is used at once, so it comes back by itself, and the largest window fits beside all shares:
  nobody ever waits for somebody who is idle, however many there are.

The body of a push that is answered while a replica lacks it is kept: its window is smaller by that, so that what is
kept and what may come never exceed the budget together. It is given back when the body is, to the window if nobody
waits.

Pure. Called by services/push_service.py, once for clients and once for the reserve of replica traffic.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.shares import FairQueue, Shares

#: A window that is not used for so long lapses.
CREDIT_LIFE_NS = 10 * 10**9

#: A body's buffer is up to a quarter larger than the body (buffers.py): windows are so much smaller than the memory for
#: bodies, so that whoever keeps to a window never waits for memory.
BUFFER_SHARE = 0.8
#: The part of all windows that replica traffic has for itself.
REPLICA_SHARE = 5
#: A connection's window is at most this part of what clients share, so that one alone cannot take all.
WINDOW_SHARE = 4
#: The part of replica traffic's windows that is always there for who has to send more than its share.
TURN_SHARE = 2

ConnectionId = int


@dataclass(slots=True)
class _Window:
    """What one connection may have unanswered, and what it has."""

    #: whose it is
    owner: Hashable = ()
    size: int = 0
    unanswered: int = 0
    #: bodies of pushes that are answered
    kept: int = 0
    used_at_ns: int = 0
    #: what was asked for and is not answered yet
    due: int = 0
    #: what of `size` is not due, or stays even so when that is answered; 0 without shares
    standing: int = 0
    #: how large it is to be; while it stands in line
    wanted: int = 0
    #: its connection is gone
    lost: bool = False

    @property
    def held(self) -> int:
        return max(self.size, self.unanswered) + self.kept


@dataclass(slots=True)
class Credits:
    """All windows of one budget."""

    budget_bytes: int
    #: the largest window of one connection
    window_bytes_max: int
    #: what windows may keep together while they are not used, in fair shares; None: everything, until others wait
    standing_bytes: int | None = None
    #: what all windows hold, by owner
    _held: Shares = field(init=False)
    #: sum over all windows of what stays of them
    _stands_bytes: int = 0
    _windows: dict[ConnectionId, _Window] = field(default_factory=dict)
    #: who waits for a larger window
    _line: FairQueue[ConnectionId] = field(init=False)

    def __post_init__(self) -> None:
        self._held = Shares(self.budget_bytes)
        self._line = FairQueue(self._held)
        if self.window_bytes_max < FRAME_BODY_BYTES_MAX or self.budget_bytes < FRAME_BODY_BYTES_MAX:
            raise ValueError(f"credits of {self.budget_bytes} bytes cannot hold one body of {FRAME_BODY_BYTES_MAX}")
        if self.standing_bytes is not None:
            assert 0 <= self.standing_bytes <= self.budget_bytes - self.window_bytes_max, "the largest fits beside all"

    @property
    def held_bytes(self) -> int:
        """What all windows hold."""
        return self._held.total

    @property
    def waiting(self) -> int:
        return len(self._line)

    def window(self, connection: ConnectionId) -> int:
        found = self._windows.get(connection)
        return found.size if found is not None else 0

    def ask(
        self, connection: ConnectionId, size: int, now_ns: int, owner: Hashable = ()
    ) -> list[tuple[ConnectionId, int]]:
        """Want a window of `size`, for a connection of this owner; 0 gives it back. Returns (connection, window) of all
        that are granted now.

        With shares a window may be larger than asked for.
        """
        window = self._windows.setdefault(connection, _Window(owner))
        window.used_at_ns = now_ns
        window.wanted = wanted = min(size, self.window_bytes_max, self.budget_bytes)
        self._line.leave(connection)
        if wanted <= window.size:
            self._resize(window, wanted)
            window.due = wanted
            if wanted:
                self._stand(window)
            granted = [(connection, window.size)]
            if not window.held:
                del self._windows[connection]
            return granted + self._serve(now_ns)
        self._line.join(connection, owner)
        # What it has is too little for it, and kept in line it could keep those before it waiting for ever.
        self._resize(window, min(window.size, window.unanswered))
        window.due = window.size
        return self._serve(now_ns)

    def take(self, connection: ConnectionId, size: int, now_ns: int) -> bool:
        """A push of `size` body bytes came: whether it is within the window."""
        window = self._windows.get(connection)
        if window is None or window.unanswered + size > window.size:
            return False
        window.unanswered += size
        window.used_at_ns = now_ns
        return True

    def may_keep(self, connection: ConnectionId) -> bool:
        """Whether a push may be answered before its body is given back."""
        window = self._windows.get(connection)
        return window is not None and window.kept < self.window_bytes_max

    def answered(
        self, connection: ConnectionId, size: int, now_ns: int, *, keeps: bool = False
    ) -> list[tuple[ConnectionId, int]]:
        """A taken push is answered; returns what is granted to others. Ask `window` for what to tell its sender. Who
        `keeps` its body gives it back with `released`."""
        window = self._windows.get(connection)
        if window is None:
            return []
        before = window.held
        window.unanswered -= size
        assert window.unanswered >= 0, (connection, window)
        window.used_at_ns = now_ns
        window.due = max(0, window.due - size)
        if keeps:
            window.kept += size
        self._hold(window, before)
        granted = []
        if self.standing_bytes is not None or self._line or keeps:
            # Never by more than was answered: what its sender has on the way meanwhile is within what it was told.
            kept = 0 if window.lost else min(self._share(window), window.size)
            left = max(kept, window.size - size)
            # What shrinks towards a smaller share counts as standing: nobody else may keep it yet.
            self._resize(window, left, max(kept, left - window.due) if self.standing_bytes is not None else 0)
            granted = self._serve(now_ns)
            if not window.lost and connection not in self._line:
                self._stand(window)
        # With shares those that have nothing at the moment count too.
        if not window.held and connection not in self._line and (window.lost or self.standing_bytes is None):
            del self._windows[connection]
        return granted

    def released(self, connection: ConnectionId, size: int, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """A body that was kept is given back; returns what is granted."""
        window = self._windows.get(connection)
        if window is None:
            return []
        before = window.held
        window.kept -= size
        assert window.kept >= 0, (connection, window)
        self._hold(window, before)
        if not (self._line or window.lost):
            self._resize(window, min(window.size + size, self.window_bytes_max))  # nobody else wants it
        if not window.held and connection not in self._line:
            del self._windows[connection]
        return self._serve(now_ns)

    def lost(self, connection: ConnectionId, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """A connection is gone; what it has unanswered is still `answered` once, and what is kept `released`."""
        self._line.leave(connection)
        window = self._windows.get(connection)
        if window is not None:
            window.lost = True
            self._resize(window, 0)
            if not window.held:
                del self._windows[connection]
        return self._serve(now_ns)

    def tick(self, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """Take back windows that were not used; returns what is granted to others."""
        life = CREDIT_LIFE_NS // 10 if self._line else CREDIT_LIFE_NS
        for connection, window in list(self._windows.items()):
            if not window.unanswered and now_ns - window.used_at_ns >= life and connection not in self._line:
                self._resize(window, 0)
                if not window.kept:
                    del self._windows[connection]
        return self._serve(now_ns)

    def _resize(self, window: _Window, size: int, standing: int = 0) -> None:
        """Make a window so large, of which `standing` stays when it is not used."""
        before = window.held
        window.size = size
        self._hold(window, before)
        self._stands_bytes += standing - window.standing
        window.standing = standing
        assert 0 <= standing <= size, f"what stays is a part of the window: {window}"
        assert self._stands_bytes <= (self.standing_bytes or 0), "the largest window fits beside all that stays"

    def _hold(self, window: _Window, before: int) -> None:
        """Count what a window holds, and not what it held before."""
        more = window.held - before
        if more < 0:
            self._held.give(window.owner, -more)
        else:
            self._held.add(window.owner, more)

    def _share(self, window: _Window) -> int:
        """What may stay of a window: an equal part, as far as those who are idle left so much."""
        if self.standing_bytes is None:
            return 0
        left = self.standing_bytes - self._stands_bytes + window.standing
        return min(self.window_bytes_max, self.standing_bytes // len(self._windows), left)

    def _stand(self, window: _Window) -> None:
        """Let a window have its share, as far as nobody waits and there is room."""
        share = self._share(window)
        free_bytes = 0 if self._line else self.budget_bytes - self.held_bytes
        size = max(window.size, min(share, window.size + free_bytes))
        self._resize(window, size, max(window.standing, min(share, size)))

    def _serve(self, now_ns: int) -> list[tuple[ConnectionId, int]]:
        granted = []
        while (connection := self._line.next(self._wants)) is not None:
            window = self._windows[connection]
            self._resize(window, window.wanted)
            window.due = window.wanted
            self._stand(window)
            window.used_at_ns = now_ns
            granted.append((connection, window.size))
            assert self.held_bytes <= self.budget_bytes, "what is granted is there"
        return granted

    def _wants(self, connection: ConnectionId) -> int:
        """How much more who stands in line would hold."""
        window = self._windows[connection]
        return max(window.wanted, window.unanswered) + window.kept - window.held

    def check(self) -> None:
        assert self.held_bytes == sum(window.held for window in self._windows.values()) <= self.budget_bytes
        assert self._stands_bytes == sum(window.standing for window in self._windows.values())
        assert self._stands_bytes <= (self.standing_bytes or 0)
        for window in self._windows.values():
            assert 0 <= window.standing <= window.size, window
            assert self.standing_bytes is None or window.size <= window.standing + window.due, window
        assert set(self._line) <= self._windows.keys()
        self._held.check()


def split_memory(memory: int) -> tuple[Credits, Credits]:
    """Return the windows of clients and those of replica traffic, which share this memory for bodies."""
    windows = int(memory * BUFFER_SHARE)
    reserve = max(windows // REPLICA_SHARE, FRAME_BODY_BYTES_MAX)
    budget = max(windows - reserve, FRAME_BODY_BYTES_MAX)
    largest = max(reserve // TURN_SHARE, FRAME_BODY_BYTES_MAX)
    clients = Credits(budget, max(budget // WINDOW_SHARE, FRAME_BODY_BYTES_MAX))
    return clients, Credits(reserve, largest, reserve - largest)
