"""The short form of `tox -e consistency`, without root, and that the harness finds mistakes that are planted."""

from pathlib import Path

import pytest

from tests.consistency.faults import WEIGHTS
from tests.consistency.ground import LEFT_OUT
from tests.consistency.run import Report, harness
from tests.drills.test_planted import with_mistake

LONG = pytest.mark.long
#: Whose lease has to end before all is gone: too long for the short form.
SLOW = ("kill client", "rolling", "drain")


def test_everything_committed_is_read_exactly_whatever_is_done(tmp_path: Path) -> None:
    """Writers, zombies, rivals for the commit, applications that are dropped, and servers killed, stopped and cut off:
    every read is exact or refused with a reason, and when all is quiet everything that lives is read exactly."""
    report = harness(1, 12.0, tmp_path, clients=2, without=SLOW, commits=20)
    print(report)
    assert report.good, str(report)
    assert report.left_out == LEFT_OUT
    assert report.verdict is not None
    assert report.verdict.counts["read: exact"] > 20
    assert report.verdict.counts["generations that live to the end"] > 0
    assert report.verdict.spans


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        pytest.param("nobody_counts", "records are missing", id="rows that vanish unseen"),
        pytest.param("acknowledged_without_writing", "LOST", marks=LONG, id="acknowledged without writing"),
        pytest.param("losers_are_read", "too many", marks=LONG, id="a loser's batches"),
        pytest.param("a_commit_forgets_an_epoch", "LOST", marks=LONG, id="a commit that forgets an epoch"),
        pytest.param("leases_end_at_once", "APPLICATION_GONE", marks=LONG, id="leases that end at once"),
    ],
)
def test_a_planted_mistake_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str, found: str) -> None:
    """With a safety taken away from servers or readers the verdict is bad, and says what is wrong."""
    with_mistake(monkeypatch, mistake)
    report = harness(1, 4.0, tmp_path, clients=1, without=SLOW, commits=30)
    judge(report, found)


@LONG
def test_masters_that_forget_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters that acknowledge what is not on their disks lose commits when all are killed, and that is found."""
    with_mistake(monkeypatch, "acknowledged_before_the_journal")
    only = set(WEIGHTS) - {"kill masters"}
    judge(harness(1, 15.0, tmp_path, clients=1, without=only, commits=30), "")


def judge(report: Report, found: str) -> None:
    """The verdict is bad, for this reason among others."""
    print(report)
    assert not report.good
    assert any(found in violation for violation in report.violations), str(report)
