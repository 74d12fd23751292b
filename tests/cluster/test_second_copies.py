"""Second copies of REDUCE partitions whose worker is away at the commit: it is waited for a while, and what it missed
is sealed when it is back. Real processes; socket peers where a worker must answer what a test wants.
"""

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import MapShuffle, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import DataLostError, HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import EpochResult, ReduceLocations
from holdfast.common.log_events import LogEvent
from holdfast.common.net.control import ControlClient
from holdfast.common.statuses import Status
from tests.cluster.masters import CALM, agree, leader_of, run
from tests.cluster.reduce_peers import ReduceDriver, metric, push_one_each, world
from tests.support.logged import logged
from tests.support.waiting import wait_until, wait_until_async

COMMAND = [sys.executable, "-m", "holdfast.tools.cli.main"]
#: A machine under load may take its time to start a worker.
PATIENT = {"worker": {"copy_grace": "30s"}}
#: Commits do not wait for second copies at all.
AT_ONCE = {"worker": {"copy_grace": "0s"}}
UNDER_REPLICATED = "holdfast_master_under_replicated_epochs"


def copies(reported: tuple[EpochResult, ...]) -> list[int]:
    """How many copies of each first epoch can be read."""
    return [len(each.readable) for each in reported if each.epoch == 0]


def cli(cluster: LocalCluster, *words: str, status: int = 0) -> Any:
    """What a command says with --json."""
    command = [*COMMAND, *words, "--masters", cluster.endpoints, "--json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == status, done.stderr.decode()
    return json.loads(done.stdout)


def page(cluster: LocalCluster) -> str:
    with urllib.request.urlopen(f"http://{leader_of(cluster).address}/", timeout=60) as answer:
        return str(answer.read().decode())


#: What `write` writes, by partition and map.
RECORDS = {(partition, map_id): bytes([partition, map_id]) * 500 for partition in range(4) for map_id in range(3)}


def write(shuffle: MapShuffle | ReduceShuffle) -> list[Any]:
    """Three maps, each with a record for each of four partitions; return the statuses to commit."""
    statuses: list[Any] = []
    for map_id in range(3):
        if isinstance(shuffle, MapShuffle):
            writer = shuffle.writer(map_id, attempt=map_id)
            statuses.append(writer.close([(partition, RECORDS[partition, map_id]) for partition in range(4)]))
        else:
            pushed = shuffle.writer(map_id)
            for partition in range(4):
                pushed.write(partition, RECORDS[partition, map_id])
            statuses.append(pushed.close())
    return statuses


def read(shuffle: ReduceShuffle, **options: Any) -> dict[tuple[int, int], bytes]:
    """What a reader gets, by partition and map."""
    return {(each.partition, each.map): bytes(each.payload) for each in shuffle.reader(range(4), **options)}


def test_a06_a_worker_started_again_at_the_commit_keeps_its_copy(tmp_path: Path):
    """Two copies; one worker is killed just before the commit and started at once. The commit waits for it, and both
    copies of every epoch stand in the manifest."""

    async def story(cluster: LocalCluster) -> None:
        async with ControlClient(cluster.endpoints) as client:
            driver = ReduceDriver(client)
            await driver.register()
            placed, reply = await driver.open(partitions=6, copies=2)
            await push_one_each(driver, placed, reply, Ack.WRITTEN)
            cluster.workers[0].kill()
            commit = asyncio.create_task(driver.end(partitions=6))
            await asyncio.to_thread(cluster.workers[0].start)
            answer = await commit
            assert copies(await driver.reported()) == [2] * 6
            assert (answer.lost, answer.under_replicated) == (0, 0)

    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=PATIENT) as cluster:
        run(story(cluster))


def test_a06_a_copy_that_missed_the_commit_is_sealed_when_its_worker_is_back(tmp_path: Path):
    """Two copies; one worker is away for longer than the commit waits. The commit's answer, the metric, an event, the
    page, `shuffles`, `status` and the doctor say how many epochs have one copy. The worker comes back and seals; all
    of these say that it is well, and with the other worker gone every record is read from the late copies, also by a
    process that had read the older manifest."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=AT_ONCE) as cluster,
        Session(cluster.endpoints, app="late") as session,
    ):
        shuffle = session.register_reduce_shuffle(partitions=4, maps=3, replication=2)
        statuses = write(shuffle)
        away, other = cluster.workers
        away.kill()
        shuffle.commit(statuses)
        assert metric(cluster, UNDER_REPLICATED) == 4
        (listed,) = cli(cluster, "shuffles")["shuffles"]
        assert (listed["under_replicated"], listed["lost"], listed["copies_wanted"]) == (4, 0, 2)
        assert "1 shuffle committed with fewer copies than asked for" in page(cluster)
        assert "under-replicated" in {each["code"] for each in cli(cluster, "doctor", status=1)["findings"]}
        assert "shuffle.under_replicated" in {each["event"] for each in cli(cluster, "events")["events"]}
        away.start()
        wait_until(lambda: metric(cluster, UNDER_REPLICATED) == 0, "the late copies")
        assert metric(cluster, "holdfast_master_late_copies") == 4
        assert cli(cluster, "shuffles")["shuffles"][0]["under_replicated"] == 0
        assert cli(cluster, "status")["under_replicated"] == 0
        assert "shuffle committed with fewer copies" not in page(cluster)
        other.kill()
        # This process read the manifest before, and asks for it anew when it cannot reach the only copy that it knows.
        assert read(shuffle) == RECORDS


def test_a06_what_a_process_knew_as_lost_is_read_when_it_is_back(tmp_path: Path):
    """One copy on a worker that is away at the commit for longer than the return grace: LOST, and refused by name. The
    worker comes back with every batch; the process that was told LOST reads all of it, at its first try."""
    settings = {"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"return_grace": "300ms"}}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="back") as session,
    ):
        shuffle = session.register_reduce_shuffle(partitions=4, maps=3)
        statuses = write(shuffle)
        cluster.workers[0].kill()
        shuffle.commit(statuses)
        assert len(shuffle.lost()) == 4
        with pytest.raises(DataLostError, match="partition 0 epoch 0"):
            read(shuffle)
        cluster.workers[0].start()
        wait_until(lambda: metric(cluster, "holdfast_master_late_copies") == 4, "the late copies")
        assert read(shuffle) == RECORDS


@pytest.mark.parametrize("own", [{**CALM, "worker": {"copy_grace": "0s"}}], indirect=True)
def test_a06_the_next_leader_has_late_copies_sealed(own: LocalCluster):
    """What is missing is read from the state: the leader dies while the worker that is back refuses, the next one asks
    again, and what the other worker said at the commit stays as it was."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open(copies=2)
            await peers[0].stop()
            answer = await driver.end()
            assert (answer.lost, answer.under_replicated) == (0, 8)
            peers[0].refusals = [HoldfastError("not now", status=Status.BUSY)] * 10
            await peers[0].start(driver.client)
            await wait_until_async(lambda: peers[0].seals, "the first leader's seal")
            seals = len(peers[1].seals)
            old = leader_of(own)
            old.kill()
            peers[0].refusals = []
            await wait_until_async(lambda: metric(own, UNDER_REPLICATED) == 0, "the next leader's")
            assert copies(await driver.reported()) == [2] * 8
            assert len(peers[1].seals) == seals, "it had said all"
            old.start()
            await agree(driver.client)

    run(story())


@pytest.mark.parametrize("own", [{**CALM, "worker": {"return_grace": "300ms"}}], indirect=True)
def test_a06_what_is_back_after_the_grace_is_not_lost(own: LocalCluster):
    """One copy: its worker is away for longer than the return grace, and the epochs are LOST. When it is back with
    every batch they are found again; an epoch that it cannot vouch for stays lost."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open(partitions=4)
            await peer.stop()
            assert (await driver.end(partitions=4)).lost == 4
            peer.statuses = {(3, 0): Status.DATA_LOST}
            await peer.start(driver.client)

            await wait_until_async(lambda: metric(own, "holdfast_master_late_copies") == 3, "the late seal")
            assert (await driver.info()).lost == 1
            assert [each.lost for each in await driver.reported()] == [False] * 3 + [True]

    run(story())


def human(cluster: LocalCluster, *words: str) -> str:
    """What a command says to a person, and that it found nothing broken."""
    command = [*COMMAND, *words, "--masters", cluster.endpoints]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def remedy(cluster: LocalCluster) -> str:
    """What the doctor says to do about missing copies."""
    found = cli(cluster, "doctor", status=1)["findings"]
    return next(str(each["remedy"]) for each in found if each["code"] == "under-replicated")


def event(cluster: LocalCluster) -> str:
    """The event that tells of missing copies."""
    found = cli(cluster, "events")["events"]
    return next(str(each["text"]) for each in found if each["event"] == "shuffle.under_replicated")


@pytest.mark.parametrize(("kind", "fewer"), [("map", 3), ("reduce", 4)])
def test_a06_copies_that_had_no_place_are_reported_and_promised_to_nobody(
    kind: str, fewer: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Two copies asked for, the second worker lost before the shuffle is registered. Registration names the shuffle and
    the lost worker; the commit's answer, the shuffle object, the metrics, an event, `status`, `shuffles`, the doctor
    and the page say how many epochs have one copy, of MAP partitions one for each map, and that this stays so. The
    worker comes back, nothing more is sealed, and nobody said that it would be."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=AT_ONCE) as cluster,
        Session(cluster.endpoints, app="alone") as session,
    ):
        away, name = cluster.workers[0], "w1"
        away.kill()
        wait_until(lambda: metric(cluster, "holdfast_master_workers_alive") == 1, "the worker is lost")
        register = session.register_map_shuffle if kind == "map" else session.register_reduce_shuffle
        shuffle = register(partitions=4, maps=3, replication=2)
        assert (shuffle.copies_wanted, shuffle.copies) == (2, 1)
        (placed,) = logged(caplog, LogEvent.SHUFFLE_FEWER_COPIES)
        found = [str(placed["shuffle"]), placed["copies"], placed["wanted"], placed["lost_workers"]]
        assert found == [str(shuffle.key), 1, 2, [name]]
        shuffle.commit(write(shuffle))
        assert shuffle.under_replicated == fewer
        reported = f"{fewer} epochs have fewer copies than asked for: that stays so"
        (committed,) = logged(caplog, LogEvent.SHUFFLE_UNDER_REPLICATED)
        assert (committed["shuffle"], committed["epochs"], committed["awaited"]) == (shuffle.key, fewer, 0)
        assert metric(cluster, UNDER_REPLICATED) == fewer
        assert metric(cluster, "holdfast_master_commits_under_replicated_epochs") == fewer
        assert f"epochs={fewer} awaited=0 — " in event(cluster)
        away.start()
        wait_until(lambda: metric(cluster, "holdfast_master_workers_alive") == 2, "the worker is back")
        (listed,) = cli(cluster, "shuffles")["shuffles"]
        assert (listed["under_replicated"], listed["awaited"], listed["copies_wanted"]) == (fewer, 0, 2)
        assert f"{fewer} under-replicated" in " ".join(human(cluster, "shuffles").split())
        status = human(cluster, "status")
        assert reported in status
        assert "all is well" not in status
        assert "run again" in remedy(cluster)
        assert "seal" not in remedy(cluster)
        assert reported in page(cluster)


def test_a06_who_waits_for_copies_is_reported_for_which_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A worker is away at the commit: the warning names the shuffle and the worker, the shuffle object has the number,
    and status, event and doctor say that the copies are sealed when it is back."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=AT_ONCE) as cluster,
        Session(cluster.endpoints, app="late") as session,
    ):
        shuffle = session.register_reduce_shuffle(partitions=4, maps=3, replication=2)
        statuses = write(shuffle)
        name = "w1"
        cluster.workers[0].kill()
        wait_until(lambda: metric(cluster, "holdfast_master_workers_alive") == 1, "the worker is lost")
        shuffle.commit(statuses)
        assert shuffle.under_replicated == 4
        reported = "4 epochs have fewer copies than asked for: the missing copies are sealed once their workers can"
        (committed,) = logged(caplog, LogEvent.SHUFFLE_UNDER_REPLICATED)
        assert committed == {"shuffle": shuffle.key, "epochs": 4, "awaited": 4, "waits_for": [name]}
        assert "epochs=4 awaited=4 — " in event(cluster)
        assert reported in " ".join(cli(cluster, "status", status=1)["warnings"])
        assert f"start the lost workers ({name})" in remedy(cluster)
        assert "run again" not in remedy(cluster)


def test_a06_an_epoch_that_no_winner_wrote_to_is_not_lost(tmp_path: Path):
    """One copy; a worker is killed before anything was pushed to it, and stays away. What maps wrote lies on the other
    one: the commit loses nothing, no event says that it did, and a reader has every record."""
    settings = {"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"return_grace": "300ms"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="empty") as session,
    ):
        shuffle = session.register_reduce_shuffle(partitions=8, maps=1)
        there = cluster.workers[0].address
        places = ReduceLocations.decode(shuffle.locations_array).partitions
        written = [number for number, place in enumerate(places) if shuffle.addresses[place.primary] == there]
        assert 0 < len(written) < 8
        cluster.workers[1].kill()
        writer = shuffle.writer(0)
        for partition in written:
            writer.write(partition, b"x" * 100)
        shuffle.commit([writer.close()])
        assert shuffle.lost() == []
        assert "shuffle.data_lost" not in {each["event"] for each in cli(cluster, "events")["events"]}
        assert sorted(each.partition for each in shuffle.reader(range(8))) == written


@pytest.mark.parametrize("kind", ["register_reduce_shuffle", "register_map_shuffle"])
def test_three_copies_survive_the_loss_of_two_workers(tmp_path: Path, kind: str):
    """Three copies of partitions of either kind; two of three workers are gone before the reader comes: every record is
    read from the one that is left."""
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "cluster", settings=PATIENT) as cluster,
        Session(cluster.endpoints, app="three") as session,
    ):
        shuffle = getattr(session, kind)(partitions=4, maps=3, replication=3)
        assert (shuffle.copies, shuffle.copies_wanted) == (3, 3)
        shuffle.commit(write(shuffle))
        assert shuffle.under_replicated == 0
        for worker in cluster.workers[:2]:
            worker.kill()
        assert read(shuffle) == RECORDS


def test_the_loss_of_two_of_three_before_the_commit_is_counted_and_mended(tmp_path: Path):
    """Three copies; two workers are killed between pushes and commit. It commits with one copy and says so, readers
    have every record, and when the two are back their copies are sealed and nothing is missing any more."""
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "cluster", settings=AT_ONCE) as cluster,
        Session(cluster.endpoints, app="three") as session,
    ):
        shuffle = session.register_reduce_shuffle(partitions=4, maps=3, replication=3)
        statuses = write(shuffle)
        for worker in cluster.workers[:2]:
            worker.kill()
        shuffle.commit(statuses)
        assert shuffle.under_replicated >= 4
        assert read(shuffle) == RECORDS
        for worker in cluster.workers[:2]:
            worker.start()
        wait_until(lambda: metric(cluster, UNDER_REPLICATED) == 0, "the late copies")
        shuffle.forget_manifest()
        assert {len(each.readable) for each in shuffle.manifest().epochs.epochs if each.epoch == 0} == {3}
