"""Through Spark, what no test of Apache Celeborn covers: kills at every point; promises.md has the list.

As in test_spark_rows.py everything goes through the workers, and one Spark serves most tests. Tasks wait half-way for
the test to kill somebody.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import local_cluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import worker_status
from tests.acceptance.spark_world import SMALL_FRAMES, Spark, World, conf
from tests.soak.proxy import SHOWN, Proxy
from tests.support.standalone import standalone_spark
from tests.support.waiting import wait_until

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 8


def gated(world: World, rows: int, hashes: int, trouble: Callable[[], None]) -> Any:
    """Four maps push half of their rows, then there is trouble, then they push the rest; returns what was read."""
    before = world.pushed()
    world.spark.send("gated_maps", str(world.marks), rows, hashes, PARTITIONS)
    world.wait_marks("map-*", 4)
    wait_until(lambda: world.pushed() > before, "the first halves")
    trouble()
    world.go()
    return world.spark.answer()


def maps_run(world: World) -> int:
    """How often maps of `gated` began."""
    return len(list(world.marks.glob("map-*")))


@pytest.mark.parametrize(("rows", "hashes"), [(2_000, 160), (40_000, 4)], ids=["push", "merged-push"])
def test_g2_spark_kill_9_mid_push_with_two_copies(world: World, rows: int, hashes: int) -> None:
    """Long rows alone in frames, and short ones merged, are on their way when a worker dies for good: the same maps go
    on, no stage runs again, the rows are those of an undisturbed run."""
    world.begin(2, small_frames=True)
    with world.through():
        expected = world.spark.ask("counted", rows, 4, hashes, PARTITIONS)
        found = gated(world, rows, hashes, world.cluster.workers[0].kill)
    assert found == expected
    assert maps_run(world) == 4
    assert world.generations() == {0}
    assert any(one.moves for one in world.shuffles()), "nothing had to move"


def test_g2_spark_kill_9_mid_commit_with_two_copies(world: World) -> None:
    """A worker dies as soon as one of the others has sealed something: no stage runs again, the answer is right."""
    rows, hashes, partitions = 20_000, 4, 400
    world.begin(2)
    expected = world.spark.ask("counted", rows, 4, hashes, partitions)
    victim, *others = world.cluster.workers

    def seals() -> int:
        return sum(worker_status(worker.http, 10.0)["counters"]["epoch_seals"] for worker in others)

    with world.through():
        before = seals()
        world.spark.send("counted", rows, 4, hashes, partitions)
        wait_until(lambda: seals() > before, "the first seal", 120.0)
        victim.kill()
        assert world.spark.answer() == expected
    assert not world.ran_again()
    assert world.generations() == {0}


def test_g2_spark_kill_9_mid_fetch_with_two_copies(world: World) -> None:
    """A worker dies when readers have a part of their rows: they end with all of them, no stage runs again."""
    rows, hashes = 60_000, 8
    world.begin(2, fetch_inFlight="1m", codec="none")
    with world.through():
        expected = world.spark.ask("counted", rows, 4, hashes, 2)
        world.spark.send("gated_readers", str(world.marks), rows, hashes)
        world.wait_marks("reader-*", 2)
        world.cluster.workers[0].kill()
        world.go()
        assert world.spark.answer() == expected
    assert len(list(world.marks.glob("reader-*"))) == 2, "a reader began again"
    assert world.generations() == {0}


@pytest.mark.parametrize("ack", ["written", "memory"])
def test_g3_spark_kill_9_and_restart_before_the_commit_without_replication(world: World, ack: str) -> None:
    """All workers die with what they acknowledged, and come back at once: WRITTEN has kept it and no map runs again;
    from MEMORY it is lost, which is heard, and the stage runs again. The rows are right both times."""
    rows, hashes = 20_000, 8
    world.begin(1, ack, small_frames=True, fetch_returnGrace="1s")

    def restart() -> None:
        for worker in world.cluster.workers:
            worker.kill()
            worker.start(wait=False)
        for worker in world.cluster.workers:
            worker.wait_ready()
        world.cluster.wait_ready()

    with world.through():
        expected = world.spark.ask("counted", rows, 4, hashes, PARTITIONS)
        assert gated(world, rows, hashes, restart) == expected
    if ack == "written":
        assert maps_run(world) == 4
        assert world.generations() == {0}
    else:
        assert maps_run(world) > 4, "acknowledged from memory, and nothing was lost"
        assert world.ran_again()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_g4_spark_the_leader_goes_in_every_phase(world: World, blow: signal.Signals) -> None:
    """The leader is killed, or stands still, as shuffles are registered, pushed to, committed, read and forgotten: the
    job ends right, what is kept can be read, what was forgotten goes, nothing is computed again."""
    rows, hashes = 20_000, 8
    hit: list[Server] = []

    def trouble() -> None:
        while hit:
            master = hit.pop()
            master.kill(signal.SIGCONT) if blow is signal.SIGSTOP else master.start()
        hit.append(world.cluster.leader())
        hit[0].kill(blow)

    world.begin(small_frames=True)
    with world.through():
        expected = world.spark.ask("counted", rows, 4, hashes, PARTITIONS)
        trouble()  # then shuffles are registered
        first = world.spark.ask("prepare", "basic")
        assert gated(world, rows, hashes, trouble) == expected  # places move as partitions split, then comes the commit
        assert maps_run(world) == 4
        trouble()  # then something that was kept is read
        kept = world.spark.ask("finish", "basic")
        assert [first, len(kept)] == [3, 10]
        assert not world.ran_again()
        assert world.generations() == {0}
        trouble()  # then all is forgotten

        def gone() -> bool:
            world.spark.ask("forget")
            return not world.shuffles()

        wait_until(gone, "forgotten shuffles to go", 60.0)


def exact(rows: int, hashes: int, spark: Spark, directory: Path) -> None:
    """Count and sum of rows that are shuffled while answers of workers are lost or late."""
    settings = {"worker": {"address": SHOWN}}
    with local_cluster(masters=1, workers=3, dir=directory / "cluster", settings=settings) as cluster:
        addresses = [worker.address for worker in cluster.workers]
        with Proxy(addresses, 5, rate=0.02, late_seconds=0.3, swallow=False) as proxy:
            world = World(cluster, spark, directory)
            world.begin(2, small_frames=True)
            with world.through():
                found = spark.ask("counted", rows, 8, hashes, PARTITIONS)
            assert found[:2] == [rows, rows * (rows - 1) // 2]
            assert world.generations() == {0}
            spark.stop()
    pushes = {what: count for what, count in proxy.counts.items() if what.endswith(" PUSH")}
    assert pushes, f"no answer of a push was lost or late: {proxy.counts}"


def test_g5_spark_counts_are_exact_while_answers_are_lost(spark: Spark, tmp_path: Path) -> None:
    """Answers of pushes come late or never: a quarter of a million rows are there once each."""
    exact(250_000, 1, spark, tmp_path)


@pytest.mark.timeout(3600)
def test_g5_spark_a_hundred_million_rows_are_exact_while_answers_are_lost(spark: Spark, tmp_path: Path) -> None:
    """The same with 10^8 rows, which are short."""
    exact(100_000_000, 0, spark, tmp_path)


def test_g10_spark_readers_start_before_a_duplicate_map_has_ended(world: World) -> None:
    """A stage fails for data lost below it while one of its maps goes on; the map runs again beside it, in the next
    attempt, and readers read before the first one ends: they have the second one's rows, and so has who reads after."""
    marker = "what is flipped"
    world.begin(small_frames=True)
    with world.through():
        assert world.spark.ask("marked", marker, str(world.marks)) == 100
        whole = marker.encode() * 20
        for path in world.files():
            data = path.read_bytes()
            at = data.find(whole)
            if at >= 0:
                path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        expected = sorted([4000, number.to_bytes(2, "big").hex()] for number in range(399))
        expected = sorted([*expected, [len(whole), whole[:2].hex()]])
        assert world.spark.ask("collect_marked") == expected
        assert (world.marks / "late").exists(), "no map went on"
        assert world.ran_again()
        ended = len(list(world.marks.glob("ended-0-*")))
        assert ended == 1, "the first attempt was not waiting"
        world.go()
        assert world.spark.ask("collect_marked") == expected


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark cluster on two host names."""
    with standalone_spark(tmp_path, cores=3) as started:
        yield started.address


def test_g9_spark_speculation_replicas_and_ranges_at_once(world: World, two_hosts: str) -> None:
    """A speculative attempt is through while the first one has pushed half, which then goes on; whoever wins, a worker
    with second copies dies meanwhile; the skewed partition is read by ranges of maps: exactly its rows."""
    settings = {
        **conf(world.cluster.endpoints, replication=2, fallback="never"),
        **SMALL_FRAMES,
        "spark.cores.max": "6",
        "spark.executor.memory": "700m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    own = {key: value for key, value in settings.items() if "shuffle" not in key and "holdfast." not in key}
    world.spark.begin(own)
    expected = world.spark.ask("skew_join", "", False)
    world.spark.begin(settings, two_hosts)
    with world.through():
        world.spark.send("skew_join", str(world.marks), True)
        world.wait_marks("map-*", 6)
        world.cluster.workers[0].kill()
        world.go()
        assert world.spark.answer() == expected
    assert expected[-1], "the plan was not split"
    assert (world.marks / "ended-0-1").exists(), "Spark did not speculate"
    assert world.generations() == {0}
