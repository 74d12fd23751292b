"""What a machine is called."""

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.common.system.machine import _APPLICATION, MACHINE_ID, this_machine


def test_it_is_hashed_as_systemd_hashes(tmp_path: Path) -> None:
    """The same digits as `systemd-id128 machine-id --app-specific=` for this id, and nothing of the id itself."""
    own = "3d1219c7c4c5404aaa1f6d2a48adfda4"
    (tmp_path / "machine-id").write_text(own + "\n")
    assert this_machine(tmp_path / "machine-id") == "b73d107648424637ba2b9d01ba658299"


@pytest.mark.skipif(not shutil.which("systemd-id128") or not this_machine(), reason="needs systemd and a machine id")
def test_systemd_says_the_same_of_this_machine() -> None:
    """What is told to masters can be had from systemd, for whoever wants to compare."""
    command = ["systemd-id128", "machine-id", f"--app-specific={_APPLICATION.hex}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert this_machine(MACHINE_ID) == said.strip()


@pytest.mark.parametrize("text", [None, "", "uninitialized\n", "0" * 32, "x" * 32, "ab"])
def test_a_machine_without_an_id_has_none(text: str | None, tmp_path: Path) -> None:
    """A file that is missing, empty, not filled yet or no id is no id, and no error."""
    if text is not None:
        (tmp_path / "machine-id").write_text(text)
    assert this_machine(tmp_path / "machine-id") == ""
