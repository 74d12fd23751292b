"""What a command shows on a terminal, and its picture: an SVG whose text stays text."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import termios
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from xml.etree import ElementTree

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COLUMNS = 120
_ROWS = 80
#: No picture asks another host for a font.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
#: Of a character, in the units of rich's pictures.
_COLUMN_WIDTH = 12.2
_LINE = re.compile(r"line-(\d+)\)$")


def typed(words: Sequence[str], masters: str = "") -> str:
    """Run `holdfast WORDS` on a terminal of COLUMNS columns; return what it wrote to standard output, with colours."""
    here, there = pty.openpty()
    try:
        termios.tcsetwinsize(there, (_ROWS, COLUMNS))
        command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", *words]
        environ = {**os.environ, "TERM": "xterm-256color", "HOLDFAST_MASTERS": masters}
        nothing = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=nothing, stdout=there, stderr=nothing, env=environ) as child:
            os.close(there)
            written = b""
            with suppress(OSError):  # EIO: nobody writes any more
                while got := os.read(here, 1 << 16):
                    written += got
            assert child.wait() == 0, (words, written.decode())
    finally:
        os.close(here)
    return written.decode().replace("\r\n", "\n")


def drawn(words: Sequence[str], shown: str) -> str:
    """The SVG of a command and what it showed."""
    name = "-".join(words)
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen.print(Text(f"$ holdfast {' '.join(words)}", "bold"), Text.from_ansi(shown.rstrip()), sep="\n")
    return screen.export_svg(title="", code_format=_FORMAT, unique_id=re.sub(r"[^a-z]+", "-", name))


def lines_of(svg: str) -> list[str]:
    """The lines of text that a picture shows, without those that are empty. Raises ParseError."""
    lines: dict[int, str] = defaultdict(str)
    for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if found := _LINE.search(each.get("clip-path", "")):
            number, column = int(found[1]), round(float(each.get("x", "0")) / _COLUMN_WIDTH)
            lines[number] = lines[number].ljust(column) + (each.text or "").replace("\N{NO-BREAK SPACE}", " ")
    return [lines[number].rstrip() for number in sorted(lines) if lines[number].strip()]
