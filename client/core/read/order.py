"""What the core of a read asks about the copies of its files, and tells about the workers that it meets.

Rules: pure. The readers of a process share what they know (read_book.py, by reads.py); tests and the simulation read in
the order of the manifest. Called by fetch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.common.ids import WorkerId


class CopyOrder(Protocol):
    """Which copy is asked first."""

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Return all copies, the one to ask first first."""

    def failed(self, worker: WorkerId) -> None:
        """A read from it failed: it was out of reach, or what it answered or sent was of no use."""

    def slow(self, worker: WorkerId) -> None:
        """A rival that was asked later brought data first."""


class AsGiven:
    """The order of the manifest, whatever is met."""

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Return the copies."""
        return copies

    def failed(self, worker: WorkerId) -> None:
        """Does not matter."""

    def slow(self, worker: WorkerId) -> None:
        """Does not matter."""
