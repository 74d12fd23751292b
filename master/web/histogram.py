"""Where the bars, ticks and labels of a histogram of sizes stand. Pure; laid out by shuffle.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.common.sizes import in_bytes
from holdfast.master.core.shuffle_sums import SizeBucket

#: Of the drawing, in units of the view box; the axes leave room for their labels.
WIDTH, HEIGHT = 380, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 372, 12, 160
#: Labels of the axis of sizes, at most.
_LABELS_MAX = 6


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket: left edge, upper edge, width and height, and what it says."""

    x: float
    y: float
    width: float
    height: float
    bounds: str
    count: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place of an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """The whole drawing; `of` names what is counted."""

    of: str
    bars: tuple[Bar, ...]
    sizes: tuple[Tick, ...]
    counts: tuple[Tick, ...]


def histogram_of(of: str, buckets: Sequence[SizeBucket]) -> Histogram:
    """Lay out a histogram; a bar that counts anything is to be seen."""
    most = max((each.count for each in buckets), default=0) or 1
    step = (RIGHT - LEFT) / max(len(buckets), 1)
    every = -(-(len(buckets) + 1) // _LABELS_MAX)
    edges = [*(each.from_bytes for each in buckets), buckets[-1].below_bytes] if buckets else []
    return Histogram(
        of,
        tuple(_bar(each, LEFT + place * step, step, most) for place, each in enumerate(buckets)),
        tuple(Tick(LEFT + place * step, in_bytes(edge)) for place, edge in enumerate(edges) if place % every == 0),
        tuple(Tick(BOTTOM - (BOTTOM - TOP) * count / most, f"{count:,}") for count in sorted({0, most // 2, most})),
    )


def _bar(bucket: SizeBucket, x: float, step: float, most: int) -> Bar:
    height = max((BOTTOM - TOP) * bucket.count / most, 1.0) if bucket.count else 0.0
    bounds = f"{in_bytes(bucket.from_bytes)} to {in_bytes(bucket.below_bytes)}" if bucket.from_bytes else "empty"
    return Bar(x + step * 0.06, BOTTOM - height, step * 0.88, height, bounds, bucket.count)
