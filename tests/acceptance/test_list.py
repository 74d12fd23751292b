"""tests/acceptance/promises.md and the tests name each other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_NUMBERED = re.compile(r"test_(?:row_\d+|g\d+|a\d+)_\w+")


def named_in(path: Path) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_test_of_the_list_exists_and_every_numbered_test_is_listed() -> None:
    """No row points at a test that was renamed or removed, and no test with a row, gap or attack in its name is
    left out. Rows in the tests of Raft are those of another list."""
    named = set(_NAMED.findall((ROOT / "tests/acceptance/promises.md").read_text("utf-8")))
    assert len(named) > 30
    gone = sorted(f"{file}::{name}" for file, name in named if name not in named_in(ROOT / file))
    assert not gone, f"tests/acceptance/promises.md names what is not there: {gone}"
    numbered = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.parent.name != "raft"
        for name in named_in(path)
        if _NUMBERED.fullmatch(name)
    }
    assert not numbered - named, f"tests/acceptance/promises.md does not list {sorted(numbered - named)}"
