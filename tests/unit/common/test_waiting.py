"""What lasts is told in the log, again and again, and no longer once it is over."""

import asyncio
import logging

import pytest

from holdfast.common.system import waiting
from holdfast.common.system.log import facts_of


class _Heard(logging.Handler):
    """Counts what is told, and wakes who waits for that."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.reported: list[str] = []
        self.enough = asyncio.Event()
        self._wanted = enough

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.append(str(facts_of(record)["what"]))
        if len(self.reported) >= self._wanted:
            self.enough.set()


def test_a_wait_that_lasts_is_reported_again_and_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names what is waited for while the wait goes on."""
    monkeypatch.setattr(waiting, "SAY_SECONDS", 0.001)
    monkeypatch.setattr(waiting, "SAY_AGAIN_SECONDS", 0.001)

    async def wait() -> list[str]:
        heard = _Heard(3)
        logger = logging.getLogger("holdfast")
        logger.addHandler(heard)
        try:
            with waiting.said("the last bus"):
                await asyncio.wait_for(heard.enough.wait(), 30)
        finally:
            logger.removeHandler(heard)
        return heard.reported

    assert asyncio.run(wait())[:3] == ["the last bus"] * 3


def test_a_short_wait_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """What ends soon leaves no line."""

    async def wait() -> None:
        with waiting.said("nothing much"):
            assert asyncio.get_running_loop().is_running()

    asyncio.run(wait())
    assert caplog.text == ""


def test_a_bounded_wait_ends_with_a_timeout_and_lets_go_of_its_future() -> None:
    """Nobody answers: the waiter has TimeoutError, and whoever answers later finds that nobody wants to know."""

    async def wait() -> None:
        answer = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await waiting.bounded(answer, 0.001, "Godot")
        assert answer.cancelled()

    asyncio.run(wait())


def test_a_bounded_wait_returns_and_raises_what_its_future_does() -> None:
    """An answer and an error come through as they are, long before the bound."""

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        answer, error = loop.create_future(), loop.create_future()
        loop.call_soon(answer.set_result, 7)
        loop.call_soon(error.set_exception, OSError("no disk"))
        assert await waiting.bounded(answer, 60, "an answer") == 7
        with pytest.raises(OSError, match="no disk"):
            await waiting.bounded(error, 60, "an answer")

    asyncio.run(wait())


def test_a_bounded_wait_that_is_cancelled_is_no_timeout() -> None:
    """The end of a task stays the end of a task, also where the bound is reached in the same turn of the loop."""

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        task = asyncio.create_task(waiting.bounded(answer, 60, "Godot"))
        loop.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        late = loop.create_future()
        task = asyncio.create_task(waiting.bounded(late, 0.001, "Godot"))
        late.add_done_callback(lambda _: task.cancel())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())


def test_a_bounded_wait_is_reported_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for is in the log, as with `said`, beside other waits that began before and go on."""
    monkeypatch.setattr(waiting, "SAY_AGAIN_SECONDS", 0.001)

    async def wait() -> list[str]:
        heard = _Heard(2)
        logger = logging.getLogger("holdfast")
        logger.addHandler(heard)
        answer = asyncio.get_running_loop().create_future()
        try:
            with waiting.said("something else"):
                monkeypatch.setattr(waiting, "SAY_SECONDS", 0.001)
                task = asyncio.create_task(waiting.bounded(answer, 60, "the last tram"))
                await asyncio.wait_for(heard.enough.wait(), 30)
                answer.set_result(None)
                await task
        finally:
            logger.removeHandler(heard)
        return heard.reported

    assert set(asyncio.run(wait())) == {"the last tram"}
