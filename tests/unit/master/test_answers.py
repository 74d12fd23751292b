"""The answer table: what a retried command is told."""

import pytest

from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from tests.unit.master.build import C1, C2, H1, H2, I1, Log, application, commit, key, shuffle, sixteen


@pytest.fixture
def log() -> Log:
    """An application with an open shuffle."""
    log = Log()
    log.do(application())
    log.do(shuffle())
    return log


def test_retry_gets_the_first_answer_and_is_not_applied(log: Log):
    """The answer of the first try, refusals included, though the state would answer otherwise by now."""
    refused = log.call(C1, 1, shuffle(key(1, 1)))
    dropped = log.call(C1, 2, cmd.Unregister(key()))
    assert (refused.status, dropped.value) == (Status.GENERATION_CLOSED, 1)
    assert log.call(C1, 1, shuffle(key(1, 1))) == refused
    assert log.call(C1, 2, cmd.Unregister(key())) == dropped


def test_number_used_for_another_request_is_refused(log: Log):
    """Same client and number, another digest: CALL_REUSED, not applied."""
    log.call(C1, 1, cmd.Attach(I1, "", 1000, H2))
    assert log.call(C1, 1, cmd.Detach(I1, H1)).status == Status.CALL_REUSED
    assert len(log.state.applications[I1].leases) == 2
    assert log.call(C2, 1, cmd.Detach(I1, H1)).ok


def test_numbers_may_come_out_of_order(log: Log):
    """Calls under way together are applied in any order, and each is remembered."""
    for number in (3, 1, 2):
        assert log.call(C1, number, cmd.Attach(I1, "", 1000 + number, H2)).ok
    for number in (2, 3, 1):
        assert log.call(C1, number, cmd.Detach(I1, H1)).status == Status.CALL_REUSED


def test_forgotten_number_is_too_old(log: Log, monkeypatch):
    """Past the bound a client's oldest calls are forgotten, and their retries never applied."""
    monkeypatch.setattr(bounds, "CALLS_PER_CLIENT_MAX", 2)
    for number in (1, 2, 3):
        log.call(C1, number, cmd.Attach(I1, "", 1000, sixteen(f"h{number}")))
    leases = log.state.applications[I1].leases
    assert log.call(C1, 1, cmd.Detach(I1, sixteen("h1"))).status == Status.CALL_TOO_OLD
    assert log.state.applications[I1].leases == leases


def test_calls_that_are_over_are_forgotten(log: Log):
    """A client that says below which number its calls are over is remembered by the others alone, whatever it says of
    those that have not come yet; a number that is over is too old, and a retry of one that is not gets its answer."""
    for number in range(1, 6):
        log.call(C1, number, cmd.Attach(I1, "", 1000 + number, H2), open_from=max(1, number - 1))
    assert log.state.answers.size == 2
    assert log.call(C1, 5, cmd.Attach(I1, "", 1005, H2)).ok
    assert log.call(C1, 3, cmd.Attach(I1, "", 1003, H2)).status == Status.CALL_TOO_OLD
    assert log.call(C1, 7, cmd.Attach(I1, "", 1000, H2), open_from=1 << 60).ok
    assert log.state.answers.size == 1
    assert log.call(C1, 8, cmd.Attach(I1, "", 1000, H2)).ok


def test_forgotten_client_cannot_come_back(log: Log):
    """An id drawn before a forgotten client's last call is CALL_TOO_OLD; a client drawn later is welcome."""
    log.call(C1, 1, cmd.Attach(I1, "", 1000, H2))
    last = log.index
    log.time_ms += bounds.CLIENT_LIFE_MS + 1
    log.do(cmd.MarkLeases(True, ()))
    assert not log.state.answers.clients
    assert log.call(C1, 1, cmd.Attach(I1, "", 1000, H2), drawn=0).status == Status.CALL_TOO_OLD
    assert log.call(C2, 1, cmd.Attach(I1, "", 1000, H2), drawn=last - 1).status == Status.CALL_TOO_OLD
    assert log.call(C2, 1, cmd.Attach(I1, "", 1000, H2), drawn=last).ok


def test_use_keeps_a_client(log: Log):
    """The life of a client counts from its last command, not from its first."""
    first = log.call(C1, 1, cmd.Unregister(key(9)))
    for number in (2, 3):
        log.time_ms += bounds.CLIENT_LIFE_MS - 1
        log.call(C1, number, cmd.Attach(I1, "", 1000, H2))
    assert log.call(C1, 1, cmd.Unregister(key(9))) == first


def test_full_table_refuses_new_clients_and_trims_known_ones(log: Log, monkeypatch):
    """BUSY for a client never seen, not applied and not remembered; a known one forgets its own oldest call."""
    monkeypatch.setattr(bounds, "CALLS_MAX", 2)
    log.call(C1, 1, cmd.Attach(I1, "", 1000, H2))
    log.call(C1, 2, cmd.Attach(I1, "", 1000, H2))
    assert log.call(C2, 1, cmd.Detach(I1, H2)).status == Status.BUSY
    assert log.call(C1, 3, cmd.Attach(I1, "", 1000, H2)).ok
    assert log.call(C1, 1, cmd.Attach(I1, "", 1000, H2)).status == Status.CALL_TOO_OLD
    assert log.state.answers.size == 2


def test_answers_that_ask_for_another_try_are_not_remembered(log: Log):
    """A commit whose parts are missing is BUSY, and the same call succeeds once they are there."""
    call = commit(winners=b"", upload=b"up")
    assert log.call(C1, 1, call).status == Status.BUSY
    log.do(cmd.Part(b"up", 0, 1, b"array"))
    assert log.call(C1, 1, call).ok
