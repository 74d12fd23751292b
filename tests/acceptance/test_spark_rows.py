"""Through Spark, what the tests of Apache Celeborn's Spark side promise; tests/acceptance/promises.md has the list.

Everything is pushed to the workers and read from them (`World.through` counts it), and compared with what Spark's own
shuffle gives. One Spark serves most tests.
"""

import getpass
import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import QuotaExceededError, Session
from holdfast.client.cluster.local import local_cluster
from holdfast.client.connection.direct import ask
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.worker.storage.layout import shuffle_folder
from tests.acceptance.spark_world import MASTER, SMALL_FRAMES, Spark, World, conf, key_of
from tests.acceptance.test_push_rows import bytes_in
from tests.cluster.reduce_peers import metric
from tests.support.logged import lines_of
from tests.support.reduce_client import push
from tests.support.waiting import wait_until

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

SHAPES = ["basic", "several", "reused", "chained", "empty"]
#: Rows, maps, times 64 characters, partitions: 20 MB.
HUGE = (40_000, 4, 8, 8)
#: The same, 164 MB: half of it, the share of one of two workers, is more than a small disk takes.
FULL = (320_000, 4, 8, 8)
SMALL_MIB = 72


@pytest.fixture(scope="module")
def own(spark: Spark) -> dict[str, Any]:
    """What Spark's own shuffle gives. The plug-in is on the class path for the Sparks that follow."""
    settings = conf("127.0.0.1:1")
    spark.begin({key: value for key, value in settings.items() if "shuffle" not in key and "holdfast." not in key})
    found = {}
    for shape in SHAPES:
        found[f"prepare {shape}"] = spark.ask("prepare", shape)
        found[shape] = spark.ask("finish", shape)
    for name in ("reused_exchange", "everything"):
        found[name] = spark.ask(name)
    found["skew_join"] = spark.ask("skew_join", "", False)
    found["counted"] = spark.ask("counted", *HUGE)
    found["counted full"] = spark.ask("counted", *FULL)
    return found


def delete_files(world: World) -> None:
    """Delete all that the workers have on disk of the shuffles of this test."""
    files = world.files()
    assert files
    for path in files:
        path.unlink()


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        old = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([old[0] ^ 0x10]))


def test_row_03_files_deleted_at_the_first_read(world: World, own: dict[str, Any]) -> None:
    """Committed files are deleted as reading begins: the maps run again in the next generation, the answer is right."""
    world.begin()
    with world.through():
        assert world.spark.ask("prepare", "basic") == own["prepare basic"]
        assert world.generations() == {0}
        delete_files(world)
        assert world.spark.ask("finish", "basic") == own["basic"]
    assert world.ran_again()
    wait_until(lambda: world.generations() == {1}, "generation 0 to be dropped")


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_row_04_the_same_in_every_plan(world: World, own: dict[str, Any], shape: str) -> None:
    """Several shuffles, one read by two, a stage that reads and writes, and inputs with nothing in them."""
    world.begin()
    with world.through():
        assert world.spark.ask("prepare", shape) == own[f"prepare {shape}"]
        delete_files(world)
        assert world.spark.ask("finish", shape) == own[shape]
    assert world.ran_again()
    assert max(world.generations()) == 1


def test_row_05_attempts_of_a_barrier_stage_are_not_mixed(world: World) -> None:
    """A barrier stage that writes a shuffle fails three times after all its tasks have written everything: every record
    read is of the last attempt, each once."""
    world.begin()
    with world.through():
        attempts, count, total = world.spark.ask("barrier", str(world.marks), 3)
    assert (attempts, count, total) == ([3], 4_000, sum(range(4_000)))
    assert len(list(world.marks.glob("failed-*"))) == 3


def test_row_06_the_driver_hears_that_a_shuffle_is_lost(world: World, own: dict[str, Any]) -> None:
    """A worker with the only copies is gone for good: masters and driver hear it from a reader, the stage runs again,
    the answer is right."""
    world.begin(fetch_returnGrace="1s")
    with world.through():
        world.spark.ask("prepare", "basic")
        world.holder().kill()
        assert world.spark.ask("finish", "basic") == own["basic"]
    assert world.ran_again()
    assert 1 in world.generations()


@pytest.mark.parametrize("copies", [1, 2])
def test_row_07_a_flipped_bit_gives_no_wrong_row(world: World, own: dict[str, Any], copies: int) -> None:
    """One bit of the data is flipped: with one copy the stage runs again, with two nobody notices; the answer is right
    both times."""
    world.begin(copies)
    with world.through():
        world.spark.ask("prepare", "reused")
        victim = world.files()[0]
        of_one_worker = [path for path in world.files() if path.parts[:-2] == victim.parts[:-2]]
        for path in of_one_worker:
            flip(path)
        assert world.spark.ask("finish", "reused") == own["reused"]
    assert world.ran_again() == (copies == 1)
    assert max(world.generations()) == (1 if copies == 1 else 0)


def test_row_08_small_disks_split_and_get_their_space_back(tmp_path: Path, spark: Spark, own: dict[str, Any]) -> None:
    """A worker with less room than its share of a shuffle splits what it holds, and the rest goes to the other one; the
    answer is right, and the space is free when the application ends."""
    settings = {"worker": {"disk_reserve": "1MiB"}, "lease": {"deletion_grace": "100ms"}}
    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=settings) as cluster:
        small = cluster.workers[0]
        small.stop()
        config = cluster.directory / "w1.toml"
        config.write_text(config.read_text().replace('capacity = "0B"', f'capacity = "{SMALL_MIB}MiB"'))
        small.start()
        cluster.wait_ready()
        world = World(cluster, spark, tmp_path)
        world.begin(codec="none")
        with world.through():
            assert spark.ask("counted", *FULL) == own["counted full"]
        (large,) = [one for one in world.shuffles() if one.partitions == FULL[-1]]
        assert large.moves, "nothing was split for want of room"
        assert not world.ran_again()
        folders = world.folders()
        assert 0 < bytes_in(folder for folder in folders if small.name in folder.parts) < SMALL_MIB * MIB
        assert bytes_in(folders) > 2 * SMALL_MIB * MIB
        spark.stop()
        wait_until(lambda: not bytes_in(folders), "the space of an application that has ended", 120.0)


def test_row_19_a_worker_that_is_down_at_set_up(world: World, own: dict[str, Any]) -> None:
    """A worker is dead that the masters still call alive as the shuffle is placed: its maps push to the others."""
    world.begin(fetch_returnGrace="1s")
    world.cluster.workers[1].kill()
    with world.through():
        assert world.spark.ask("counted", *HUGE) == own["counted"]
    assert not world.ran_again()
    assert world.generations() == {0}


def test_row_20_forgotten_shuffles_give_their_space_back(world: World) -> None:
    """One shuffle, and then several at once, that Spark has no use for any more are gone from masters and workers; the
    application goes on."""
    world.begin()
    for shapes in (["basic"], ["several", "reused", "chained"]):
        with world.through():
            for shape in shapes:
                world.spark.ask("prepare", shape)
        folders = world.folders()
        assert bytes_in(folders)
        forgotten(world)
        wait_until(lambda: not bytes_in(folders), "the space of forgotten shuffles")  # noqa: B023 - asked at once


def forgotten(world: World) -> None:
    """Have Spark forget all that it keeps, and wait until the masters have heard."""

    def gone() -> bool:
        world.spark.ask("forget")
        return not world.shuffles()

    wait_until(gone, "the cleaner's word to reach the masters", 60.0)


def test_row_21_what_could_not_be_dropped_is_dropped_later(world: World) -> None:
    """A worker is down, and the leader goes, as shuffles are forgotten: the masters hear of it all the same, and the
    worker drops its files when it is back."""
    world.begin()
    with world.through():
        for shape in ("basic", "several"):
            world.spark.ask("prepare", shape)
    folders = world.folders()
    down = world.holder()
    down.kill()
    world.cluster.leader().kill()
    forgotten(world)
    there = [folder for folder in folders if down.name in folder.parts]
    assert bytes_in(there)
    down.start()
    wait_until(lambda: not bytes_in(folders), "the space of forgotten shuffles", 60.0)


def test_row_22_batches_pushed_again_are_read_once_by_ranges(world: World, own: dict[str, Any]) -> None:
    """A worker dies while maps push to it, so batches are sent again elsewhere; AQE then splits the skewed partition by
    ranges of maps: no sub-task has a row of another one."""
    world.begin(2, small_frames=True)
    with world.through():
        before = world.pushed()
        world.spark.send("skew_join", str(world.marks), False)
        world.wait_marks("map-*", 5)
        wait_until(lambda: world.pushed() > before, "the first halves")
        world.cluster.workers[0].kill()
        world.go()
        assert world.spark.answer() == own["skew_join"]
    assert own["skew_join"][-1], "the plan was not split"
    assert any(one.moves for one in world.shuffles()), "nothing had to move"
    assert world.generations() == {0}


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_row_23_a_skewed_join_with_every_codec(world: World, own: dict[str, Any], codec: str) -> None:
    """A skewed sort-merge join that AQE splits has the rows it should have."""
    world.begin(codec=codec)
    with world.through():
        assert world.spark.ask("skew_join", "", False) == own["skew_join"]


def test_row_24_an_exchange_read_by_ranges_and_whole(world: World, own: dict[str, Any]) -> None:
    """One shuffle is read by ranges of maps in one join and whole in another: both have the rows they should have."""
    world.begin()
    with world.through():
        assert world.spark.ask("reused_exchange") == own["reused_exchange"]
    assert own["reused_exchange"][-2:] == [True, True], "the plan does not have what this is about"


def test_row_25_everything_that_shuffles(world: World, own: dict[str, Any]) -> None:
    """combineByKey, groupByKey, repartition, sortByKey, SQL and broadcasts give what they give with Spark's own."""
    world.begin()
    with world.through():
        assert world.spark.ask("everything") == own["everything"]


def test_row_26_a_volume_above_the_split_size(world: World, own: dict[str, Any]) -> None:
    """Partitions grow above the size at which they split: several epochs of each, the same answer."""
    world.begin()
    with world.through():
        assert world.spark.ask("counted", *HUGE) == own["counted"]
    (large,) = [one for one in world.shuffles() if one.partitions == HUGE[-1]]
    assert large.epochs >= 2 * large.partitions


def test_row_27_a_generation_that_was_replaced_leaves_the_disks(world: World, own: dict[str, Any]) -> None:
    """After a rerun the folders of the old generation are gone, and those of the new one are there."""
    world.begin()
    with world.through():
        world.spark.ask("prepare", "basic")
        old = world.folders()
        for path in world.files():
            flip(path)
        assert world.spark.ask("finish", "basic") == own["basic"]
    wait_until(lambda: world.generations() == {1}, "generation 0 to be dropped")
    wait_until(lambda: not bytes_in(old), "the space of generation 0")
    assert bytes_in(world.folders())


def test_row_28_without_workers_it_is_sparks_own_shuffle(tmp_path: Path, spark: Spark, own: dict[str, Any]) -> None:
    """There are masters and no worker: Spark's own shuffle is used, which is logged, and the answer is right."""
    with local_cluster(masters=1, workers=0, dir=tmp_path / "cluster") as cluster:
        world = World(cluster, spark, tmp_path)
        spark.begin({**conf(cluster.endpoints), "spark.holdfast.register.timeout": "2s"}, MASTER)
        spark.ask("prepare", "basic")
        assert spark.ask("finish", "basic") == own["basic"]
        assert lines_of(world.log(), LogEvent.SHUFFLE_FALLBACK)
        assert not world.shuffles()


def test_row_42_over_its_quota_it_is_sparks_own_shuffle(tmp_path: Path, spark: Spark, own: dict[str, Any]) -> None:
    """Spark's user holds what users may: with `fallback=auto` Spark's own shuffle is used, which is logged with the
    masters' reason, and the answer is right; with `never` the job fails with that reason."""
    quota = {"quota": {"user_bytes": "100KiB"}, "lease": {"heartbeat": "200ms"}}
    reason = f'user "{getpass.getuser()}" holds '
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=quota) as cluster,
        Session(cluster.endpoints, app="before") as session,
    ):
        full = session.register_reduce_shuffle(1)
        full.commit([push(full, 0, 0, [(0, bytes(200 * KIB))])])

        def over() -> bool:
            try:
                session.register_reduce_shuffle(1).unregister()
            except QuotaExceededError:
                return True
            return False

        wait_until(over, "the heartbeat that tells it")

        def job() -> Any:
            spark.ask("prepare", "basic")
            return spark.ask("finish", "basic")

        world = World(cluster, spark, tmp_path)
        spark.begin(conf(cluster.endpoints), MASTER)
        assert job() == own["basic"]
        assert reason in lines_of(world.log(), LogEvent.SHUFFLE_FALLBACK)[0].replace("\\", "")
        counted = 'holdfast_master_fallbacks{reason="quota"}'
        wait_until(lambda: metric(cluster, counted) > 0, "the masters to count it")
        assert not world.shuffles()
        world.begin()
        with pytest.raises(AssertionError, match=reason):
            job()


def test_row_52_written_by_the_jvm_and_read_by_python(world: World) -> None:
    """A DataFrame is written by Spark's JVM; the Python client attaches to the application and reads the same rows:
    each record is a batch of rows, length and UnsafeRow. (Python to JVM is in tests/jvm/test_fetch.py.)"""
    rows = 5_000
    world.begin()
    with world.through():
        assert world.spark.ask("keep_rows", rows) == rows
    (shuffle,) = world.shuffles()
    with Session(world.cluster.endpoints, attach=shuffle.key.instance.hex()) as session:
        opened = session.open_reduce_shuffle(shuffle.key.shuffle)
        found = [row for record in opened.reader(range(4)) for row in unsafe_rows(bytes(record.payload))]
    assert sorted(found) == [(number, 3 * number) for number in range(rows)]


def unsafe_rows(payload: bytes) -> list[tuple[int, int]]:
    """Rows of two numbers: each its length, the bits of nulls, and eight bytes a field."""
    found, at = [], 0
    while at < len(payload):
        (size,) = struct.unpack_from("<i", payload, at)
        nulls, one, other = struct.unpack_from("<qqq", payload, at + 4)
        assert (size, nulls) == (24, 0)
        found.append((one, other))
        at += 4 + size
    return found


def test_attempts_differ_even_where_spark_calls_them_alike(world: World) -> None:
    """With `spark.shuffle.useOldFetchProtocol` all attempts of a map have one number in Spark: what a failed one had
    pushed is still not read."""
    world.spark.begin(
        {**conf(world.cluster.endpoints, fallback="never"), **SMALL_FRAMES, "spark.shuffle.useOldFetchProtocol": "true"}
    )
    with world.through():
        found = world.spark.ask("collide", str(world.marks))
    assert (world.marks / "failed").exists()
    assert found == [[[0, 1], 5_000], [[1, 0], 5_000], [[2, 0], 5_000], [[3, 0], 5_000]]


def test_shuffles_that_spark_cleans_early_come_back_and_go(world: World) -> None:
    """Spark may drop a shuffle as a query ends whose plan is asked again: its maps run again in the next generation,
    and when Spark drops that one it is gone as well, while the application lives on."""
    world.begin()
    with world.through():
        world.spark.ask("prepare", "basic")
        (shuffle,) = {one.key.shuffle for one in world.shuffles()}
        for _ in range(2):
            world.spark.ask("remove", shuffle)
            wait_until(lambda: not world.shuffles(), "the word to reach the masters")
            assert world.spark.ask("finish", "basic") == [[key, sum(range(key, 2_000, 10))] for key in range(10)]
            assert min(world.generations(), default=0) > 0, "the maps did not run again"
    world.spark.ask("remove", shuffle)
    wait_until(lambda: not world.shuffles(), "the last generation to be dropped")


@pytest.mark.parametrize("who", ["maps", "readers"])
def test_what_an_operator_forgets_under_a_running_job_is_computed_again(world: World, who: str) -> None:
    """An operator drops a shuffle that maps push to, or that readers are in the middle of: its maps run again in the
    next generation, and the answer is right."""
    rows, hashes = 60_000, 8
    world.begin(small_frames=True, fetch_inFlight="1m", fetch_returnGrace="1s")
    with world.through():
        expected = world.spark.ask("counted", rows, 4, hashes, 2)
        known = {one.key.shuffle for one in world.shuffles()}
        if who == "maps":
            world.spark.send("gated_maps", str(world.marks), rows, hashes, 2)
            world.wait_marks("map-*", 4)
        else:
            world.spark.send("gated_readers", str(world.marks), rows, hashes)
            world.wait_marks("reader-*", 2)
        (shuffle,) = [one for one in world.shuffles() if one.partitions == 2 and one.key.shuffle not in known]
        request = pb.ForgetRequest(instance=shuffle.key.instance, one_shuffle=True, shuffle=shuffle.key.shuffle)
        ask(world.cluster.leader().address, "Admin/Forget", request, pb.ForgetReply, 10.0)
        old = [
            world.cluster.directory / worker.name / shuffle_folder(key_of(shuffle)) for worker in world.cluster.workers
        ]
        wait_until(lambda: not bytes_in(old), "workers to drop it", 60.0)
        world.go()
        assert world.spark.answer() == expected
    assert max(world.generations()) >= 1


def test_a_job_waits_for_workers_that_come_back(world: World, own: dict[str, Any]) -> None:
    """All workers are dead, and the masters know it, when a stage is planned: it waits for one, and the answer is
    right."""
    world.begin()
    for worker in world.cluster.workers:
        worker.kill()

    def alive() -> int:
        request = pb.ListWorkersRequest()
        reply = ask(world.cluster.leader().address, "Admin/ListWorkers", request, pb.ListWorkersReply, 10.0)
        return sum(one.state == "alive" for one in reply.workers)

    wait_until(lambda: not alive(), "the leases of the workers to end", 60.0)
    world.spark.send("counted", *HUGE)
    wait_until(lambda: lines_of(world.log(), LogEvent.SHUFFLE_WAITING), "the job to wait", 120.0)
    for worker in world.cluster.workers:
        worker.start()
    assert world.spark.answer() == own["counted"]
    assert world.generations() == {0}
