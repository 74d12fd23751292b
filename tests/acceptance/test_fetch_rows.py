"""Fetching, as the tests of Apache Celeborn promise it; tests/acceptance/promises.md has the list."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from holdfast.client import ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.read.stream_reader import STALL_SECONDS
from holdfast.common.errors import CorruptError
from holdfast.worker.storage.layout import shuffle_folder
from tests.support.reduce_client import MAPS, PARTITIONS, contents, fill, push, read, records_of


def files_of(cluster: LocalCluster, shuffle: ReduceShuffle) -> dict[Path, bytes]:
    """Everything that the workers have on disk of a shuffle."""
    folders = [cluster.directory / worker.name / shuffle_folder(shuffle.key) for worker in cluster.workers]
    return {path: path.read_bytes() for folder in folders if folder.is_dir() for path in folder.iterdir()}


def flip(path: Path, marker: bytes) -> bool:
    """Flip one bit in the middle of the marker, if the file holds it."""
    at = path.read_bytes().find(marker)
    if at < 0:
        return False
    with path.open("r+b") as file:
        file.seek(at + len(marker) // 2)
        old = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([old[0] ^ 0x10]))
    return True


@pytest.mark.parametrize("copies", [1, 2])
def test_row_07_a_flipped_bit_is_never_read(cluster: LocalCluster, session: Session, copies: int) -> None:
    """One bit of a sealed file is flipped: with one copy the read is refused by name and everything else is read, and
    the next generation has the right result; with two copies the reader does not notice."""
    marker = random.Random(copies).randbytes(5_000)
    data = {0: [*records_of(0), (2, marker)], 1: records_of(1)}
    shuffle = session.register_reduce_shuffle(PARTITIONS, replication=copies)
    shuffle.commit([push(shuffle, map_id, 10 + map_id, records) for map_id, records in data.items()])
    assert any(flip(path, marker) for path in files_of(cluster, shuffle)), "no file has the marker"
    if copies == 2:
        assert read(shuffle) == contents(data)
        return
    with pytest.raises(CorruptError) as caught:
        read(shuffle)
    assert str(shuffle.key) in str(caught.value)
    assert "partition 2" in str(caught.value)
    others = [0, 1, 3]
    assert read(shuffle, others) == {partition: contents(data)[partition] for partition in others}
    again = session.register_reduce_shuffle(PARTITIONS, shuffle_id=shuffle.key.shuffle, generation=1)
    again.commit([push(again, map_id, 20 + map_id, records) for map_id, records in data.items()])
    assert read(again) == contents(data)


def test_row_13_whole_and_by_ranges_of_maps(cluster: LocalCluster, session: Session) -> None:
    """Whole, by every range of maps, and whole again while another reader is in the middle: always exactly the records
    asked for, and no read changes a byte on disk."""
    shuffle, expected = fill(session, replication=2)
    before = files_of(cluster, shuffle)
    halfway = shuffle.reader(range(PARTITIONS))
    next(halfway)
    assert read(shuffle) == expected
    for begin in range(MAPS):
        for end in range(begin + 1, MAPS + 1):
            wanted = {
                partition: {key: count for key, count in each.items() if begin <= key[0] < end}
                for partition, each in expected.items()
            }
            found = read(shuffle, maps=range(begin, end))
            assert found == {partition: each for partition, each in wanted.items() if each}
    assert read(shuffle) == expected
    assert 1 + sum(1 for _ in halfway) == sum(each.total() for each in expected.values())
    assert before
    assert files_of(cluster, shuffle) == before


def test_row_43_a_silent_worker_is_left_for_the_other_copy(cluster: LocalCluster, session: Session) -> None:
    """A worker that the masters call alive stands still: whoever reads what it and others have does not wait for it as
    for a worker that has the only copy, and gets everything."""
    shuffle, expected = fill(session, replication=2)
    cluster.workers[0].kill(signal.SIGSTOP)
    begin = time.monotonic()
    assert read(shuffle) == expected
    assert time.monotonic() - begin < STALL_SECONDS / 2
