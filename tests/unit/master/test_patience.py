"""How long a commit waits for one worker, and how many may wait at once."""

from holdfast.master.core.patience import BUSY_GRACES, Patience

S = 10**9
BEGIN = 1_000 * S


def patience() -> Patience:
    """Five seconds for a second copy, thirty for an only one; asked at BEGIN."""
    made = Patience(5 * S, 30 * S)
    made.asks(BEGIN)
    return made


def test_a_second_copy_is_waited_for_a_while():
    """From the first time it was asked, however often it failed since; one that has been silent for as long is left at
    its first failure; an answer begins anew."""
    slow, down, away = patience(), patience(), patience()
    assert slow.left_at(60 * S, BEGIN) == BEGIN + 5 * S, "it answers slowly, and is there"
    down.failed(BEGIN + 1)
    down.asks(BEGIN + 4 * S)
    down.failed(BEGIN + 4 * S)
    assert down.left_at(0, BEGIN + 4 * S) == BEGIN + 5 * S
    away.failed(BEGIN + 1)
    assert away.left_at(7 * S, BEGIN + 1) <= BEGIN + 1
    down.answered()
    down.asks(BEGIN + 20 * S)
    assert down.left_at(0, BEGIN + 20 * S) == BEGIN + 25 * S


def test_an_only_copy_is_waited_for_longer():
    """One that fails is gone after the grace without a sign of life, one that is lost after it sent no heartbeat for
    as long; one that is slow is never."""
    slow, failing, lost = patience(), patience(), patience()
    assert not slow.gone(None, BEGIN + 1_000 * S)
    failing.failed(BEGIN + 2 * S)
    assert not failing.gone(None, BEGIN + 31 * S)
    assert failing.gone(None, BEGIN + 32 * S)
    lost.failed(BEGIN)
    assert not lost.gone(29 * S, BEGIN)
    assert lost.gone(30 * S, BEGIN)


def test_a36_busy_and_failing_by_turns_has_an_end():
    """A worker that says by turns that it is busy and fails is asked for five graces in all: neither count begins anew
    because of the other. Being busy is a sign of life, so it is not gone before."""
    turns = patience()
    now = BEGIN
    while not turns.spent(now):
        assert now <= BEGIN + BUSY_GRACES * 30 * S, "it is asked for ever"
        turns.was_busy(now)
        turns.failed(now + S)
        assert not turns.gone(None, now + S)
        now += 2 * S
    assert now == BEGIN + BUSY_GRACES * 30 * S
    turns.answered()
    assert not turns.spent(now + 1_000 * S)
