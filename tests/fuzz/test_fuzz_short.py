"""The short form of the fuzz run; `tox -e fuzz` is the long one."""

import asyncio
from pathlib import Path

from tests.fuzz.run import fuzz


def test_two_thousand_mutated_frames_do_no_harm(tmp_path: Path) -> None:
    """Typed errors or closed connections, memory flat, data whole, no process lost."""
    report = asyncio.run(fuzz(2_000, 7, tmp_path / "cluster"))
    assert report.problems == []
    assert report.answers > 500
