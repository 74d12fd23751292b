"""`./run`: what is missing on a machine is said in one sentence, with what to do, and exit status 2.

Each test gives the real script a PATH of its own with a few real tools and whatever it wants to be found there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

REAL_TOOLS = ("sh", "sed", "dirname", "readlink", "cat")
JAVA = "#!/bin/sh\necho '    java.specification.version = {}' >&2\n"
PYTHON = "#!/bin/sh\ncase $2 in *{}*) exit 1 ;; esac\n"


class Machine:
    """A bare machine: a directory that is its whole PATH."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        for tool in REAL_TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (directory / tool).symlink_to(found)

    def install(self, name: str, text: str) -> Path:
        """Put an executable script on the PATH."""
        script = self.path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, "utf-8")
        script.chmod(0o755)
        return script

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Call the script with this machine's PATH and no other environment."""
        return subprocess.run(
            [str(ROOT / "run"), *arguments],
            env={"PATH": str(self.path), **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def python():
    """The Python that runs this, as a machine's own."""
    return os.path.realpath(sys.executable)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal."""
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize("command", ["demo", "tests"])
def test_missing_python(machine, command):
    """No Python at all, or only an old one, is said."""
    assert sentence(machine.run(command)).startswith("run: no Python 3.11 or newer found: install python3.11")
    machine.install("python3", PYTHON.format("version_info"))
    assert "no Python 3.11 or newer found" in sentence(machine.run(command))


def test_missing_venv_module(machine):
    """A Python without venv, as Debian ships it, is said with the package that brings it."""
    machine.install("python3.11", PYTHON.format("ensurepip"))
    assert "apt install python3-venv" in sentence(machine.run("tests"))


def test_missing_java(machine, python):
    """No Java is said with the versions that will do."""
    assert sentence(machine.run("demo", PYTHON=python)).startswith("run: no Java found: install a JDK 17 or 21")


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_wrong_java(machine, python, version):
    """A Java that Spark does not run on is said with its version and where it was found."""
    java = machine.install("java", JAVA.format(version))
    assert sentence(machine.run("tests", PYTHON=python)).startswith(f"run: {java} is Java {version}, but Spark")


def test_java_home_is_honoured(machine, python):
    """JAVA_HOME wins over the PATH, and a wrong one is said, even where the PATH would have done."""
    machine.install("java", JAVA.format("17"))
    assert "there is no bin/java in it" in sentence(machine.run("tests", PYTHON=python, JAVA_HOME="/nowhere"))
    machine.install("old/bin/java", JAVA.format("11"))
    reported = sentence(machine.run("tests", PYTHON=python, JAVA_HOME=str(machine.path / "old")))
    assert f"{machine.path}/old/bin/java is Java 11" in reported


def test_unknown_command_and_help(machine):
    """Help tells the two commands; a command that is none is refused with them."""
    assert "./run demo" in machine.run().stdout
    assert machine.run("help").returncode == 0
    refused = machine.run("test")
    assert refused.returncode == 2
    assert 'there is no command "test": use demo, tests or help.' in refused.stderr
