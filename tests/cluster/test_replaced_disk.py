"""A worker whose disk was replaced or emptied lacks copies that masters count: it is found, told, and made again."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import ask
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.worker.storage.names import STANDING
from tests.support.logged import lines_of
from tests.support.waiting import wait_until

PARTITIONS, MAPS = 40, 2
SETTINGS: dict[str, Any] = {
    "lease": {"worker": "3s", "heartbeat": "300ms"},
    "worker": {"restore_after": "2s"},
}


def status(cluster: LocalCluster) -> pb.StatusReply:
    found: pb.StatusReply = ask(cluster.leader().address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 60.0)
    return found


def committed(session: Session) -> ReduceShuffle:
    shuffle = session.register_reduce_shuffle(partitions=PARTITIONS, maps=MAPS, replication=2)
    statuses = []
    for number in range(MAPS):
        with shuffle.writer(number) as writer:
            for partition in range(PARTITIONS):
                writer.write(partition, f"{number} for {partition}".encode())
            statuses.append(writer.close())
    shuffle.commit(statuses)
    return shuffle


def check_read(shuffle: ReduceShuffle) -> None:
    wanted = sorted(f"{number} for {partition}".encode() for partition in range(PARTITIONS) for number in range(MAPS))
    assert sorted(bytes(record.payload) for record in shuffle.reader(range(PARTITIONS))) == wanted


@pytest.mark.parametrize("running", [False, True], ids=["replaced", "emptied"])
def test_copies_on_a_disk_that_is_another_one_are_made_again(running: bool, tmp_path: Path) -> None:
    """Of two disks of a worker one comes back empty, or is emptied while it is in use. Status counts what is short of
    copies, it is copied to others, and then any other worker may die. The worker starts again with that disk, whatever
    it wrote there before it noticed."""
    disks = [tmp_path / "w1-a", tmp_path / "w1-b"]
    own = {"w1": {"worker": {"directories": [{"path": str(each)} for each in disks]}}}
    with (
        local_cluster(masters=1, workers=4, dir=tmp_path / "c", settings=SETTINGS, own=own) as cluster,
        Session(cluster.endpoints, app="disks") as session,
    ):
        shuffle = committed(session)
        assert status(cluster).epochs_short == 0
        first = cluster.workers[0]
        if not running:
            first.kill()
        for each in disks[1].iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        if not running:
            first.start()
        wait_until(lambda: status(cluster).epochs_short > 0, "what is missing is said", 60)
        wait_until(lambda: status(cluster).epochs_short == 0, "the copies are made again", 60)
        assert lines_of(cluster.leader().log, LogEvent.SHUFFLE_COPIES_GONE)
        check_read(shuffle)
        wait_until((disks[1] / STANDING).exists, "what it knows of the masters is written there")
        first.kill()
        first.start()
        wait_until(lambda: status(cluster).workers_alive == 4, "it is back", 60)
        for other in cluster.workers[1:]:
            other.kill()
            check_read(shuffle)
            other.start()
            wait_until(lambda: status(cluster).workers_alive == 4, "all workers are back", 60)
