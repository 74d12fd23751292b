"""A mistake of ours in the decisions of a writer ends its attempt, and leaves nobody waiting."""

import threading
from typing import Any

import pytest

from holdfast.client import Session
from holdfast.client.core.write.map_write import MapWrite
from holdfast.client.write import writer
from holdfast.common.errors import RetryError
from holdfast.common.statuses import Status
from tests.cluster.shapes import Shape
from tests.support.waiting import wait_until

SHARED = Shape(masters=1, workers=1)


def wrong(*_: Any) -> Any:
    """What the core does in the place of a decision."""
    raise AssertionError("two and two are five")


def ends(shuffle: Any) -> list[BaseException]:
    """Write a map in a thread of its own, for who waits there cannot be asked; return what its `close` raised."""
    raised: list[BaseException] = []

    def attempt() -> None:
        with shuffle.writer(0, 1) as one:
            try:
                one.close([(0, b"a record")])
            except BaseException as error:  # noqa: BLE001 - it is what the test is about
                raised.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    wait_until(lambda: not thread.is_alive(), "the attempt to end")
    return raised


def test_a36_a_mistake_as_an_answer_comes_ends_the_attempt(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` of a map writer raises what went wrong when a frame was acknowledged; it does not wait for ever."""
    shuffle = session.register_map_shuffle(1)
    monkeypatch.setattr(MapWrite, "acked", wrong)
    (error,) = ends(shuffle)
    assert "two and two" in str(error)


def test_a36_a_mistake_as_time_is_over_ends_the_attempt(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the mistake is made because no acknowledgement came in time."""
    shuffle = session.register_map_shuffle(1)
    monkeypatch.setattr(writer, "ACK_SECONDS", 0.5)
    monkeypatch.setattr(writer._MapSender, "_answered", lambda *_: None)
    monkeypatch.setattr(MapWrite, "failed", wrong)
    (error,) = ends(shuffle)
    assert "two and two" in str(error)


def test_a36_a_mistake_as_a_pause_ends_ends_the_attempt(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where it is made when the attempt begins again after a failure."""
    shuffle = session.register_map_shuffle(1)

    async def busy(*_: Any) -> int:
        raise RetryError("not now", status=Status.BUSY)

    monkeypatch.setattr(writer._MapSender, "_open", busy)
    monkeypatch.setattr(MapWrite, "woken", wrong)
    (error,) = ends(shuffle)
    assert "two and two" in str(error)
