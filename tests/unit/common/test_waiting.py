"""What lasts is told in the log, again and again, and no longer once it is over."""

import asyncio
import logging

import pytest

from holdfast.common.net import waiting


class _Heard(logging.Handler):
    """Counts what is told, and wakes who waits for that."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.told: list[str] = []
        self.enough = asyncio.Event()
        self._wanted = enough

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        if len(self.told) >= self._wanted:
            self.enough.set()


def test_a_wait_that_lasts_is_told_again_and_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names what is waited for while the wait goes on."""
    monkeypatch.setattr(waiting, "SAY_SECONDS", 0.001)
    monkeypatch.setattr(waiting, "SAY_AGAIN_SECONDS", 0.001)

    async def wait() -> list[str]:
        heard = _Heard(3)
        logger = logging.getLogger(waiting.__name__)
        logger.addHandler(heard)
        try:
            with waiting.said("the last bus"):
                await asyncio.wait_for(heard.enough.wait(), 30)
        finally:
            logger.removeHandler(heard)
        return heard.told

    assert all(text.startswith("has waited for 0 s for the last bus") for text in asyncio.run(wait())[:3])


def test_a_short_wait_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """What ends soon leaves no line."""

    async def wait() -> None:
        with waiting.said("nothing much"):
            assert asyncio.get_running_loop().is_running()

    asyncio.run(wait())
    assert caplog.text == ""
