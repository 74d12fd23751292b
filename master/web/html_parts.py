"""Small pieces of the page: pills, bars, tiles, the curve, links to other pages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.common.sizes import in_bytes
from holdfast.master.core.retention import in_time
from holdfast.master.web.markup import Markup, join, tag
from holdfast.master.web.view import Cut

#: From these shares on a bar says that it is nearly full, and full.
_NEARLY, _FULL = 0.8, 0.93
_CURVE_WIDTH, _CURVE_HEIGHT = 240, 44


def pill(word: str, mood: str) -> Markup:
    """A state: good, warn, bad or plain. The word says it all; the colour only helps."""
    return tag("span", word, class_=f"pill {mood}")


def rate(per_second: int) -> str:
    """Bytes a second."""
    return f"{in_bytes(per_second)}/s"


def ago(ms: int) -> str:
    """How long ago something was."""
    return f"{in_time(ms)} ago" if ms >= 1_000 else "now"


def bar(part: int, whole: int, what: str, mood: str = "") -> Markup:
    """A bar with its numbers beside it."""
    share = min(part / whole, 1.0) if whole else 0.0
    told = f"{in_bytes(part)} of {in_bytes(whole)}"
    return join(line(share, f"{what}: {told}", mood), tag("span", told, class_="of"))


def line(share: float, label: str, mood: str = "") -> Markup:
    """The bar alone; the label is for those who do not see it."""
    found = mood or ("bad" if share >= _FULL else "warn" if share >= _NEARLY else "used")
    filled = tag("rect", width=f"{share * 100:.1f}", height="8", class_=found)
    ground = tag("rect", width="100", height="8", class_="ground")
    return tag(
        "svg",
        ground,
        filled,
        class_="bar",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def tile(name: str, value: str, beside: str = "", bad: bool = False, below: object = None) -> Markup:
    """One large number, and what belongs to it."""
    return tag(
        "div",
        tag("h3", name),
        tag("p", tag("b", value), " ", tag("span", beside, class_="muted"), class_="bad" if bad else None),
        below,
        class_=f"tile of-{name.lower()}",
    )


def curve(samples: Sequence[int]) -> Markup:
    """The last minutes as a line; empty while there are none."""
    if len(samples) < 2:
        return tag("p", "no history yet", class_="muted curve")
    top = max(samples)
    step = _CURVE_WIDTH / (len(samples) - 1)
    heights = [_CURVE_HEIGHT - 2 - (_CURVE_HEIGHT - 6) * (each / top if top else 0) for each in samples]
    points = " ".join(f"{number * step:.1f},{height:.1f}" for number, height in enumerate(heights))
    area = f"0,{_CURVE_HEIGHT} {points} {_CURVE_WIDTH},{_CURVE_HEIGHT}"
    return tag(
        "svg",
        tag("polyline", points=area, class_="area"),
        tag("polyline", points=points, class_="stroke"),
        class_="curve",
        viewBox=f"0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"the last minutes, {rate(top)} at most",
    )


def pages(cut: Cut, what: str, link: Callable[[int], str]) -> Markup | None:
    """Links to the other pages of something long."""
    if cut.pages == 1:
        return None
    parts: list[object] = [f"{what} {cut.first + 1}–{cut.end} of {cut.total:,}"]
    for name, page in (("first", 1), ("before", cut.page - 1), ("next", cut.page + 1), ("last", cut.pages)):
        if 1 <= page <= cut.pages and page != cut.page:
            parts.append(tag("a", name, href=link(page)))
    return tag("p", parts, class_="pages")
