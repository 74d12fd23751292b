"""The short form of `tox -e soak`."""

from tests.soak.run import soak


def test_count_and_sums_are_exact_whatever_is_killed_or_lost(tmp_path):
    """A million records with workers killed and answers lost or late: every partition holds exactly its own."""
    report = soak(1_000_000, 1, tmp_path, kill_every=1.5, fault_rate=0.01, late_seconds=0.5, swallow=False)
    print(report)
    assert report.good, str(report)
    assert report.found.count == 1_000_000
    assert report.counts["kills"] >= 1
    assert sum(report.faults.values()) > report.faults["passed"] > 0
