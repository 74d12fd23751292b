"""The short form of the fuzz run; `tox -e fuzz` is the long one."""

import asyncio
from pathlib import Path

from tests.fuzz.run import fuzz


def test_mutated_and_hostile_frames_do_no_harm(tmp_path: Path) -> None:
    """2,000 mutated frames, 5,000 well-formed ones with hostile values, and all that ever did harm: typed errors or
    closed connections, memory flat, data whole, no process lost."""
    report = asyncio.run(fuzz(2_000, 5_000, 40, 7, tmp_path / "cluster"))
    assert report.problems == []
    assert report.answers > 500
