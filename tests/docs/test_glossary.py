"""The words of docs/internals/adr/0033-words.md are those of the code, and the glossary has what people meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.tree import PARTS, ROOT

ADR = ROOT / "docs" / "internals" / "adr" / "0033-words.md"
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


#: Part has the name of its message in the log; each of the others is of one file of storage and its tests.
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
    found = twice(classes())
    assert found.keys() == TWICE_ALLOWED, {name: found.get(name) for name in found.keys() ^ TWICE_ALLOWED}


def test_a_name_that_means_two_things_is_found() -> None:
    """Wherever the two are; a name that begins with _ is nobody else's concern."""
    assert twice({"a.py": {"Move", "_File"}, "b.py": {"Move", "_File"}}) == {"Move": ["a.py", "b.py"]}


def test_a_word_that_came_back_is_found() -> None:
    """So is a new word that nobody uses, and a file that kept its name."""
    planted = "| `Session` | `Sitting` | `client/session.py` |\n| `client/session.py` | `client/sitting.py` |\n"
    assert len(wrong(planted)) == 4


#: Old words, wherever they stand in a name; then those that are a whole name.
OLD_PARTS = frozenset({"told", "seat", "seats", "lane", "lanes", "fate", "fates"})
OLD_NAMES = frozenset(
    {"bits", "heads", "leaving", "readings", "reads", "room", "rooms", "turned_away", "why", "why_not"}
)
#: Old names that stay, by file: fields of messages keep their numbers and their names.
NAMES_ALLOWED = {
    ("master/api/admin.py", "why"): "a field of holdfast.proto",
    ("master/api/shuffles.py", "room"): "a field of holdfast.proto",
    ("master/fleet/fleet.py", "why"): "a field of holdfast.proto",
    ("tools/cli/records.py", "why"): "a field of holdfast.proto",
    ("worker/server/membership/registration.py", "leaving"): "a field of holdfast.proto",
}
#: To be written anew with what comes next.
FOLDERS_ALLOWED = ("worker/storage/",)
_JAVA_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.DOTALL)
_PARTS_OF_NAME = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


def is_old(name: str) -> bool:
    """Whether a name is, or has in it, one of the old words."""
    parts = {part.lower() for part in _PARTS_OF_NAME.findall(name)}
    return name.strip("_").lower() in OLD_NAMES or not parts.isdisjoint(OLD_PARTS)


def names_given(text: str) -> Iterator[str]:
    """The names that Python code gives: to what it defines, to what it stores in, and to what it passes."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=str(name)) | ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name


def old_names(path: str, text: str) -> set[tuple[str, str]]:
    """Old words in the names of a file: its own, and those that it gives; in Java those that it uses, too."""
    names = names_given(text) if path.endswith(".py") else re.findall(r"[A-Za-z_]\w*", _JAVA_NO_CODE.sub(" ", text))
    return {(path, name) for name in (*names, path.rpartition("/")[2].partition(".")[0]) if is_old(name)}


def test_no_name_has_an_old_word() -> None:
    """Names of the packages and of the plug-in say what they hold; what stays has a reason, and goes if it is gone."""
    sources = [path for part in PARTS for path in (ROOT / part).rglob("*") if path.suffix in {".py", ".java"}]
    found = set[tuple[str, str]]()
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith((*FOLDERS_ALLOWED, "client/jvm/src/test/")) and not path.stem.endswith("_pb2"):
            found |= old_names(name, path.read_text("utf-8"))
    assert found == NAMES_ALLOWED.keys()


def test_folders_that_may_have_old_words_have_them() -> None:
    """A folder whose names are the field's leaves the list, so that they stay so."""
    for folder in FOLDERS_ALLOWED:
        texts = {path.as_posix(): path.read_text("utf-8") for path in (ROOT / folder).rglob("*.py")}
        assert any(old_names(path, text) for path, text in texts.items()), folder


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("a.py", "def f(*, told_by=1): ...", "told_by"),
        ("a.py", "class Fates: ...", "Fates"),
        ("a.py", "self._lanes: int = 1", "_lanes"),
        ("a.py", "f(why=1)", "why"),
        ("a.py", "with f() as rooms: ...", "rooms"),
        ("a.py", "from b import c as seat", "seat"),
        ("worker/reads.py", "", "reads"),
        ("A.java", 'String x = "told"; /* lane */ int why = 1; // seat', "why"),
        ("Lane.java", "", "Lane"),
    ],
)
def test_an_old_name_is_found(path: str, text: str, name: str) -> None:
    """Whatever it is the name of; texts and comments are no names."""
    assert old_names(path, text) == {(path, name)}


def test_names_of_the_field_are_no_old_ones() -> None:
    """Words that only begin as old ones do, and attributes that are read of messages, are left alone."""
    assert old_names("a.py", "planes = reply.why; breadth = thread = 1; total = tolder(seated)") == set()


def test_the_glossary_has_each_word_once() -> None:
    """No word is explained twice, and each has a column for Spark, Celeborn and Uniffle."""
    lines = [line for line in GLOSSARY.read_text("utf-8").splitlines() if re.match(r"\|[^-]", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(rows) > 20
    assert {len(row) for row in rows} == {5}
    words = [row[0] for row in rows[1:]]
    assert len(set(words)) == len(words)
    assert {"epoch", "commit", "fetch lease", "credentials", "drain"} <= {
        word for row in words for word in row.split(", ")
    }
