"""What is final and for whom (common/statuses.py), and the errors that stand for it."""

import pytest

from holdfast.common.errors import ERRORS, NotLeaderError, RerouteError, RetryError, ends, error_for, worth_another_try
from holdfast.common.statuses import MEANINGS, Loop, Next, Status


@pytest.mark.parametrize("status", list(Status))
def test_class_and_table_agree(status):
    """What is worth the same call again is a RetryError and nothing else is; so with the other place."""
    error = error_for(status)
    meaning = MEANINGS[status]
    assert isinstance(error, RetryError) is (meaning.next is Next.AGAIN)
    assert isinstance(error, RerouteError) is (meaning.next is Next.ELSEWHERE)
    assert worth_another_try(error) is (meaning.next is Next.AGAIN)


@pytest.mark.parametrize("status", list(Status))
def test_a28_only_what_was_reported_is_final(status):
    """A status that this process came to by itself, such as that of garbage, ends neither a call nor a loop."""
    made_here = ERRORS[status]("made here", status=status)
    assert worth_another_try(made_here)
    assert not any(ends(made_here, loop) for loop in Loop)


def test_a_lease_ends_for_one_reason_alone():
    """Of all statuses only APPLICATION_GONE ends the renewal of a lease, also when it is a number from the future."""
    assert [status for status in Status if ends(error_for(status), Loop.LEASE)] == [Status.APPLICATION_GONE]
    assert not any(ends(error_for(60_000), loop) for loop in Loop)


def test_other_words_keep_what_an_error_is():
    """An error that is told again elsewhere keeps class, status, who said it, and the leader that it names."""
    error = error_for(Status.NOT_LEADER, "not here")
    assert isinstance(error, NotLeaderError)
    error.leader = "h:1"
    again = error.reworded("in other words")
    assert (type(again), str(again), again.status, again.from_server) == (
        NotLeaderError,
        "in other words",
        error.status,
        True,
    )
    assert (again.leader, str(error)) == ("h:1", "not here")
