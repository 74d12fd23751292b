"""Queues of workers, and scopes of waits: what hangs on one worker delays no other, and ends with what it is about."""

import asyncio

from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from holdfast.master.leader import worker_queues as queues_module
from holdfast.master.leader.waiters import Waiters
from holdfast.master.leader.worker_queues import WorkerQueues

KEY = ShuffleKey(Instance(b"i" * 16), ShuffleId(1), Generation(0))


def test_a36_a_worker_that_hangs_delays_no_other(monkeypatch):
    """A job that never ends holds up those of its own worker alone, of which a bounded number wait; at the end of the
    leadership all of them go."""

    async def story() -> None:
        monkeypatch.setattr(queues_module, "QUEUE_MAX", 2)
        failed: list[BaseException] = []
        queues, done, hang = WorkerQueues(failed.append), [], asyncio.Event()

        async def job(name: str) -> None:
            if name == "hangs":
                await hang.wait()
            done.append(name)

        assert queues.add(1, lambda: job("hangs"))
        other = asyncio.Event()

        async def last() -> None:
            other.set()

        assert queues.add(2, lambda: job("two"))
        assert queues.add(2, last)
        await asyncio.wait_for(other.wait(), 30)
        assert done == ["two"]
        assert queues.add(1, lambda: job("behind it"))
        assert queues.add(1, lambda: job("behind it"))
        assert not queues.add(1, lambda: job("too many"))
        queues.clear()
        hang.set()
        assert queues.waiting == 0
        again = asyncio.Event()

        async def anew() -> None:
            again.set()

        assert queues.add(1, anew)
        await asyncio.wait_for(again.wait(), 30)
        assert (done, failed) == (["two"], [])

    asyncio.run(story())


def test_who_watches_hears_of_its_own_subjects_alone():
    """A shuffle by its key, its instance or everything; a worker by its number; nothing any more afterwards."""
    waiters, heard = Waiters(), []
    with waiters.watch((KEY, 7), lambda: heard.append("changed")):
        waiters.wake((8, b"j" * 16))
        assert heard == []
        waiters.wake((KEY,))
        waiters.wake((7,))
        waiters.wake((KEY.instance,))
        assert len(heard) == 3
        waiters.wake((b"",))
        assert len(heard) == 5, "each subject tells"
    waiters.wake((KEY, 7, b""))
    assert len(heard) == 5
    assert waiters.watching == 0
