"""What mkdocs.yml leaves to Python: the navigation, the first page, and text as GitHub reads it.

* The navigation has a shelf for each folder: pages in the order below if they exist, then all others by name.
* The first page is README.md of the repository.
* Links to folders, and to files outside docs/, become plain text, except those that lead nowhere: the strict build
  then fails.
* Lists may follow a paragraph directly and indent by two or three spaces, and anchors are GitHub's; Python-Markdown
  has other rules for these.

Called by MkDocs (`tox -e site`).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tests.docs.anchors import anchor

ROOT = Path(__file__).parents[2]
#: Pages of the long shelves, in the order in which people need them.
OPERATE = """
deployment sizing configuration operations security monitoring runbooks troubleshooting doctor drills upgrade
migration kubernetes placement storage failure_model cli metrics log_events
"""
INTERNALS = "journey control_plane raft worker protocol disk_format performance testing simulator planted_mistakes"
#: Title of a shelf, its folder, and its pages.
SHELVES: tuple[tuple[str, str, str], ...] = (
    ("Use", "use", "choosing python spark recipes api"),
    ("Operate", "operate", OPERATE),
    ("Internals", "internals", INTERNALS),
    ("Decisions", "internals/adr", ""),
)
FIRST = "index.md"
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"( *)(?:[*+-]|\d+\.) +\S")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def navigation(docs: Path) -> list[dict[str, Any]]:
    """The pages that are there, by shelf."""
    shelves: list[dict[str, Any]] = [{"Home": FIRST}]
    for title, folder, order in SHELVES:
        wanted = order.split()
        there = sorted(path.stem for path in (docs / folder).glob("*.md") if path.name != "0000-template.md")
        pages = [name for name in wanted if name in there] + [name for name in there if name not in wanted]
        named = [{title_of(docs / folder / f"{name}.md"): f"{folder}/{name}.md"} for name in pages]
        if title == "Internals":
            named.insert(0, {"Architecture": "ARCHITECTURE.md"})
        shelves.append({title: named})
    shelves.append({"Glossary": "glossary.md"})
    return shelves


def title_of(page: Path) -> str:
    """The first heading of a page, else its name."""
    found = _TITLE.search(page.read_text("utf-8"))
    return found[1].replace("`", "") if found else page.stem.replace("_", " ").capitalize()


def inside(text: str, page: str, source: Path) -> str:
    """Links of a page of docs/ that lead to a file or folder elsewhere are their text alone."""

    def mended(match: re.Match[str]) -> str:
        words, link = match[1], match[2]
        target, mark, place = link.partition("#")
        if not target or re.match(r"[a-z]+:", link):
            return match[0]
        path = (source / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT / "docs"):
            away = posixpath.relpath(path.relative_to(ROOT / "docs").as_posix(), posixpath.dirname(page) or ".")
            return f"[{words}]({away}{mark}{place})"
        return words if path.exists() else match[0]

    return _LINK.sub(mended, text)


def lists(text: str) -> str:
    """An empty line before each list and table, and four spaces for each level of a list."""
    out: list[str] = []
    levels: list[int] = []  # of each list under way: the column of its text
    fenced = paragraph = False
    for line in text.splitlines():
        bare = line.lstrip()
        indent = len(line) - len(bare)
        fence = bare.startswith("```")
        item = None if fenced else _ITEM.match(line)
        begun = bool(levels)
        if bare and not fenced and not (paragraph and not item and not fence):
            levels = [column for column in levels if column <= indent]
        if item and indent - (levels[-1] if levels else 0) >= 4:
            item = None  # code
        if paragraph and ((item and not begun) or bare.startswith("|")):
            out.append("")
        rest = 0 if item else max(indent - (levels[-1] if levels else 0), 0)
        out.append(" " * (4 * len(levels) + rest) + bare if bare else "")
        if item:
            levels.append(len(item[0]) - 1)
        paragraph = bool(bare) and not fenced and not fence and not bare.startswith(("#", "|"))
        fenced = fenced != fence
    return "\n".join(out) + "\n"


def on_config(config: Any) -> Any:
    """Set the navigation, and anchors as the links of the pages have them."""
    config.nav = navigation(Path(config.docs_dir))
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda heading, _: anchor(heading)
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the first page."""
    text = (ROOT / "README.md").read_text("utf-8")
    files.append(File.generated(config, FIRST, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page as Python-Markdown reads it."""
    uri = page.file.src_uri
    source = ROOT if uri == FIRST else (ROOT / "docs" / uri).parent
    return lists(inside(markdown, uri, source))
