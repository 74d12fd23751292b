"""Long polls: who waits is woken by what concerns it, in the order they came."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from holdfast.master.leader import waiters as waiters_module
from holdfast.master.leader.waiters import Waiters
from tests.support.waiting import wait_until_async

KEY = ShuffleKey(Instance(b"i" * 16), ShuffleId(1), Generation(0))


def test_waiters_are_woken_in_the_order_they_came() -> None:
    """First come, first served; and none is left behind."""

    async def run() -> list[int]:
        waiters, woken = Waiters(), []

        async def wait(number: int) -> None:
            await waiters.wait(KEY, 60.0)
            woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(200)]
        await wait_until_async(lambda: waiters.count == 200, "all of them to wait")
        waiters.wake((KEY,))
        await asyncio.gather(*tasks)
        assert waiters.count == 0
        return woken

    assert asyncio.run(run()) == list(range(200))


def test_one_application_leaves_room_for_others(monkeypatch) -> None:
    """An application that takes its share of the long polls is told BUSY, others wait as ever."""

    async def run() -> None:
        monkeypatch.setattr(waiters_module, "WAITERS_MAX", 10)
        waiters = Waiters()
        other = KEY._replace(instance=Instance(b"j" * 16))
        tasks = [asyncio.create_task(waiters.wait(each, 60.0)) for each in (*[KEY] * 8, other)]
        await wait_until_async(lambda: waiters.count == 9, "all of them to wait")
        with pytest.raises(RetryError):
            await waiters.wait(KEY, 60.0)
        waiters.wake((b"",))
        await asyncio.gather(*tasks)
        assert waiters.count == 0

    asyncio.run(run())
