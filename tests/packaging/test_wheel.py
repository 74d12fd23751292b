"""The wheel and the tree hold the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.tree import PARTS, ROOT

#: What the packages have beside Python: types, protobuf, the page's templates and style, and the plug-in's sources.
_DATA = {".pyi", ".typed", ".proto", ".css", ".html", ".js"}
_OTHERS = ("README.md", "LICENSE", "pyproject.toml")


def wanted() -> set[str]:
    """Every file of the tree that an installed Holdfast needs."""
    found = {"holdfast/__init__.py", "holdfast/py.typed"}
    for part in PARTS:
        for path in (ROOT / part).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            java = path.suffix == ".java" and not name.startswith("client/jvm/src/test/")
            if "__pycache__" not in name and (path.suffix in {".py", *_DATA} or path.name == "py.typed" or java):
                found.add(f"holdfast/{name}")
    return found


@pytest.mark.parametrize("way", ["tree", "sdist"])
def test_the_wheel_holds_every_package(way: str, tmp_path: Path) -> None:
    """A wheel made from the tree, or from a source distribution of it, has each file of the packages and no test."""
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools to build")
    source = tmp_path / "tree"
    copy_tree(source)
    if way == "sdist":
        build("sdist", source, tmp_path / "sdist")
        (packed,) = (tmp_path / "sdist").iterdir()
        shutil.unpack_archive(packed, tmp_path / "unpacked", filter="data")
        (source,) = (tmp_path / "unpacked").iterdir()
    build("wheel", source, tmp_path / "wheel")
    (wheel,) = (tmp_path / "wheel").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert wanted() == {name for name in names if "/prebuilt/" not in name}


def copy_tree(target: Path) -> None:
    """Copy what a build needs."""
    target.mkdir()
    for name in (*PARTS, "holdfast"):
        shutil.copytree(
            ROOT / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "prebuilt")
        )
    for name in _OTHERS:
        shutil.copy(ROOT / name, target / name)


def build(what: str, source: Path, out: Path) -> None:
    """Call the build backend as pip does, with what is installed here."""
    out.mkdir()
    program = f"from setuptools.build_meta import build_{what} as build; build({str(out)!r})"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, cwd=source, timeout=120)
