"""One user never fills what the masters hold for all."""

import asyncio

import pytest

from holdfast.common.errors import QuotaExceededError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import Bearer, TokenKind
from holdfast.common.statuses import Status
from holdfast.master.api import access
from holdfast.master.api.callers import Callers
from holdfast.master.control.quotas import Quotas
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import H2, I1, I2, application, key, reduce, sixteen, worker

#: How much the user has of each: with a bound of three more that is above four times what is left.
HELD = 12


@pytest.mark.parametrize("bound", ["SHUFFLES_MAX", "ARRAY_BYTES_MAX", "APPLICATIONS_MAX"])
def test_one_user_leaves_room_for_the_others(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Who has so much that others would lack room gets no new application and no new shuffle, with the reason; what
    there is goes on, others are not touched, and it is over when something was given back."""
    new_shuffle = bound != "APPLICATIONS_MAX"
    shuffles = HELD if new_shuffle else 1
    monkeypatch.setattr(
        bounds, bound, HELD + 3 if bound != "ARRAY_BYTES_MAX" else (HELD + 1) * len(reduce().assignment)
    )

    async def story() -> None:
        leader = leader_of(Node())
        leader.leadership(True, 1)
        quotas = Quotas(leader)
        await do(leader, worker(1), worker(2), application())
        await do(leader, cmd.RegisterApplication(I2, "app", "alice", 1000, H2))
        more = [] if new_shuffle else [sixteen(f"more {number}") for number in range(HELD - 1)]
        await do(leader, *(application(each) for each in more))
        await do(leader, *(reduce(key(number)) for number in range(shuffles)))

        def ask() -> None:
            quotas.check(key(HELD)) if new_shuffle else quotas.check_user(sixteen("new"), "user")

        with pytest.raises(QuotaExceededError, match=r'user "user" has .* and gets no more while .* are taken'):
            ask()
        quotas.check(key(0))  # more of what there is
        quotas.check_user(I1, "user")
        quotas.check(key(0, instance=I2))
        quotas.check_user(sixteen("of bob"), "bob")
        if new_shuffle:
            await do(leader, *(cmd.Unregister(key(number)) for number in range(shuffles)))
        else:
            await do(leader, *(cmd.Forget(each, False, 0) for each in more))
        ask()
        assert leader.peek(lambda state: state.check()) == []
        leader.leadership(False, 1)

    asyncio.run(story())


def test_one_user_leaves_room_for_the_clients_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are remembered for 15 minutes, and of a bounded number of clients: a user who draws one id after another
    is told BUSY while others go on, and so do the clients of that user who are known. When they were silent long enough
    there is room again."""
    monkeypatch.setattr(bounds, "CLIENTS_MAX", 10)
    callers = Callers()
    for number in range(8):
        callers.heard(b"mallory %d" % number, "mallory", number)
    with pytest.raises(RetryError, match='user "mallory" has 8 of 8 clients') as refused:
        callers.heard(b"one more", "mallory", 4)
    assert refused.value.status == Status.BUSY
    callers.heard(b"mallory 0", "mallory", 5)
    callers.heard(b"alice", "alice", 6)
    callers.heard(b"mallory 1", "alice", 6)  # whoever uses an id has it
    callers._shares.check()
    assert (callers._shares.held("mallory"), callers._shares.held("alice")) == (7, 2)
    callers.heard(b"one more", "mallory", 7 + bounds.CLIENT_LIFE_MS * 1_000_000)


def test_the_bound_of_clients_holds_for_whoever_shows_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts by the user that the token names, of an application by the user that owns it, and not at all by what a
    call claims; those who run the cluster are not counted."""
    monkeypatch.setattr(bounds, "CLIENTS_MAX", 10)

    async def story() -> None:
        leader = leader_of(Node())
        leader.leadership(True, 1)
        await do(leader, application())
        by_user, by_application = (
            Bearer(TokenKind.USER, b"user", 0),
            Bearer(TokenKind.APPLICATION, I1, 0),
        )
        request = pb.DetachRequest(instance=I1, holder=H2)

        def call(caller: Bearer | None, client: str) -> None:
            access.CALLER.set(caller)
            request.call.client, request.call.number = sixteen(client), 1
            leader.numbered("Shuffles/Detach", request, cmd.Detach(I1, H2))

        for number in range(8):
            call(by_user, f"c{number}")
        for caller in (by_user, by_application):
            with pytest.raises(RetryError, match='user "user" has 8 of 8 clients'):
                call(caller, "c8")
        for other in (None, Bearer(TokenKind.ADMIN, b"ops", 0), Bearer(TokenKind.USER, b"other", 0)):
            call(other, "c9")
        leader.leadership(False, 1)

    asyncio.run(story())
