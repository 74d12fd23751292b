"""The budgets of a master: a share for each user, a part for those that keep the cluster alive."""

from __future__ import annotations

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.net.methods import METHODS
from holdfast.common.security.tokens import Bearer, TokenKind, share_owner
from holdfast.common.statuses import Status
from holdfast.master.api.budgets import BODY_BYTES_EACH_MAX, BODY_BYTES_MAX, BODY_BYTES_RESERVED, Budgets

COMMIT, HEARTBEAT = METHODS["Shuffles/Commit"], METHODS["Registry/Heartbeat"]


def test_one_user_takes_a_share_with_all_applications() -> None:
    """Applications of one user, those that have ended as well, share what that user may have, and so do all whose
    tokens do not say whose they are; another user's call finds room, and so do servers and operators when everybody
    else has none."""
    budgets = Budgets()

    def room(kind: TokenKind, subject: bytes, amount: int, of_user: bytes = b"") -> None:
        bearer = Bearer(kind, subject, 0, of_user)
        budgets.body(budgets.asker(bearer, "host", COMMIT)).take(amount)

    a, b = share_owner(b"a"), share_owner(b"b")
    room(TokenKind.APPLICATION, b"1", BODY_BYTES_EACH_MAX - 1, a)
    for kind, subject, of_user in ((TokenKind.APPLICATION, b"2", a), (TokenKind.USER, b"a", b"")):
        with pytest.raises(RetryError, match="by you") as refused:
            room(kind, subject, 2, of_user)
        assert refused.value.status is Status.BUSY
    room(TokenKind.APPLICATION, b"3", BODY_BYTES_EACH_MAX, b)
    rest = BODY_BYTES_MAX - BODY_BYTES_RESERVED - budgets.bodies.total
    room(TokenKind.APPLICATION, b"4", rest // 2)
    with pytest.raises(RetryError):
        room(TokenKind.APPLICATION, b"5", rest // 2 - 1)
    room(TokenKind.VIEWER, b"c", rest // 4)
    room(TokenKind.SERVER, b"w1", BODY_BYTES_RESERVED - 1)
    room(TokenKind.ADMIN, b"ops", BODY_BYTES_MAX - budgets.bodies.total)
    assert budgets.bodies.refused == 3


def test_room_is_given_back_once() -> None:
    """What a call holds goes with it, however often it is closed, and as much as it gave up before is free at once."""
    budgets = Budgets()
    asker = budgets.asker(None, "host", COMMIT)
    with budgets.body(asker) as room:
        room.take(100)
        room.take(50)
        room.keep(120)
        assert budgets.bodies.total == 120
        room.keep(130)
        assert room.held == 120
    room.close()
    assert budgets.bodies.total == 0


def test_without_security_hosts_share_and_workers_come_first() -> None:
    """Nobody says who he is: a host is one user, and what workers call has the part that is kept."""
    budgets = Budgets()
    assert budgets.asker(None, "h", COMMIT) == budgets.asker(None, "h", METHODS["Admin/Status"])
    assert budgets.asker(None, "h", COMMIT) != budgets.asker(None, "g", COMMIT)
    assert [budgets.asker(None, "h", each).vital for each in (COMMIT, HEARTBEAT)] == [False, True]
