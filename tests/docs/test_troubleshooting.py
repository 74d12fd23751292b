"""docs/operate/troubleshooting.md has an anchor for every status, error class and code that people meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import holdfast.client
from holdfast.client import ConfigError, GiveUpError, HoldfastError, NoRoomError, StartError
from holdfast.common.errors import error_for
from holdfast.common.statuses import MEANINGS, Status
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "operate" / "troubleshooting.md"
JAVA = ROOT / "client" / "jvm" / "src" / "main" / "java"
_ANCHOR = re.compile(r'<a\s+id="(\w+)"></a>')
_JAVA_CLASS = re.compile(r"^[ \w]*class (\w+Exception) extends", re.MULTILINE)
#: Caught where it is thrown: readers make a HoldfastException of it.
INTERNAL = {"IncompleteException"}


def derived(texts: list[str], root: str) -> set[str]:
    """The class `root` and all that derive from it in these sources."""
    found, bases = {root}, [each for text in texts for each in _classes(text)]
    while more := {name for name, of in bases if not found.isdisjoint(of)} - found:
        found |= more
    return found


def _classes(text: str) -> Iterator[tuple[str, set[str]]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield node.name, {base.id for base in node.bases if isinstance(base, ast.Name)}


@cache
def expected() -> frozenset[str]:
    """Statuses, errors of common/errors.py, the clients and the plug-in, and codes of the masters' API."""
    sources = [path for part in ("common", "client") for path in (ROOT / part).rglob("*.py")]
    texts = [path.read_text("utf-8") for path in sources if "_pb2" not in path.name]
    java = [each for path in JAVA.rglob("*.java") for each in _JAVA_CLASS.findall(path.read_text("utf-8"))]
    codes = {meaning.code for meaning in MEANINGS.values()}
    return frozenset(
        {status.name for status in Status} | derived(texts, "HoldfastError") | (set(java) - INTERNAL) | codes
    )


def test_every_error_has_its_place() -> None:
    """None is missing, none is there twice, and none is there that the code does not have."""
    anchors = _ANCHOR.findall(PAGE.read_text("utf-8"))
    assert len(anchors) == len(set(anchors))
    assert set(anchors) == expected()


def test_every_error_leads_to_its_place() -> None:
    """`docs` of an error, of each status and of each class, is an anchor of the page; `code` is the more exact word."""
    assert [error_for(status).code for status in Status] == [status.name for status in Status]
    made = [*map(error_for, Status), *(made() for made in public_errors())]
    assert [each for each in made if each.docs not in {f"{PAGE.relative_to(ROOT)}#{name}" for name in expected()}] == []
    assert NoRoomError().code == "NO_ROOM"
    assert GiveUpError(status=Status.DISK_FAILED).code == "DISK_FAILED"
    assert (StartError().code, GiveUpError().code, ConfigError().code) == ("StartError", "GiveUpError", "ConfigError")


def public_errors() -> list[type[HoldfastError]]:
    """Those that users can import."""
    found = [getattr(holdfast.client, each) for each in holdfast.client.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, HoldfastError)]


def test_a_missing_error_is_found() -> None:
    """A class that derives from another one over two files is among those that are expected."""
    texts = ["class A(HoldfastError):\n    pass\n", "class B(A):\n    pass\n\nclass C(Exception):\n    pass\n"]
    assert derived(texts, "HoldfastError") == {"HoldfastError", "A", "B"}
    assert {"NO_ROOM", "StartError", "UnusableWorkersException", "unavailable"} <= expected()
