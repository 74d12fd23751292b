"""Keeps upkeep out of the way of clients: while they read or write, and for a while after.

Rules: `any` pauses everything while any directory has an open stream, or had one within the cool-down; `directory`, the
default, leaves out single moves from or to such a directory. Source: the back-off strategies of Alluxio.

Pure; time comes in as a value. Called by upkeep's edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

COOLDOWN_NS = 10 * 10**9


@dataclass(slots=True)
class _Traffic:
    open_streams: int = 0
    changed_at_ns: int = 0


@dataclass(slots=True)
class Backoff:
    """Streams of each directory, readers and writers alike."""

    #: False: by directory
    any_stops_all: bool = False
    cooldown_ns: int = COOLDOWN_NS
    #: bounded by the number of directories
    _traffic: dict[int, _Traffic] = field(default_factory=dict)

    def opened(self, directory: int, now_ns: int) -> None:
        """A stream begins."""
        traffic = self._traffic.setdefault(directory, _Traffic())
        traffic.open_streams += 1
        traffic.changed_at_ns = now_ns

    def closed(self, directory: int, now_ns: int) -> None:
        """A stream that was opened ends."""
        traffic = self._traffic[directory]
        traffic.open_streams -= 1
        assert traffic.open_streams >= 0, directory
        traffic.changed_at_ns = now_ns

    def busy(self, now_ns: int) -> frozenset[int]:
        """Directories that moves should leave alone now."""
        return frozenset(
            number
            for number, traffic in self._traffic.items()
            if traffic.open_streams or now_ns - traffic.changed_at_ns < self.cooldown_ns
        )

    def pauses_all(self, now_ns: int) -> bool:
        """Whether nothing should move now."""
        return self.any_stops_all and bool(self.busy(now_ns))


def make_backoff(name: str, cooldown_ns: int = COOLDOWN_NS) -> Backoff:
    """By its name in the configuration: "any" or "directory". Raises ValueError."""
    if name not in ("any", "directory"):
        raise ValueError(f'there is no back-off "{name}"; known are any, directory')
    return Backoff(name == "any", cooldown_ns)
