"""Links of the pages lead somewhere, and pictures are shown by one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.docs.anchors import anchor
from tests.support.tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
PICTURE_BYTES_MAX = 250_000
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_NAMED = re.compile(r'id="([^"]+)"')


@cache
def anchors(page: Path) -> frozenset[str]:
    """All places in a page that a link may name."""
    text = page.read_text("utf-8")
    return frozenset([*map(anchor, _HEADING.findall(text)), *_NAMED.findall(text)])


def broken(page: Path, text: str) -> list[str]:
    """The links in this text of a page that lead to no file, or to no place in one."""
    found = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # to another site
        file, _, place = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (place and target.suffix == ".md" and place not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """A page that is moved, and a heading that is renamed, takes its links along."""
    assert broken(page, page.read_text("utf-8")) == []


def unshown(pictures: Iterable[Path], texts: Iterable[str]) -> list[str]:
    """The pictures that no text of a page shows."""
    shown = {link.rpartition("/")[2] for text in texts for link in _PICTURE.findall(text)}
    return [each.name for each in pictures if each.name not in shown]


def test_pictures_are_shown_and_small() -> None:
    """A page shows each picture of docs/images, which everybody who clones has."""
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    assert pictures
    assert unshown(pictures, (page.read_text("utf-8") for page in PAGES)) == []
    assert [each.name for each in pictures if each.stat().st_size > PICTURE_BYTES_MAX] == []


def test_a_picture_that_is_not_shown_is_found() -> None:
    """One that is only linked to is not shown."""
    assert unshown([Path("a.png"), Path("b.png")], ["![a](../images/a.png) and [b](../images/b.png)"]) == ["b.png"]


def test_a_broken_link_is_found() -> None:
    """To a page, a heading of another page, and one of its own."""
    text = (
        "[a](docs/nothing.md), [b](docs/operate/cli.md#nothing), [c](#nothing), [d](docs/operate/cli.md), [e](#links)\n"
    )
    assert broken(ROOT / "README.md", text) == ["docs/nothing.md", "docs/operate/cli.md#nothing", "#nothing", "#links"]
