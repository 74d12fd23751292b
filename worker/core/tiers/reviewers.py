"""Says whether a directory that an allocator proposes should take a new file, so that growing files find room in it.

A file asks for little when it begins and grows. A directory that just about fits is filled by what already grows in it,
so the less is free, the more often new files are sent elsewhere. Source: the ProbabilisticBufferReviewer of Alluxio.
Pure: chance comes in as a callable. Called by allocators.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.worker.core.tiers.view import DirectoryView

HARD_LIMIT_BYTES = 5 << 30
SOFT_LIMIT_BYTES = 20 << 30
#: What the limits are at most, in tenths of a directory's capacity; the ratio is that of the defaults.
HARD_TENTHS, SOFT_TENTHS = 1, 4


class Reviewer(Protocol):
    """Accepts or refuses one candidate."""

    def accepts(self, directory: DirectoryView) -> bool:
        """Whether a new file may begin there."""


class AcceptAll:
    """Accepts everything."""

    def accepts(self, directory: DirectoryView) -> bool:
        """Return True."""
        return True


@dataclass(slots=True)
class ProbabilisticBuffer:
    """Accepts with a chance that falls from 1 at the soft limit of free bytes to 0 at the hard one.

    A soft limit below the hard one becomes the hard one, and `warning` says so. On small directories both shrink, see
    `shrunk`. `draw` gives numbers in [0, 1).
    """

    draw: Callable[[], float]
    hard_limit_bytes: int = HARD_LIMIT_BYTES
    soft_limit_bytes: int = SOFT_LIMIT_BYTES
    #: what an operator should know; "" if all is well
    warning: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.hard_limit_bytes < 0:
            raise ValueError(f"a hard limit of {self.hard_limit_bytes} bytes is negative")
        if self.soft_limit_bytes <= self.hard_limit_bytes:
            self.warning = (
                f"the soft limit of the reviewer ({self.soft_limit_bytes} bytes) is not above the hard one "
                f"({self.hard_limit_bytes} bytes): directories take new files down to the hard limit, and none below"
            )
            self.soft_limit_bytes = self.hard_limit_bytes

    def chance(self, directory: DirectoryView) -> float:
        """How likely it is that a new file may begin there. The reserve is not subtracted: the hard limit is for it."""
        hard, soft = shrunk(directory.capacity_bytes, self.hard_limit_bytes, self.soft_limit_bytes)
        return chance(directory.unused_bytes, hard, soft)

    def accepts(self, directory: DirectoryView) -> bool:
        """Draw once."""
        return self.draw() < self.chance(directory)


def chance(free_bytes: int, hard_limit_bytes: int, soft_limit_bytes: int) -> float:
    """1 above the soft limit, 0 up to the hard one, a straight line between; soft must not be below hard."""
    if free_bytes > soft_limit_bytes:
        return 1.0
    if free_bytes <= hard_limit_bytes:
        return 0.0
    return (free_bytes - hard_limit_bytes) / (soft_limit_bytes - hard_limit_bytes)


def shrunk(capacity_bytes: int, hard_limit_bytes: int, soft_limit_bytes: int) -> tuple[int, int]:
    """Return (hard, soft) as they are for a directory of this capacity: at most a tenth and four tenths of it."""
    return (
        min(hard_limit_bytes, capacity_bytes * HARD_TENTHS // 10),
        min(soft_limit_bytes, capacity_bytes * SOFT_TENTHS // 10),
    )


def make_reviewer(name: str, draw: Callable[[], float], hard_limit_bytes: int, soft_limit_bytes: int) -> Reviewer:
    """By its name in the configuration, "probabilistic" or "accepting". Raises ValueError."""
    if name == "accepting":
        return AcceptAll()
    if name == "probabilistic":
        return ProbabilisticBuffer(draw, hard_limit_bytes, soft_limit_bytes)
    raise ValueError(f'there is no reviewer "{name}"; known are probabilistic, accepting')
