"""What applications hold, added up from heartbeats, and the words of a refusal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.sizes import UsageTotals
from holdfast.master.core import usage as module
from holdfast.master.core.usage import Owned, QuotaLimits, Row, Usage, exceeded
from tests.unit.master.build import I1, I2

A, B = Owned(I1, "nightly"), Owned(I2, "adhoc")
GIB = 1 << 30
NONE = QuotaLimits()


def usage(*rows: tuple[int, Row]) -> Usage:
    made = Usage()
    for worker in {worker for worker, _ in rows}:
        made.heard(worker, [row for number, row in rows if number == worker])
    made.check()
    return made


def row(instance: bytes, size: int, files: int = 1, **shuffles: tuple[int, int]) -> Row:
    """Shuffles are named s7=(bytes, files)."""
    return Row(
        instance,
        UsageTotals(size, files),
        tuple((int(name[1:]), UsageTotals(*held)) for name, held in shuffles.items()),
    )


def refusal(found: Usage, application: QuotaLimits = NONE, user: QuotaLimits = NONE) -> str:
    return exceeded(found, A, application, "ann", [A, B], user)


def test_workers_are_added_up_and_replace_what_they_reported() -> None:
    """The last word of each worker counts; who tells nothing, or is lost, holds nothing."""
    found = usage((1, row(I1, 10, 2, s7=(8, 1))), (2, row(I1, 5, 1, s7=(5, 1))), (2, row(I2, 3)))
    assert (found.of(I1), found.of(I2), found.of(b"?")) == (UsageTotals(15, 3), UsageTotals(3, 1), UsageTotals())
    assert found.shuffles(I1) == {7: UsageTotals(13, 2)}
    found.heard(1, [row(I1, 1)])
    assert found.of(I1) == UsageTotals(6, 2)
    found.heard(2, [])
    assert (found.of(I1), found.of(I2), found.shuffles(I1), found.workers) == (
        UsageTotals(1, 1),
        UsageTotals(),
        {},
        [1],
    )
    found.check()


def test_row_42_the_application_that_is_over_is_reported_its_largest_shuffle() -> None:
    """Limit, what is held and the largest shuffle, summed over workers; a byte below the limit is no reason."""
    found = usage((1, row(I1, 2 * GIB, 2, s7=(GIB, 1), s8=(GIB // 2, 1))), (2, row(I1, GIB, 1, s7=(GIB, 1))))
    assert refusal(found, QuotaLimits(3 * GIB + 1)) == ""
    assert refusal(found, QuotaLimits(3 * GIB)).startswith(
        'application "nightly" holds 3.0 GiB of 3.0 GiB that an application may have, largest: shuffle nightly/7 with '
        "2.0 GiB in 2 files. "
    )
    assert "holds 3 files of 2 that an application may have" in refusal(found, QuotaLimits(0, 2))
    assert refusal(found, QuotaLimits(4 * GIB, 4)) == ""


def test_row_42_the_user_who_is_over_is_reported_the_largest_application() -> None:
    """All applications of a user count; the largest is named, by what there is too much of."""
    found = usage((1, row(I1, GIB, 9, s3=(GIB, 9))), (1, row(I2, 2 * GIB, 1, s4=(2 * GIB, 1))))
    assert refusal(found, user=QuotaLimits(3 * GIB)).startswith(
        'user "ann" holds 3.0 GiB of 3.0 GiB that its quota allows in 2 applications; largest: application "adhoc" '
        f"({I2.hex()[:8]}) with 2.0 GiB in 1 file, largest: shuffle adhoc/4 with 2.0 GiB in 1 file. "
    )
    reported = refusal(found, user=QuotaLimits(0, 10))
    assert "10 files of 10" in reported
    assert 'application "nightly"' in reported
    assert refusal(found, user=QuotaLimits(4 * GIB, 11)) == ""
    assert refusal(Usage(), QuotaLimits(1, 1), QuotaLimits(1, 1)) == ""


@pytest.mark.parametrize(
    ("application", "user", "own_row", "key"),
    [
        (QuotaLimits(GIB), NONE, False, "application_bytes in [quota]"),
        (QuotaLimits(0, 1), NONE, False, "application_files in [quota]"),
        (NONE, QuotaLimits(GIB), False, "user_bytes in [quota]"),
        (NONE, QuotaLimits(0, 1), False, "user_files in [quota]"),
        (NONE, QuotaLimits(GIB), True, 'bytes of user "ann" in quota.users'),
        (NONE, QuotaLimits(0, 1), True, 'files of user "ann" in quota.users'),
    ],
)
def test_a_refusal_names_the_key(application: QuotaLimits, user: QuotaLimits, own_row: bool, key: str) -> None:
    """Whoever reads it knows which key of the masters says the limit; one who uses Spark, what to do in Spark."""
    reported = exceeded(usage((1, row(I1, GIB))), A, application, "ann", [A], user, own_row)
    assert reported.endswith(f"ask for more: {key} of the masters")
    assert ("unpersist" in reported) == any(application)
    assert "in 1 applications" not in reported


@pytest.mark.parametrize("limits", [QuotaLimits(GIB), QuotaLimits(0, 1)])
def test_the_application_goes_first(limits: QuotaLimits) -> None:
    """With both quotas used up the nearer cause is named."""
    found = usage((1, row(I1, GIB)))
    assert refusal(found, limits, limits).startswith("application")


WORDS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.lists(st.tuples(st.sampled_from([I1, I2]), st.integers(0, 5), st.integers(0, 2)), max_size=2),
    )
)


@given(WORDS)
def test_sums_are_kept_whatever_workers_say(words: list[tuple[int, list[tuple[bytes, int, int]]]]) -> None:
    """After any sequence of heartbeats the sums are those of the last words."""
    found = Usage()
    last: dict[int, list[Row]] = {}
    for worker, rows in words:
        last[worker] = [row(instance, size, files, s1=(size, files)) for instance, size, files in rows]
        found.heard(worker, last[worker])
        found.check()
    for instance in (I1, I2):
        held = [each.held for rows in last.values() for each in rows if each.instance == instance]
        assert found.of(instance) == UsageTotals(sum(one for one, _ in held), sum(two for _, two in held))


def test_what_ended_applications_hold_counts_for_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the workers have deleted it; whose they are is remembered of those that called last."""
    monkeypatch.setattr(module, "OWNED_MAX", 2)
    found = usage((1, row(I1, 2 * GIB)), (1, row(I2, GIB)))
    for user, each in (("bob", Owned(b"o" * 16, "other")), ("ann", A), ("ann", A), ("bob", B)):
        found.called(user, each)
    assert (found.ended("ann", {I1, I2}), found.ended("ann", {I2}), found.ended("ann", ())) == ([], [A], [A])
    assert found.ended("bob", {I1}) == [B]
    assert 'user "ann" holds 2.0 GiB' in exceeded(
        found, B, NONE, "ann", [B, *found.ended("ann", {I2})][1:], QuotaLimits(GIB)
    )
    found.heard(1, ())
    assert found.ended("ann", ()) == []
