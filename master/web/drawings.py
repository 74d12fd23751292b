"""Where the bars, lines, ticks and labels of drawings stand. Pure; laid out by parts.html and shuffle.html."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from holdfast.common.sizes import in_bytes
from holdfast.master.core.retention import in_time
from holdfast.master.core.shuffle_sums import SizeBucket

#: Labels of the axis of sizes, at most.
_LABELS_MAX = 6


@dataclass(frozen=True, slots=True)
class Plot:
    """The size of a view box, and the edges of the area in it where something is drawn; labels stand around that."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    @property
    def middle(self) -> float:
        """Halfway from left to right."""
        return (self.left + self.right) / 2

    @property
    def centre(self) -> float:
        """Halfway from top to bottom."""
        return (self.top + self.bottom) / 2

    def up(self, share: float) -> float:
        """The height of a value, as its share of the highest one."""
        return self.bottom - (self.bottom - self.top) * share


HISTOGRAM = Plot(380, 210, left=48, right=372, top=12, bottom=160)
CURVE = Plot(320, 106, left=62, right=312, top=8, bottom=88)


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

    plot: ClassVar = HISTOGRAM

    of: str
    bars: tuple[Bar, ...]
    sizes: tuple[Tick, ...]
    counts: tuple[Tick, ...]


def histogram_of(of: str, buckets: Sequence[SizeBucket]) -> Histogram:
    """Lay out a histogram; a bar that counts anything is to be seen."""
    most = max((each.count for each in buckets), default=0) or 1
    left, step = HISTOGRAM.left, (HISTOGRAM.right - HISTOGRAM.left) / max(len(buckets), 1)
    every = -(-(len(buckets) + 1) // _LABELS_MAX)
    edges = [*(each.from_bytes for each in buckets), buckets[-1].below_bytes] if buckets else []
    return Histogram(
        of,
        tuple(_bar(each, left + place * step, step, most) for place, each in enumerate(buckets)),
        tuple(Tick(left + place * step, in_bytes(edge)) for place, edge in enumerate(edges) if place % every == 0),
        tuple(Tick(HISTOGRAM.up(count / most), f"{count:,}") for count in sorted({0, most // 2, most})),
    )


def _bar(bucket: SizeBucket, x: float, step: float, most: int) -> Bar:
    height = max(HISTOGRAM.bottom - HISTOGRAM.up(bucket.count / most), 1.0) if bucket.count else 0.0
    bounds = f"{in_bytes(bucket.from_bytes)} to {in_bytes(bucket.below_bytes)}" if bucket.from_bytes else "empty"
    return Bar(x + step * 0.06, HISTOGRAM.bottom - height, step * 0.88, height, bounds, bucket.count)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of samples: `points` as SVG wants them, `sizes` and `times` label the axes; `most` is the highest
    one, `now` the last."""

    plot: ClassVar = CURVE

    points: str
    sizes: tuple[Tick, ...]
    times: tuple[Tick, ...]
    most: str
    now: str


def curve_of(samples: Sequence[float], every_seconds: int, unit: str = "/s") -> Curve | None:
    """Lay out samples, so many seconds apart and the newest one last; None of fewer than two. The axis of sizes ends
    at a power of two."""
    if len(samples) < 2:
        return None
    most = max(samples)
    top = 1 << max(math.ceil(most) - 1, 1_023).bit_length()
    step = (CURVE.right - CURVE.left) / (len(samples) - 1)
    ago = len(samples) * every_seconds * 1_000
    return Curve(
        " ".join(f"{CURVE.left + place * step:.1f},{CURVE.up(each / top):.1f}" for place, each in enumerate(samples)),
        tuple(Tick(CURVE.up(each / top), in_bytes(each) + unit) for each in (0, top // 2, top)),
        (
            Tick(CURVE.left, f"{in_time(ago)} ago"),
            Tick(CURVE.middle, f"{in_time(ago // 2)} ago"),
            Tick(CURVE.right, "now"),
        ),
        in_bytes(most) + unit,
        in_bytes(samples[-1]) + unit,
    )
