"""docs/journey.md and docs/ARCHITECTURE.md name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tree import ROOT

_JAVA = ROOT / "client/jvm/src/main/java/org/apache/spark/shuffle/holdfast"
_FILE = re.compile(r"`((?:common|master|worker|client|tools)/[\w./-]+|(?:\w+/)*\w+\.java)(?:::(\w+))?`")


def missing(text: str) -> list[str]:
    """What of the named files and functions is not there."""
    found = []
    for name, function in _FILE.findall(text):
        path = _JAVA / name if name.endswith(".java") and not (ROOT / name).exists() else ROOT / name
        if not path.exists():
            found.append(name)
        elif function and not has(path, function):
            found.append(f"{name}::{function}")
    return found


def has(path: Path, function: str) -> bool:
    """Whether the file has a function or class of that name."""
    if path.suffix == ".java":
        return re.search(rf"\b{function}\(", path.read_text("utf-8")) is not None
    return re.search(rf"^\s*(?:async )?(?:def|class) {function}\b", path.read_text("utf-8"), re.MULTILINE) is not None


@pytest.mark.parametrize("page", ["journey.md", "ARCHITECTURE.md"])
def test_what_is_named_exists(page: str) -> None:
    """Each file and each `file::function` of the page is there."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert missing(text) == []


def test_what_does_not_exist_is_found() -> None:
    """A file that is gone and a function that was renamed are found, in both languages."""
    named = "`worker/core/none.py` `client/session.py::Session` `client/session.py::none` `push/Pusher.java::none`"
    assert missing(named) == ["worker/core/none.py", "client/session.py::none", "push/Pusher.java::none"]


def test_the_journey_names_functions() -> None:
    """The main path is followed function by function."""
    text = (ROOT / "docs" / "journey.md").read_text("utf-8")
    assert sum(bool(function) for _, function in _FILE.findall(text)) > 30
