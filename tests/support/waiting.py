"""Waiting for conditions with a deadline: the only place where tests let time pass.

A test that waits for time instead of a condition is slow where it passes and flaky where it fails; so tests have these
functions and no sleep. The deadline is generous: it is met only when something is wrong.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.common.net.frames.client import FrameClient

T = TypeVar("T")

SECONDS_MAX = 30.0
_BETWEEN_SECONDS = 0.01


def wait_until(condition: Callable[[], T], what: str, seconds: float = SECONDS_MAX) -> T:
    """Return the condition's value as soon as it is true; raises AssertionError naming `what` after `seconds`."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        pause.wait(_BETWEEN_SECONDS)
    return value


async def wait_until_async(condition: Callable[[], T], what: str, seconds: float = SECONDS_MAX) -> T:
    """The same inside an event loop, which goes on in between."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (value := condition()):
        assert loop.time() < deadline, f"waited {seconds:g} s in vain for {what}"
        turn = loop.create_future()
        loop.call_later(_BETWEEN_SECONDS, turn.set_result, None)
        await turn
    return value


async def gone(client: FrameClient) -> None:
    """Return when a connection that was closed is gone."""
    await wait_until_async(lambda: client._out is None, "the connection to be gone")
