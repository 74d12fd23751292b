"""Finds what the documentation tells people to type: lines of shells, and blocks of Python."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.tree import ROOT

#: What a command of ours begins with.
_TYPED = re.compile(r"(?:holdfast|tox|\./run|python3? -m) ")
_LINE = re.compile(
    r"`([^`\n]+)`|^(?:    )?(?:\$ )?((?:holdfast|tox|\./run|python3? -m|pip|export) [^\n]*)$", re.MULTILINE
)
_PYTHON = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_OPERATORS = {"&&", "||", "|", ";", ">", ">>", "&"}


@dataclass(frozen=True)
class Command:
    """One command, as somebody would type it."""

    source: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source}: {' '.join(self.words)}"


@dataclass(frozen=True)
class Block:
    """One block of Python."""

    source: str
    text: str

    def __str__(self) -> str:
        return self.source


@cache
def pages() -> tuple[Path, ...]:
    """Every page that people read; the changelog tells of the past."""
    roots = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(path for path in roots if path.name != "0000-template.md")


@cache
def commands() -> tuple[Command, ...]:
    """Each command once, with the first place where it stands."""
    found: dict[tuple[str, ...], Command] = {}
    for path in pages():
        text = path.read_text("utf-8")
        for match in _LINE.finditer(text):
            line = (match[1] or match[2] or "").strip().removeprefix("$ ")
            if _TYPED.match(line):
                number = text.count("\n", 0, match.start()) + 1
                for words in _split(line):
                    source = f"{path.relative_to(ROOT)}:{number}"
                    found.setdefault(words, Command(source, words))
    return tuple(found.values())


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of one line, without what redirects them and without variables set for them."""
    lexer = shlex.shlex(line.replace("\\|", "/"), posix=True, punctuation_chars="&|;>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _OPERATORS:
            if words and _TYPED.match(" ".join(words) + " "):
                yield tuple(words)
            words, skip = [], word in (">", ">>")
        elif not skip and not (not words and "=" in word):
            words.append(word)


@cache
def blocks() -> tuple[Block, ...]:
    """Every block of Python."""
    found = []
    for path in pages():
        text = path.read_text("utf-8")
        for match in _PYTHON.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            lines = [line.removeprefix(match[1]) for line in match[2].splitlines()]
            found.append(Block(f"{path.relative_to(ROOT)}:{number}", "\n".join(lines) + "\n"))
    return tuple(found)


def undefined(tree: ast.Module) -> set[str]:
    """Names that a block uses and does not make: what must have been there before. Near enough for examples."""
    made: set[str] = set(dir(builtins))
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
    return used - made
