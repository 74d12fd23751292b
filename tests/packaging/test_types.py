"""The wheel has the types of the Python API. Needs mypy, which `tox -e type` has."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.test_wheel import build, copy_tree
from tests.support.tree import ROOT

PROGRAM = ROOT / "tests" / "packaging" / "user_program.py"


def test_a_program_is_checked_against_the_wheel(tmp_path: Path) -> None:
    """mypy --strict finds the types of each public call in an environment with the wheel, and each planted mistake: an
    ignore that nothing needs is an error."""
    pytest.importorskip("mypy", reason="needs mypy")
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools to build")
    copy_tree(tmp_path / "tree")
    build("wheel", tmp_path / "tree", tmp_path / "wheel")
    (wheel,) = (tmp_path / "wheel").iterdir()
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.read_text("utf-8"), "utf-8")
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    python = f"--python-executable={tmp_path / 'venv' / 'bin' / 'python'}"
    words = [sys.executable, "-m", "mypy", *options, python, program.name]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
