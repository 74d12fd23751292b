"""The push logs of earlier starts: there until nothing that they may have is unsealed. Made by unsealed.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.index.index import Index


class OldLogs:
    """Of one directory."""

    def __init__(self, files: Files, index: Index, segments: Iterable[Path], recorded: Collection[int]) -> None:
        """`recorded`: the incarnations of which the index says that their logs must be there."""
        self._files, self._index = files, index
        self._segments, self._recorded = list(segments), recorded
        #: what they take on the disk
        self.held_bytes = sum(map(files.held_bytes, self._segments))

    def remove(self) -> None:
        """Nothing is left of earlier starts. The word that their logs must be there goes first. Raises OSError."""
        if self._recorded:
            self._index.remove_logs(self._recorded)
            self._recorded = ()
        for path in self._segments:
            self._files.remove(path)
        self._segments, self.held_bytes = [], 0
