"""Phrases that the documentation and the texts of the command line do not use: others say it shorter and plainer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tree import ROOT

#: What is never right in these texts, and what to write.
PHRASES = {
    r"as (it|they) should be": "name the wanted state",
    r"for want of": "without, because there is no",
    r"\bof nobody\b": "that belongs to no …",
    r"(gone|lost|stays?) for good|\bfor good\b": "permanently",
    r"\bwhoever\b": "a user who, a process that",
    r"\bin one go\b": "in one step",
    r"\bthat (are|is) left\b": "remaining",
    r"\ba while\b": "name the time, or: some time",
    r"\b(is|are) told\b": "gets, receives, learns",
    r"what was asked for": "the requested …",
    r"\b(page|log|message|file|server|master|worker|level|setting|field|column|line|answer|error)s? says?\b": (
        "shows, reports, lists, sets"
    ),
}
_FORBIDDEN = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
#: Code, and names in it, are no prose.
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^    .*$", re.DOTALL | re.MULTILINE)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "adr"),
]
PROGRAMS = sorted(path for folder in ("cli", "doctor") for path in (ROOT / "tools" / folder).rglob("*.py"))


def found_in(text: str) -> list[str]:
    """The phrases of a text that are not to be used."""
    return [found[0] for found in _FORBIDDEN.finditer(re.sub(r"\s+", " ", text))]


def texts_of(source: str) -> Iterator[str]:
    """Texts of a program: what it prints, and its help, which is in docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_use_plain_phrases(page: Path) -> None:
    """No page has a phrase of the list; the ADRs are a record and stay as they were written."""
    assert found_in(_CODE.sub(" ", page.read_text("utf-8"))) == []


def test_the_command_line_uses_plain_phrases() -> None:
    """Neither do help, answers and findings of commands."""
    texts = {path: list(texts_of(path.read_text("utf-8"))) for path in PROGRAMS}
    assert {(path.name, each) for path, those in texts.items() for text in those for each in found_in(text)} == set()


@pytest.mark.parametrize("text", ["It\nis told.", "Whoever has it", "the log says", "It is gone for good."])
def test_a_phrase_is_found(text: str) -> None:
    """Also over the end of a line, and whatever its case; a phrase in code is none."""
    assert found_in(text)
    assert not found_in(_CODE.sub(" ", f"a `{text.splitlines()[0]} a while`\n\n    in one go\n"))
