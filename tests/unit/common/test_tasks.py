"""Tasks that nobody owns: common/system/tasks.py."""

import asyncio
import gc
import logging
import weakref

import pytest

from holdfast.common.log_events import LogEvent
from holdfast.common.system.tasks import awaited, background
from tests.support.logged import logged


async def _breaks() -> None:
    raise OSError("planted")


async def _ends() -> None:
    return


def test_a_task_that_ends_unexpectedly_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Work in the background that raises leaves a line with its name and its trace, at once and not at collection."""

    async def scene() -> None:
        await asyncio.wait((background(_breaks()),))

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert logged(caplog, LogEvent.TASK_INTERNAL_ERROR) == [{"task": "_breaks"}]
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["planted"]


def test_its_owner_is_reported_once_whatever_it_raised() -> None:
    """Who waits for the work is told what ended it; being cancelled, and success, are no failures."""
    reported: list[BaseException] = []

    async def scene() -> None:
        broken = background(_breaks(), reported.append)
        cancelled = background(asyncio.Event().wait(), reported.append)
        well = background(_ends(), reported.append)
        cancelled.cancel()
        await asyncio.wait((broken, cancelled, well))

    asyncio.run(scene())
    assert [str(each) for each in reported] == ["planted"]


def test_a_handler_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """What should have answered and could not is no silence either."""

    def fails(_: BaseException) -> None:
        raise ValueError("planted, too")

    async def scene() -> None:
        await asyncio.wait((background(_breaks(), fails),))

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    (failed,) = logged(caplog, LogEvent.TASK_INTERNAL_ERROR)
    assert str(failed["reason"]) == "planted"
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["planted, too"]


def test_a_task_lives_until_it_ends_though_its_maker_forgets_it() -> None:
    """asyncio itself keeps weak references: a task that only waits for another object of the same circle would go."""

    async def scene() -> weakref.ref[asyncio.Task[None]]:
        ended = asyncio.get_running_loop().create_future()

        async def waits() -> None:
            await ended

        task = weakref.ref(awaited(waits()))
        del waits
        await asyncio.get_running_loop().run_in_executor(None, gc.collect)
        found = task()
        assert found is not None
        ended.set_result(None)
        await found
        return task

    task = asyncio.run(scene())
    gc.collect()
    assert task() is None
