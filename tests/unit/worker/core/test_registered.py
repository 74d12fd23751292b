"""What a worker knows of what the masters have, and who waits for it."""

from collections.abc import Callable

import pytest

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey, StateId, WorkerId
from holdfast.common.statuses import Status
from holdfast.worker.core.write import registered as module
from holdfast.worker.core.write.registered import ANSWER_NS, RegisteredShuffles


def key(number: int, state: int = 1) -> ShuffleKey:
    return ShuffleKey(Instance(bytes(16)), ShuffleId(number), Generation(0), StateId(state))


class Reported:
    """Who asked, with what they were told."""

    def __init__(self) -> None:
        self.heard: dict[str, Status | None] = {}

    def by(self, name: str) -> Callable[[HoldfastError | None], None]:
        def then(reason: HoldfastError | None) -> None:
            assert name not in self.heard, "everybody is told once"
            self.heard[name] = None if reason is None else reason.status

        return then


def test_all_that_wait_are_answered_at_once_and_once() -> None:
    """One question for all who ask for the same; what is registered is remembered, what is not is not, and may be in a
    moment. A key without a state stands for no data, whatever the masters say of it."""
    registered, reported = RegisteredShuffles(), Reported()
    registered.ask(key(1), 1, (), 0, reported.by("a"))
    registered.ask(key(1), 2, (), 0, reported.by("b"))
    registered.ask(key(2), 1, (), 0, reported.by("c"))
    registered.ask(key(3, state=0), 1, (), 0, reported.by("d"))
    assert registered.questions() == ([key(1), key(2), key(3, state=0)], [])
    for then, reason in registered.answered(registered.questions()[0], {key(1), key(3, state=0)}, [], {}):
        then(reason)
    unknown = Status.UNKNOWN_SHUFFLE
    assert reported.heard == {"a": None, "b": None, "c": unknown, "d": unknown}
    assert [registered.knows(key(number)) for number in (1, 2)] == [True, False]
    assert registered.questions() == ([], [])
    registered.check()
    registered.forget(key(1))
    assert not registered.knows(key(1))


def test_what_is_learnt_meanwhile_ends_the_wait() -> None:
    """The leader tells of a shuffle while the worker asks for it."""
    registered, reported = RegisteredShuffles(), Reported()
    registered.ask(key(1), 1, (), 0, reported.by("a"))
    for then in registered.learn([key(1)]):
        then(None)
    assert reported.heard == {"a": None}
    assert registered.answered([key(1)], set(), [], {}) == []
    registered.check()


def test_nobody_waits_without_end() -> None:
    """Masters that say nothing: whoever has waited for so long hears BUSY, and no one else."""
    registered, reported = RegisteredShuffles(), Reported()
    registered.ask(key(1), 1, (), 0, reported.by("early"))
    registered.ask(key(1), 1, (), 5, reported.by("late"))
    registered.ask(WorkerId(7), 0, (), 0, reported.by("place"))
    for then, reason in registered.tick(ANSWER_NS):
        then(reason)
    assert reported.heard == {"early": Status.BUSY, "place": Status.BUSY}
    assert registered.waiting == 1
    registered.check()


def test_places_are_those_that_were_said_last() -> None:
    """A worker that nobody knows has no place; one that moved is where it is now."""
    registered, reported = RegisteredShuffles(), Reported()
    registered.learn_address(WorkerId(7), "old:1")
    registered.ask(WorkerId(7), 0, (), 0, reported.by("a"))
    registered.ask(WorkerId(8), 0, (), 0, reported.by("b"))
    assert registered.questions() == ([], [WorkerId(7), WorkerId(8)])
    for then, reason in registered.answered([], set(), [WorkerId(7), WorkerId(8)], {WorkerId(7): "new:1"}):
        then(reason)
    assert reported.heard == {"a": None, "b": None}
    assert [registered.address_of(WorkerId(number)) for number in (7, 8)] == ["new:1", ""]


def test_waiting_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per connection and in all; the oldest shuffle is remembered no more."""
    monkeypatch.setattr(module, "WAITING_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    monkeypatch.setattr(module, "SHUFFLES_MAX", 2)
    registered, reported = RegisteredShuffles(), Reported()
    registered.ask(key(1), 1, (), 0, reported.by("a"))
    registered.ask(key(2), 1, (), 0, reported.by("b"))
    with pytest.raises(RetryError):
        registered.ask(key(3), 1, (), 0, reported.by("c"))
    registered.ask(key(3), 2, (), 0, reported.by("d"))
    with pytest.raises(RetryError):
        registered.ask(key(4), 3, (), 0, reported.by("e"))
    registered.learn([key(5), key(6), key(7)])
    assert [registered.knows(key(number)) for number in (5, 6, 7)] == [False, True, True]
    registered.check()
