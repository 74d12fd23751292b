"""The budgets of a master: a share for each user, a part for those that keep the cluster alive."""

from __future__ import annotations

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.net.methods import METHODS
from holdfast.common.security.tokens import Bearer, TokenKind
from holdfast.common.statuses import Status
from holdfast.master.api.budgets import BODY_BYTES_RESERVED, Budgets
from holdfast.master.core.slots import BODY_BYTES_EACH_MAX, BODY_BYTES_MAX

COMMIT, HEARTBEAT = METHODS["Shuffles/Commit"], METHODS["Registry/Heartbeat"]


def test_one_user_takes_a_share_with_all_applications() -> None:
    """Applications of one user share what that user may hold; another user's call finds room, and so do servers and
    operators when everybody else has none."""
    budgets = Budgets(lambda instance: instance[:1].decode())

    def room(kind: TokenKind, subject: bytes, amount: int) -> None:
        budgets.body(budgets.asker(Bearer(kind, subject, 0), "host", COMMIT)).take(amount)

    room(TokenKind.APPLICATION, b"a1", BODY_BYTES_EACH_MAX - 1)
    for kind, subject in ((TokenKind.APPLICATION, b"a2"), (TokenKind.USER, b"a")):
        with pytest.raises(RetryError, match="by you") as refused:
            room(kind, subject, 2)
        assert refused.value.status is Status.BUSY
    room(TokenKind.APPLICATION, b"b1", BODY_BYTES_EACH_MAX)
    rest = BODY_BYTES_MAX - BODY_BYTES_RESERVED - budgets.bodies.count
    room(TokenKind.VIEWER, b"c", rest)
    with pytest.raises(RetryError):
        room(TokenKind.VIEWER, b"d", 1)
    room(TokenKind.SERVER, b"w1", BODY_BYTES_RESERVED - 1)
    room(TokenKind.ADMIN, b"ops", 1)
    assert budgets.bodies.count == BODY_BYTES_MAX
    assert budgets.bodies.refused == 3


def test_room_is_given_back_once() -> None:
    """What a call holds goes with it, however often it is closed, and as much as it gave up before is free at once."""
    budgets = Budgets(lambda _: None)
    asker = budgets.asker(None, "host", COMMIT)
    with budgets.body(asker) as room:
        room.take(100)
        room.take(50)
        room.keep(120)
        assert budgets.bodies.count == 120
        room.keep(130)
        assert room.held == 120
    room.close()
    assert (budgets.bodies.count, budgets.bodies.taken) == (0, {})


def test_without_security_hosts_share_and_workers_come_first() -> None:
    """Nobody says who he is: a host is one user, and what workers call has the part that is kept."""
    budgets = Budgets(lambda _: None)
    assert budgets.asker(None, "h", COMMIT) == budgets.asker(None, "h", METHODS["Admin/Status"])
    assert budgets.asker(None, "h", COMMIT) != budgets.asker(None, "g", COMMIT)
    assert [budgets.asker(None, "h", each).vital for each in (COMMIT, HEARTBEAT)] == [False, True]
