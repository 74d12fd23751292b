"""What was done and what came of it, in lines of JSON: one file for each process, written before anything else happens.

    {"t": 12.5, "who": "c1.0", "n": 7, "op": "commit", "app": …, "shuffle": 3, "generation": 0, …}     it begins
    {"t": 12.9, "who": "c1.0", "n": 7, "outcome": "ok"}                                                it ends

`t` is the machine's monotonic clock, the same in every process. An operation without an end was cut short by a kill, or
hangs. Outcomes: ok, exact, wrong, refused (with class, status and text of a typed error), bug (any other exception).
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.common.errors import HoldfastError

Line = dict[str, Any]


class Operation:
    """One that is under way: say what is known of it only at its end."""

    def __init__(self) -> None:
        self.outcome: Line = {"outcome": "ok"}

    def ends(self, outcome: str, **more: Any) -> None:
        """What came of it."""
        self.outcome = {"outcome": outcome, **more}


class History:
    """Appends to the file of one process; from any thread."""

    def __init__(self, path: Path, who: str) -> None:
        self.who = who
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count()
        self._guard = threading.Lock()
        #: what is under way: number -> (when it began, its line)
        self.open: dict[int, tuple[float, Line]] = {}

    def say(self, **line: Any) -> None:
        """Write a line; in one piece, whatever kills us."""
        reported = {"t": round(time.monotonic(), 4), "who": self.who, **line}
        os.write(self._fd, (json.dumps(reported) + "\n").encode())

    @contextmanager
    def operation(self, op: str, **names: Any) -> Iterator[Operation]:
        """Write the beginning and the end of an operation; what it raises goes on."""
        with self._guard:
            number = next(self._numbers)
            self.open[number] = time.monotonic(), {"op": op, **names}
        self.say(n=number, op=op, **names)
        one = Operation()
        try:
            yield one
        except HoldfastError as error:
            refusal = {"error": type(error).__name__, "status": error.status.name, "text": str(error)[:600]}
            one.outcome = {"outcome": "refused", **refusal}
            raise
        except BaseException:
            one.outcome = {"outcome": "bug", "text": traceback.format_exc()[-3000:]}
            raise
        finally:
            with self._guard:
                self.open.pop(number)
            self.say(n=number, **one.outcome)


def lines_of(path: Path) -> list[Line]:
    """Every whole line of a file; the last one of a killed process may be cut."""
    with open(path, "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]
