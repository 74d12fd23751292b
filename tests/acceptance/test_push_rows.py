"""Pushing, splitting and forgetting, as the tests of Apache Celeborn promise them; promises.md has the list."""

import contextlib
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.client import Codec, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.write.push_writer import BUFFER_BYTES_MIN
from holdfast.common.errors import GiveUpError
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.limits import KIB, MIB
from holdfast.worker.storage.layout import shuffle_folder
from tests.support.changing import files_below
from tests.support.reduce_client import Records, contents, fill, push, read, records_of
from tests.support.waiting import wait_until

PARTITIONS = 8


def bytes_in(folders: Iterable[Path]) -> int:
    """What is on disk below these folders; files may go meanwhile."""
    sizes = []
    for path in [path for folder in folders for path in files_below(folder)]:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


def folders_of(cluster: LocalCluster, shuffle: ReduceShuffle) -> list[Path]:
    """Where the workers keep the files of a shuffle."""
    return [cluster.directory / worker.name / shuffle_folder(shuffle.key) for worker in cluster.workers]


def epochs_of(shuffle: ReduceShuffle) -> dict[int, list[EpochResult]]:
    """The epochs of each partition, in order."""
    found: dict[int, list[EpochResult]] = {}
    for epoch in shuffle.manifest().epochs.epochs:
        found.setdefault(epoch.partition, []).append(epoch)
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_row_01_every_piece_once_with_every_codec(session: Session, codec: Codec) -> None:
    """Maps push pieces of all sizes at the same time, alone and merged into frames, compressible and not: each
    partition holds every piece exactly once."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, replication=2)
    rng = random.Random(1)
    data: dict[int, Records] = {}
    for map_id in range(6):
        data[map_id] = records_of(map_id, 150, PARTITIONS)
        data[map_id] += [(rng.randrange(PARTITIONS), bytes([map_id]) * rng.choice([1, 900, 90_000])) for _ in range(50)]
        rng.shuffle(data[map_id])
    with ThreadPoolExecutor(len(data)) as pool:
        pushes = [
            pool.submit(push, shuffle, map_id, map_id, records, codec=codec, buffer_bytes=BUFFER_BYTES_MIN)
            for map_id, records in data.items()
        ]
        shuffle.commit([each.result() for each in pushes])
    expected = contents(data)
    for partition in range(PARTITIONS):
        assert read(shuffle, [partition]) == {partition: expected[partition]}


def test_row_08_small_disks_split_and_get_their_space_back(tmp_path: Path) -> None:
    """A worker that may use little hard-splits what it holds when that is used up, and the rest goes to the other one;
    the result is exact, and when the application has ended its space is free again."""
    settings = {"worker": {"disk_reserve": "1MiB"}, "lease": {"deletion_grace": "100ms"}}
    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=settings) as cluster:
        small = cluster.workers[0]
        small.stop()
        config = cluster.directory / "w1.toml"
        config.write_text(config.read_text().replace('capacity = "0B"', 'capacity = "72MiB"'))
        small.start()
        cluster.wait_ready()
        with Session(cluster.endpoints, app="small") as session:
            shuffle = session.register_reduce_shuffle(PARTITIONS)
            data: dict[int, Records] = {}
            statuses = []

            def moved() -> bool:
                map_id = len(data)
                data[map_id] = records_of(map_id, 100, PARTITIONS, size_max=400_000)
                statuses.append(push(shuffle, map_id, map_id, data[map_id]))
                return any(place.epoch for place in shuffle.routes().locations.current)

            wait_until(moved, "a split for want of room")
            moved()
            shuffle.commit(statuses)
            assert read(shuffle, range(PARTITIONS)) == contents(data)
            folders = folders_of(cluster, shuffle)
            assert bytes_in(folders) > 72 * MIB
        small.stop()
        small.start()  # it asks what was dropped as it starts, and every ten seconds
        wait_until(lambda: not bytes_in(folders[:1]), "the space of an application that has ended")


@pytest.mark.parametrize(("soft", "hard"), [(256 * KIB, 512 * MIB), (512 * KIB, 512 * KIB)], ids=["soft", "hard"])
def test_row_11_only_the_members_of_a_merged_push_that_are_full_split(tmp_path: Path, soft: int, hard: int) -> None:
    """Of frames that carry all partitions only the one that outgrows its place gets new epochs; content is exact."""
    sizes = {"worker": {"soft_split": f"{soft}B", "hard_split": f"{hard}B"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=sizes) as cluster,
        Session(cluster.endpoints, app="splits") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, replication=2)
        data = {map_id: records_of(map_id, 200, PARTITIONS, size_max=3_000) for map_id in range(3)}
        for map_id, records in data.items():
            rng = random.Random(100 + map_id)
            records += [(0, rng.randbytes(30_000)) for _ in range(40)]
            rng.shuffle(records)
        shuffle.commit([push(shuffle, m, m, records, buffer_bytes=BUFFER_BYTES_MIN) for m, records in data.items()])
        assert read(shuffle, range(PARTITIONS)) == contents(data)
        epochs = epochs_of(shuffle)
        assert len(epochs[0]) > 1
        assert [epoch.epoch for epoch in epochs[0]] == list(range(len(epochs[0])))
        assert all(len(epochs[partition]) == 1 for partition in range(1, PARTITIONS))


@pytest.mark.parametrize("copies", [1, 2])
def test_row_19_a_worker_that_is_down_at_set_up(cluster: LocalCluster, session: Session, copies: int) -> None:
    """A shuffle is registered while a worker that the masters call alive is dead, so places are on it: its maps push to
    the others, and the result is exact."""
    cluster.workers[1].kill()
    shuffle = session.register_reduce_shuffle(PARTITIONS, replication=copies)
    data = {map_id: records_of(map_id, partitions=PARTITIONS) for map_id in range(2)}
    statuses = [push(shuffle, map_id, map_id, records) for map_id, records in data.items()]
    cluster.workers[1].start()  # with one copy a commit would wait for it: only it knows that it had nothing
    shuffle.commit(statuses)
    assert read(shuffle, range(PARTITIONS)) == contents(data)
    assert any(epoch.epoch for epoch in shuffle.manifest().epochs.epochs), "nothing was placed on the dead worker"


def test_row_20_unregistering_frees_the_space(cluster: LocalCluster, session: Session) -> None:
    """One shuffle, and many at a time, committed or not, are gone from every worker once they are unregistered; another
    one stays and is read."""
    committed = [fill(session, replication=2)[0] for _ in range(3)]
    open_one = session.register_reduce_shuffle(PARTITIONS)
    push(open_one, 0, 1, records_of(1, 200, PARTITIONS))
    kept, expected = fill(session, replication=2)
    assert all(bytes_in(folders_of(cluster, shuffle)) for shuffle in committed)
    for shuffle in (*committed, open_one):
        shuffle.unregister()
    gone = [folder for shuffle in (*committed, open_one) for folder in folders_of(cluster, shuffle)]
    wait_until(lambda: not bytes_in(gone), "the space of unregistered shuffles")
    assert read(kept) == expected
    with pytest.raises(GiveUpError):
        read(committed[0])
