"""How the main job talks: one line per event with the time since the start, and a table of where the time went."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.tools.cli.output import console, in_seconds, table

_JAVAS = ("17", "21")


class Story:
    """Prints what happens, with the time since the start, and remembers how long each part took."""

    def __init__(self) -> None:
        self.screen = console()
        self.started = time.monotonic()
        self.parts: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        """One line of the story."""
        self.screen.print(f"[dim]{time.monotonic() - self.started:6.1f} s[/]  {text}", soft_wrap=True)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens inside under this name."""
        began = time.monotonic()
        yield
        self.parts.append((name, time.monotonic() - began))

    def took(self, name: str) -> float:
        """Seconds that a part took."""
        return dict(self.parts)[name]

    def times(self) -> None:
        """Print where the time went."""
        total = time.monotonic() - self.started
        rows = [(name, in_seconds(seconds), f"{seconds / total:.0%}") for name, seconds in self.parts]
        self.screen.print(table(("where the time went", "#time", "#share"), [*rows, ("in all", in_seconds(total), "")]))


def java_problem() -> str:
    """A sentence on what is wrong with the Java that Spark would use; "" if it can be used."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    try:
        command = [java or "java", "-XshowSettings:properties", "-version"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        where = f"in JAVA_HOME, {home}" if home else "on the PATH"
        return f"no Java runs {where}: install a JDK 17 or 21, or set JAVA_HOME to one."
    found = re.search(r"java\.specification\.version = ([\d.]+)", text)
    version = found[1] if found else "of an unknown version"
    if version in _JAVAS:
        return ""
    return f"{java} is Java {version}, but Spark 4.1 runs on 17 and 21: set JAVA_HOME to one of these."
