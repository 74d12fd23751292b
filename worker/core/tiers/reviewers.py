"""Says whether a directory that an allocator proposes should take a new file, so that growing files find room in it.

A file asks for little when it begins and grows. A directory that just about fits is filled by what already grows in it,
so the less is free, the more often new files are sent elsewhere. Source: the ProbabilisticBufferReviewer of Alluxio.
Pure: chance comes in as a callable. Called by allocators.py.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.worker.core.tiers.view import DirectoryView

#: Whether a new file may begin in a directory.
Reviewer = Callable[[DirectoryView], bool]
#: What the limits are at most, in tenths of a directory's capacity; the ratio is that of the defaults.
HARD_TENTHS, SOFT_TENTHS = 1, 4


def accept_all(_: DirectoryView) -> bool:
    """The reviewer "accepting"."""
    return True


def probabilistic(draw: Callable[[], float], hard_limit_bytes: int, soft_limit_bytes: int) -> Reviewer:
    """The reviewer that draws once, from [0, 1), and accepts below `chance`."""
    return lambda directory: draw() < chance(directory, hard_limit_bytes, soft_limit_bytes)


def chance(directory: DirectoryView, hard_limit_bytes: int, soft_limit_bytes: int) -> float:
    """How likely it is that a new file may begin there: 1 above the soft limit of unused bytes, 0 up to the hard one, a
    straight line between. The reserve is not subtracted: the hard limit is for it. On small directories both shrink."""
    hard = min(hard_limit_bytes, directory.capacity_bytes * HARD_TENTHS // 10)
    soft = min(soft_limit_bytes, directory.capacity_bytes * SOFT_TENTHS // 10)
    if directory.unused_bytes > soft:
        return 1.0
    return 0.0 if directory.unused_bytes <= hard else (directory.unused_bytes - hard) / (soft - hard)
