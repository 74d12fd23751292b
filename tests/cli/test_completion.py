"""Shells complete commands, options and choices."""

import os
import shutil
import subprocess

import pytest

from holdfast.tools.cli import main
from holdfast.tools.cli.main import COMMANDS
from tests.cli.test_commands import COMMAND, SECONDS_MAX


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]):
    """It asks `holdfast`, by the variable that click looks at; bash takes it where bash is there."""
    assert main.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in script
    if shutil.which(shell) and shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=SECONDS_MAX)


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environ = {**os.environ, "_HOLDFAST_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
    environ["COMP_WORDS"] = " ".join(("holdfast", *words))
    done = subprocess.run(COMMAND, check=True, capture_output=True, text=True, env=environ, timeout=SECONDS_MAX)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_words_are_completed():
    """Commands by how they begin, all of them for nothing, then a command's options and choices."""
    assert completed("dr") == ["drain", "drill"]
    assert completed("") == list(COMMANDS)
    assert "--watch" in completed("workers", "--w")
    assert completed("workers", "--state", "l") == ["lost"]
