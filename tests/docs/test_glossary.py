"""The words of docs/adr/0033-words.md are those of the code, and the glossary has what people meet."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.tree import PARTS, ROOT

ADR = ROOT / "docs" / "adr" / "0033-words.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| `([\w/.]+)` \|$", re.MULTILINE)
_FILES = re.compile(r"^\| `([\w/]+\.py)` \| `([\w/]+\.py)` \|$", re.MULTILINE)


@cache
def classes() -> dict[str, set[str]]:
    """Names of the classes of each file of the packages."""
    found = {}
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            if not path.stem.endswith("_pb2"):
                tree = ast.parse(path.read_text("utf-8"))
                names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
                found[path.relative_to(ROOT).as_posix()] = names
    return found


def wrong(text: str) -> list[str]:
    """Old words that are still there, or again, and new ones that are nowhere."""
    found = [f"{old} is still in {file}" for old, _, file in _ROW.findall(text) if old in classes().get(file, set())]
    found += [f"{new} is not in {file}" for _, new, file in _ROW.findall(text) if new not in classes().get(file, set())]
    for old, new in _FILES.findall(text):
        found += [f"{old} is still there"] if (ROOT / old).exists() else []
        found += [f"{new} is not there"] if not (ROOT / new).exists() else []
    return found


def test_words_are_those_of_the_code() -> None:
    """No class or file has an old name, and each new name is where the list says."""
    text = ADR.read_text("utf-8")
    assert len(_ROW.findall(text)) > 30
    assert len(_FILES.findall(text)) > 15
    assert wrong(text) == []


#: Of storage, until it is made anew; the last one has the name of its message in the log.
TWICE_ALLOWED = {"Part", "Pending", "Segment"}


def twice(found: dict[str, set[str]]) -> dict[str, list[str]]:
    """Names of classes that mean several things, and where; what begins with _ is of its file alone."""
    places: dict[str, list[str]] = {}
    for file, names in found.items():
        for name in names:
            if not name.startswith("_"):
                places.setdefault(name, []).append(file)
    return {name: files for name, files in places.items() if len(files) > 1}


def test_a_name_means_one_thing() -> None:
    """No two modules of the packages have a class of the same name."""
    assert twice(classes()).keys() == TWICE_ALLOWED


def test_a_name_that_means_two_things_is_found() -> None:
    """Wherever the two are; a name that begins with _ is nobody else's concern."""
    assert twice({"a.py": {"Move", "_File"}, "b.py": {"Move", "_File"}}) == {"Move": ["a.py", "b.py"]}


def test_a_word_that_came_back_is_found() -> None:
    """So is a new word that nobody uses, and a file that kept its name."""
    planted = "| `Session` | `Sitting` | `client/session.py` |\n| `client/session.py` | `client/sitting.py` |\n"
    assert len(wrong(planted)) == 4


def test_the_glossary_has_each_word_once() -> None:
    """No word is explained twice, and each has a column for Spark, Celeborn and Uniffle."""
    rows = [line.split(" | ") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {5}
    words = [row[0].strip("| ") for row in rows[1:]]
    assert len(set(words)) == len(words)
    assert {"epoch", "commit", "fetch lease", "credentials", "drain"} <= {
        word for row in words for word in row.split(", ")
    }
