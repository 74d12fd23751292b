"""The short form of the resource attack; `tox -e attack` is the long one."""

from pathlib import Path

import pytest

from tests.attack.run import ALL, attacked

#: What is measured here is the memory of servers as users start them.
pytestmark = pytest.mark.real_starts


def test_all_attacks_at_once_leave_an_honest_client_and_the_servers_well(tmp_path: Path) -> None:
    """For three seconds: what an honest client reads is exact, memory and descriptors of every server stay within what
    its host is asked to give and go back, no log has a traceback or is flooded."""
    report = attacked(tmp_path / "cluster", [ALL], 3.0)
    assert report.problems == []
    (phase,) = report.phases
    assert sum(phase.counts.values()) > 0
