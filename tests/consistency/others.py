"""What the histories of all clients tell those who read, commit or take over what is not theirs. Only what is new is
read each time: histories get long."""

from __future__ import annotations

import json
from pathlib import Path

from tests.consistency.history import Line


class Tail:
    """The lines of a file that were not there the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def news(self) -> list[Line]:
        """Every whole line since the last call."""
        with open(self._path, "rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class Others:
    """Applications, their committed generations and what is offered for a commit. One thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tails: dict[Path, Tail] = {}
        self._begun: dict[tuple[str, int], Line] = {}
        #: (application, shuffle, generation) -> its line; neither forgotten nor dropped, as far as was heard
        self._committed: dict[tuple[str, int, int], Line] = {}
        #: application -> instance
        self.instances: dict[str, str] = {}
        #: (who, what it said) since the last look
        self.offers: list[Line] = []

    def look(self) -> None:
        """Hear what is new."""
        self.offers.clear()
        for path in sorted(self._directory.glob("c*.history")):
            for line in self._tails.setdefault(path, Tail(path)).news():
                self._hear(line)

    def committed(self) -> list[Line]:
        """The generations that can be read, with the instance of each."""
        return [
            {**line, "instance": self.instances[app]}
            for (app, *_), line in self._committed.items()
            if app in self.instances
        ]

    def _hear(self, line: Line) -> None:
        if line.get("say") == "offers":
            self.offers.append(line)
        match line.get("op"):
            case "forget":
                self._committed.pop((line["app"], line["shuffle"], line["generation"]), None)
            case "drop":
                for key in [key for key in self._committed if key[0] == line["app"]]:
                    del self._committed[key]
            case "open" if not line["attach"]:
                self._begun[line["who"], line["n"]] = line
            case "manifest":
                self._begun[line["who"], line["n"]] = line
            case None if "outcome" in line:
                began = self._begun.pop((line["who"], line["n"]), None)
                if began is not None and line["outcome"] == "ok":
                    self._ended(began, line)

    def _ended(self, began: Line, line: Line) -> None:
        app = began["app"]
        if began["op"] == "open":
            self.instances[app] = line["instance"]
            return
        for before in range(began["generation"]):  # a commit of a newer generation drops the older ones
            self._committed.pop((app, began["shuffle"], before), None)
        self._committed[app, began["shuffle"], began["generation"]] = began
