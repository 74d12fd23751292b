"""Seals of what a worker had open before its latest start: the real EarlySeals on one master whose log is applied at
once; what the workers answer is the test's."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.formats.reduce_messages import SealAnswer
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.master.control import early as early_module
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations
from holdfast.master.core.state.records import Worker
from holdfast.master.leader.asking import Asker
from tests.support.waiting import wait_until_async
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker


def test_a_shuffle_that_a_worker_refuses_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has started again and refuses to seal the first of three shuffles. The other two are sealed all the
    same; later it is asked for the first one again, and for nothing else."""
    monkeypatch.setattr(early_module, "_AGAIN_SECONDS", 0.01)

    async def story() -> None:
        leader = leader_of(Node())
        locations, asker = Locations(), Asker(leader)
        early = EarlySeals(leader, locations, asker, lambda _: False)
        refused = {key(1)}
        asked: list[int] = []

        async def ask(to: Worker, of: ShuffleKey, epochs: Sequence[tuple[int, int]], flags: int) -> SealAnswer:
            asked.append(of.shuffle)
            if any(of.shuffle == one.shuffle for one in refused):
                raise RetryError("not registered yet", status=Status.BUSY)
            return SealAnswer(epochs=[])

        monkeypatch.setattr(asker, "ask", ask)
        leader.leadership(True, 1)
        await do(leader, worker(1), worker(2), application(), *[reduce(key(number)) for number in (1, 2, 3)])
        await do(leader, worker(1, incarnation=2))
        leader.workers_changed.clear()
        early.seal_left()
        await wait_until_async(lambda: len(asked) >= 3, "the other shuffles are sealed")
        assert sorted(asked) == [1, 2, 3]
        await wait_until_async(leader.workers_changed.is_set, "another look at the workers")
        refused.clear()
        early.seal_left()
        await wait_until_async(lambda: len(asked) >= 4, "the first is asked for again")
        early.seal_left()  # all is sealed by now
        leader.leadership(False, 1)
        assert asked[3:] == [1]

    asyncio.run(story())
