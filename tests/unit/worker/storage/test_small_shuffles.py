"""Small shuffles cost nothing before their seal: no sync, no file of their own; in memory nothing on any disk."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage.store import Store
from tests.support.reduce_data import Writer, shuffle_of
from tests.unit.worker.storage.reduce_world import World

SHUFFLES = 40
PARTITIONS = 8


def push_shuffles(world: World, first: int, count: int, ack: Ack) -> list[ShuffleKey]:
    """Small shuffles, four maps each."""
    keys = [shuffle_of(number) for number in range(first, first + count)]
    for key in keys:
        for map_id in range(4):
            writer = Writer(key, map_id, map_id)
            frame = [writer.batch(partition, os.urandom(150)) for partition in range(PARTITIONS)]
            assert world.push(writer, frame, ack) == {}
    return keys


def seal_all(store: Store, keys: Sequence[ShuffleKey]) -> None:
    """Seal them for good."""
    for key in keys:
        for _, answer in store.reduce.seal(key, True, [(partition, 0) for partition in range(PARTITIONS)]):
            assert isinstance(answer, Future)
            assert {one.status for one in answer.result(60).values()} == {Status.OK}


def data_files(root: Path) -> list[Path]:
    """What lies below data/."""
    return [path for path in (root / "data").rglob("*") if path.is_file()]


def everything(root: Path) -> dict[str, tuple[int, int]]:
    """Every file of a directory with its length and when it was changed."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN])
def test_before_its_seal_a_small_shuffle_has_no_file_and_no_sync(tmp_path: Path, ack: Ack) -> None:
    """They share the log that is there; with their seal comes one pack file each."""
    world = World(tmp_path)
    push_shuffles(world, 0, 1, ack)  # the log begins, and is recorded in the index
    syncs = world.store.syncs
    keys = push_shuffles(world, 1, SHUFFLES, ack)
    assert world.store.syncs == syncs
    assert data_files(tmp_path / "0") == []
    assert len(list((tmp_path / "0" / "log").iterdir())) == 1
    seal_all(world.store, keys)
    assert len(data_files(tmp_path / "0")) == SHUFFLES
    # of the pack file, of names (two folders are new), and of the index
    assert world.store.syncs - syncs <= 5 * SHUFFLES


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN])
def test_in_memory_nothing_of_a_small_shuffle_reaches_a_disk(tmp_path: Path, ack: Ack) -> None:
    """With a MEMORY directory that has room, shuffles are pushed, sealed, read and forgotten without a change of any
    file on the disk beside it."""
    world = World(tmp_path, tiers=["MEMORY", "SSD"], capacity_bytes=1 << 30)
    world.core.choose = world.store.tiering.choose
    world.store.look(0.1, 1 << 40)
    before = everything(tmp_path / "1")
    keys = push_shuffles(world, 0, SHUFFLES, ack)
    seal_all(world.store, keys)
    assert len(data_files(tmp_path / "0")) == SHUFFLES
    for key in keys:
        place = world.store.reduce.chunks(key, 0, 0)
        assert Path(place.path).is_relative_to(tmp_path / "0")
    world.store.look(0.1, 1 << 40)
    assert world.store.tiering.step(1.0) == []
    assert world.store.forget(keys).result(30) == SHUFFLES
    assert everything(tmp_path / "1") == before
