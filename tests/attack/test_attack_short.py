"""The short form of the resource attack; `tox -e attack` is the long one."""

from pathlib import Path

import pytest

from tests.attack.catalogue import ATTACKS
from tests.attack.run import ALL, attacked

#: What is measured here is the memory of servers as users start them.
pytestmark = [pytest.mark.real_starts, pytest.mark.timeout(1_200)]


def test_all_attacks_at_once_leave_an_honest_client_and_the_servers_well(tmp_path: Path) -> None:
    """Each attack a few times, however long the machine takes: what an honest client reads is exact, memory and
    descriptors of every server stay within what its host is asked to give and go back, no log has a traceback or is
    flooded. How fast the honest client is beside them is the long form's to promise."""
    report = attacked(tmp_path / "cluster", [ALL], 3.0, back_seconds=300.0, processes_max=2)
    assert not report.problems, str(report)
    (phase,) = report.phases
    assert sum(phase.counts.values()) >= len(ATTACKS), str(report)
