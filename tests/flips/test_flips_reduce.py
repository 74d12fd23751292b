"""Flipped bytes in index records of REDUCE partitions: the same answers and batches all the same, from the footers."""

import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.common.errors import CorruptError
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.index.index import CHUNK_SPACE, EPOCH_SPACE, FILE_SPACE, FINAL_SPACE
from holdfast.worker.storage.index.records import encode_shuffle
from holdfast.worker.storage.offline.verify import Severity, verify_directory
from tests.support.forks import finish, start
from tests.support.reduce_data import Writer
from tests.support.storage_env import CheckHere
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

EPOCHS = [(partition, 0) for partition in range(8)]
#: From the beginning of a key: in the key, in the head of the record, in its rows or checksum.
OFFSETS = (5, 26, 40, 70)
Batches = dict[int, list[tuple[int, int, int]]]


def make(root: Path) -> tuple[list[SealedEpoch], Batches]:
    """A directory with a pack file, a partition file, and one of so many chunks that they have records of their own."""
    world = World(root)
    writer = Writer(SHUFFLE)
    for _ in range(3):
        world.push(writer, [writer.batch(partition, os.urandom(400)) for partition in range(6)])
    world.push(writer, [writer.batch(6, os.urandom(100_000))])
    for _ in range(10):
        world.push(writer, [writer.batch(7, os.urandom(40_000))])
    answers = world.seal(EPOCHS)
    found = read_all(world)
    world.store.close()
    return answers, found


def read_all(world: World) -> Batches:
    """(map, number, CRC) of the batches of every epoch."""
    return {partition: [(one.map, one.number, one.crc) for one in world.read(partition)] for partition, _ in EPOCHS}


def places(root: Path) -> list[tuple[bytes, int]]:
    """(space, offset in the index file) of every record of the shuffle, also in pages that nothing refers to."""
    data = (root / "0" / names.INDEX_DATA).read_bytes()
    found = []
    for space in (FILE_SPACE, EPOCH_SPACE, CHUNK_SPACE, FINAL_SPACE):
        at, key = -1, space + encode_shuffle(SHUFFLE)
        while (at := data.find(key, at + 1)) >= 0:
            found.append((space, at))
    return found


def trial(base: Path, root: Path, offset: int, answers: list[SealedEpoch], expected: Batches) -> tuple[bool, str]:
    """Flip a byte of the index; return whether verify sees it, and what is wrong then. Run in a child."""
    shutil.copytree(base / "0" / names.INDEX, root / "0" / names.INDEX)
    for path in (base / "0").iterdir():
        if not path.is_dir():
            shutil.copy(path, root / "0" / path.name)
        elif path.name != names.INDEX:
            shutil.copytree(path, root / "0" / path.name, copy_function=os.link)
    with (root / "0" / names.INDEX_DATA).open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0x21]))
    seen = any(one.severity is Severity.DAMAGE for one in verify_directory(str(root / "0")).findings)
    for turn in ("first", "second"):
        world = World(root)
        try:
            if world.seal(EPOCHS) != answers:
                return seen, f"{turn} start: other answers"
            if read_all(world) != expected:
                return seen, f"{turn} start: other batches"
        except CorruptError as error:
            return seen, f"{turn} start: {error}"
        finally:
            world.store.close()
    return seen, ""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 32 KiB, two rows in a record, so that a small epoch has rows of its own."""
    monkeypatch.setattr("holdfast.worker.storage.engine.partition.CHUNK_BYTES", 32 * KIB)
    monkeypatch.setattr("holdfast.worker.storage.index.index.ROWS_MAX", 2)


def test_flips_in_index_records_of_reduce_partitions(tmp_path: Path) -> None:
    """A flipped byte in any record of the spaces F, E, C and G is named by verify or lies where nothing refers to it;
    seals answer as before and all is read, since the footers repeat the records."""
    answers, expected = make(tmp_path / "base")
    assert {answer.status for answer in answers} == {Status.OK}
    found = places(tmp_path / "base")
    assert {space for space, _ in found} == {FILE_SPACE, EPOCH_SPACE, CHUNK_SPACE, FINAL_SPACE}
    seen = dict.fromkeys((FILE_SPACE, EPOCH_SPACE, CHUNK_SPACE, FINAL_SPACE), 0)
    chosen = [found[index] for index in range(0, len(found), max(1, len(found) // 8))]
    chosen += [one for one in found if one[0] in (CHUNK_SPACE, FINAL_SPACE)]
    with patch("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere)):
        for number, (space, at) in enumerate(chosen):
            for turn, offset in enumerate(OFFSETS[: 2 if space == FINAL_SPACE else 4]):
                root = tmp_path / f"{number}.{turn}"
                (root / "0").mkdir(parents=True)
                place = at + offset

                def act(root: Path = root, place: int = place) -> tuple[bool, str]:
                    return trial(tmp_path / "base", root, place, answers, expected)

                outcome = finish(*start(act))
                assert isinstance(outcome, tuple)
                assert not outcome[1], f"{space!r} at {at} + {offset}: {outcome[1]}"
                seen[space] += outcome[0]
                shutil.rmtree(root)
    assert all(seen.values()), f"no damage was seen in some space: {seen}"
