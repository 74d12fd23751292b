"""The loop of a process (client/connection/runtime.py) leaves nothing behind."""

import asyncio

from holdfast.client.connection.runtime import Runtime


def test_what_is_left_is_cancelled() -> None:
    """A task that somebody abandoned is ended before the loop is: else the process ends with a complaint about it."""

    async def begin() -> asyncio.Task[bool]:
        return asyncio.create_task(asyncio.Event().wait())

    of_this_test = Runtime()
    left = of_this_test.run(begin())
    of_this_test.close()
    assert left.cancelled()
