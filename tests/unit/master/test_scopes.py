"""A wait of the leader ends with each of its subjects: the shuffle, the worker's start, the leadership."""

import asyncio
from typing import Any

import pytest

from holdfast.common.errors import GiveUpError, NotLeaderError, RetryError
from holdfast.master.core.state import commands as cmd
from holdfast.master.leader.scopes import Scope
from tests.support.waiting import wait_until_async
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker

DROPPED = cmd.Unregister(key(1))
LOST = cmd.SetWorkersAlive(False, (cmd.WorkerRef(1, 1),))


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        (DROPPED, GiveUpError),
        (cmd.Forget(key(1).instance, False, 0), GiveUpError),
        (LOST, RetryError),
        (worker(1, incarnation=2), RetryError),
        ("leadership", NotLeaderError),
        ("another term", NotLeaderError),
    ],
)
def test_a30_a_wait_ends_with_any_of_its_subjects(ends: Any, error: type[Exception]) -> None:
    """What is waited for never comes. What happens to others ends nothing; what happens to a subject ends the wait at
    once, with its reason, and the work is cancelled."""

    async def story() -> None:
        leader = leader_of(Node())
        leader.leadership(True, 1)
        await do(leader, worker(1), worker(2), application(), reduce(key(1)), reduce(key(2)))
        record = leader.peek(lambda state: state.workers[1])
        work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def never() -> None:
            await work

        waiting = asyncio.ensure_future(Scope(key(1), record).wait(leader, never()))
        await wait_until_async(lambda: leader.waiters.watching == 1, "the wait")
        await do(leader, cmd.Unregister(key(2)), cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),)), worker(3))
        assert not waiting.done()
        if isinstance(ends, str):
            leader.leadership(False, 1)
            if ends == "another term":
                leader.leadership(True, 2)
        else:
            await do(leader, ends)
        with pytest.raises(error):
            await asyncio.wait_for(waiting, 30)
        await wait_until_async(work.cancelled, "the end of the work")
        assert leader.waiters.watching == 0
        leader.leadership(False, 2)

    asyncio.run(story())


def test_a_wait_returns_what_it_waited_for_and_what_that_raises() -> None:
    """A scope changes nothing of work that comes to an end."""

    async def story() -> None:
        leader = leader_of(Node())
        leader.leadership(True, 1)
        await do(leader, application(), reduce(key(1)))

        async def done(fails: bool) -> str:
            if fails:
                raise ValueError("broken")
            return "done"

        assert await Scope(key(1)).wait(leader, done(False)) == "done"
        with pytest.raises(ValueError, match="broken"):
            await Scope(key(1)).wait(leader, done(True))
        with pytest.raises(GiveUpError):
            await Scope(key(9)).wait(leader, done(False))
        leader.leadership(False, 1)

    asyncio.run(story())
