"""An environment with what `pip install holdfast` brings and nothing else, made without an index: the distributions
that the metadata asks for are linked from this environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from tests.support.tree import ROOT

_NAME = re.compile(r"[\w.-]+")


def needed(name: str, extra: str = "") -> set[str]:
    """Names of the distributions that this one asks for, and those that these ask for."""
    found: set[str] = set()
    for line in distribution(name).requires or ():
        wanted, _, marker = line.partition(";")
        if "extra ==" in marker and not (extra and re.search(rf"""extra == ["']{extra}["']""", marker)):
            continue
        match = _NAME.match(wanted)
        assert match is not None
        if match[0] != "holdfast" and match[0] not in found:
            found |= {match[0], *needed(match[0])}
    return found


def make(directory: Path) -> Path:
    """Make it, and return the folder for `sys.path`."""
    site = directory / "site"
    (site / "holdfast").mkdir(parents=True)
    for path in (ROOT / "holdfast").iterdir():
        if path.name != "__pycache__":
            (site / "holdfast" / path.name).symlink_to(path.resolve())
    for name in needed("holdfast"):
        for top in _tops(distribution(name)):
            target = site / top.name
            if not target.exists():
                if top.name == "google":  # others put packages of theirs there, too
                    target.mkdir()
                    (target / "protobuf").symlink_to(top / "protobuf")
                    (target / "_upb").symlink_to(top / "_upb")
                else:
                    target.symlink_to(top)
    return site


def _tops(found: Distribution) -> Iterator[Path]:
    """Folders and modules of a distribution."""
    for file in found.files or ():
        first = file.parts[0]
        if first not in {"..", "__pycache__"}:
            yield Path(str(found.locate_file(first)))
