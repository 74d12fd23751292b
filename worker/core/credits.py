"""Decides who may push how much: windows of unanswered body bytes, byte-exact, first come first served.

Rules: the windows of all connections together, and what is unanswered beyond them, never exceed the budget. A window
stands until it is given back, or not used for CREDIT_LIFE_NS (a tenth of it if others wait), or others wait: then it
shrinks by whatever is answered, and who wants more gives up what is unused and goes to the end of the line. So nobody
starves, and nobody who is alone asks twice. A push beyond its window is refused. Pure. Called by
server/push_service.py, once for clients and once for the reserve of replica traffic.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from holdfast.common.limits import FRAME_BODY_BYTES_MAX

#: A window that is not used for so long lapses.
CREDIT_LIFE_NS = 10 * 10**9

ConnectionId = int


@dataclass(slots=True)
class _Window:
    """What one connection may have unanswered, and what it has."""

    size: int = 0
    unanswered: int = 0
    used_at_ns: int = 0

    @property
    def held(self) -> int:
        return max(self.size, self.unanswered)


@dataclass(slots=True)
class Credits:
    """All windows of one budget."""

    budget_bytes: int
    #: the largest window of one connection
    window_bytes_max: int
    #: sum over all windows of what they hold
    held_bytes: int = 0
    _windows: dict[ConnectionId, _Window] = field(default_factory=dict)
    #: who waits for a larger window, and how large
    _line: OrderedDict[ConnectionId, int] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.window_bytes_max < FRAME_BODY_BYTES_MAX or self.budget_bytes < FRAME_BODY_BYTES_MAX:
            raise ValueError(f"credits of {self.budget_bytes} bytes cannot hold one body of {FRAME_BODY_BYTES_MAX}")

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def window(self, connection: ConnectionId) -> int:
        """What this connection may have unanswered."""
        found = self._windows.get(connection)
        return found.size if found is not None else 0

    def ask(self, connection: ConnectionId, size: int, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """Want a window of `size`; 0 gives it back. Returns (connection, window) of all that are granted now."""
        window = self._windows.setdefault(connection, _Window())
        window.used_at_ns = now_ns
        wanted = min(size, self.window_bytes_max, self.budget_bytes)
        self._line.pop(connection, None)
        if wanted <= window.size:
            self._resize(window, wanted)
            granted = [(connection, wanted)]
            if not wanted and not window.unanswered:
                del self._windows[connection]
            return granted + self._serve(now_ns)
        self._line[connection] = wanted
        # What it has is too little for it, and kept in line it could keep those before it waiting for ever.
        self._resize(window, min(window.size, window.unanswered))
        return self._serve(now_ns)

    def take(self, connection: ConnectionId, size: int, now_ns: int) -> bool:
        """A push of `size` body bytes came: whether it is within the window."""
        window = self._windows.get(connection)
        if window is None or window.unanswered + size > window.size:
            return False
        window.unanswered += size
        window.used_at_ns = now_ns
        return True

    def answered(self, connection: ConnectionId, size: int, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """A taken push is answered; returns what is granted to others. Ask `window` for what to tell its sender."""
        window = self._windows.get(connection)
        if window is None:
            return []
        before = window.held
        window.unanswered -= size
        assert window.unanswered >= 0, (connection, window)
        window.used_at_ns = now_ns
        self.held_bytes += window.held - before
        granted = []
        if self._line:
            self._resize(window, max(0, window.size - size))
            granted = self._serve(now_ns)
        if not window.held and connection not in self._line:
            del self._windows[connection]
        return granted

    def lost(self, connection: ConnectionId, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """A connection is gone; what it has unanswered is still `answered` once."""
        self._line.pop(connection, None)
        window = self._windows.get(connection)
        if window is not None:
            self._resize(window, 0)
            if not window.unanswered:
                del self._windows[connection]
        return self._serve(now_ns)

    def tick(self, now_ns: int) -> list[tuple[ConnectionId, int]]:
        """Take back windows that were not used; returns what is granted to others."""
        life = CREDIT_LIFE_NS // 10 if self._line else CREDIT_LIFE_NS
        for connection, window in list(self._windows.items()):
            if not window.unanswered and now_ns - window.used_at_ns >= life and connection not in self._line:
                self._resize(window, 0)
                del self._windows[connection]
        return self._serve(now_ns)

    def _resize(self, window: _Window, size: int) -> None:
        before = window.held
        window.size = size
        self.held_bytes += window.held - before

    def _serve(self, now_ns: int) -> list[tuple[ConnectionId, int]]:
        granted = []
        while self._line:
            connection, wanted = next(iter(self._line.items()))
            window = self._windows[connection]
            if self.held_bytes - window.held + max(wanted, window.unanswered) > self.budget_bytes:
                break
            del self._line[connection]
            self._resize(window, wanted)
            window.used_at_ns = now_ns
            granted.append((connection, wanted))
        return granted

    def check(self) -> None:
        """Re-derive everything redundant; an AssertionError is a bug."""
        assert self.held_bytes == sum(window.held for window in self._windows.values()) <= self.budget_bytes
        assert self._line.keys() <= self._windows.keys()
