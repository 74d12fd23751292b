"""What is decoded of a shuffle's arrays is decoded once, however many ask in the same moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult, ReduceManifest
from holdfast.common.ids import Epoch, PartitionId, WorkerId
from holdfast.common.statuses import Status
from holdfast.master.control import locations as module
from holdfast.master.control.locations import INLINE_MAX, Locations
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Shuffle
from holdfast.master.state_machine.state_machine import StateMachine
from tests.support.waiting import wait_until_async
from tests.unit.master.build import application, encode_entry, key, reduce, worker

#: Too many to be decoded in the loop.
PARTITIONS = INLINE_MAX + 1
CALLERS = 200


@pytest.fixture
def shuffle() -> Shuffle:
    """One that is committed, on worker 1 alone."""
    sealed = (CopyResult(WorkerId(1), Status.OK, 7),)
    epochs = [EpochResult(PartitionId(number), Epoch(0), sealed) for number in range(PARTITIONS)]
    manifest = ReduceManifest(PARTITIONS, tuple(epochs)).encode()
    machine = StateMachine()
    bodies = (worker(1), worker(2), application(), reduce(partitions=PARTITIONS))
    machine.apply(1, 1, encode_entry(cmd.LogEntry(1_000, tuple(cmd.Command(body) for body in bodies))))
    found = machine.state.shuffle(key())
    assert found is not None
    return replace(found, manifest=manifest, manifest_version=1)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The threads in which this function of the module ran, one entry a call."""
    threads: list[int] = []
    plain: Callable[..., Any] = getattr(module, name)

    def decode(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return plain(*arguments)

    monkeypatch.setattr(module, name, decode)
    return threads


def asked(what: Callable[[Locations], Awaitable[Any]]) -> list[Any]:
    """What many callers get that ask at once."""

    async def ask() -> list[Any]:
        locations = Locations()
        return await asyncio.gather(*(what(locations) for _ in range(CALLERS)))

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("decoding", "method"), [("_manifest_workers", "manifest_workers"), ("First", "first"), ("_now", "now")]
)
def test_readers_that_ask_at_once_have_it_decoded_once(
    shuffle: Shuffle, monkeypatch: pytest.MonkeyPatch, decoding: str, method: str
) -> None:
    """A thousand readers of a shuffle wait for its commit and ask in one moment: each decoding anew would keep the
    leader from answering any of them. It is done outside the loop."""
    threads = counted(monkeypatch, decoding)
    found = asked(lambda locations: getattr(locations, method)(shuffle))
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert all(each is found[0] for each in found)


def test_who_is_cancelled_takes_nothing_from_others(shuffle: Shuffle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to ask gives up; whoever waits with it gets what it asked for, and nothing is decoded again."""
    threads = counted(monkeypatch, "_manifest_workers")

    async def story() -> frozenset[int]:
        locations = Locations()
        ask = partial(locations.manifest_workers, shuffle)
        first, second = asyncio.ensure_future(ask()), asyncio.ensure_future(ask())
        await wait_until_async(lambda: locations._workers._running, "both to wait")
        first.cancel()
        return await second

    assert asyncio.run(story()) == {1}
    assert len(threads) == 1
