"""Fewer copies than there are acknowledge a push: what is pushed, committed and read while a replica stands still, and
while its primary is gone as well. Real processes.
"""

import signal
from pathlib import Path

import pytest

from holdfast.client import ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.common.errors import ConfigError
from holdfast.common.ids import WorkerId
from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from tests.cluster.reduce_peers import metric
from tests.cluster.test_second_copies import AT_ONCE, UNDER_REPLICATED, cli
from tests.support.waiting import wait_until

#: What the second map writes while a replica stands still: each is a push of its own.
RECORDS = [bytes([each]) * 300 * KIB for each in range(4)]
FIRST = b"while all is well"


def worker_of(cluster: LocalCluster, number: WorkerId) -> Server:
    """The process of a worker that the masters call so."""
    names = {each["worker"]: each["name"] for each in cli(cluster, "workers")["workers"]}
    return next(each for each in cluster.workers if each.name == names[number])


def place(shuffle: ReduceShuffle) -> tuple[WorkerId, list[WorkerId]]:
    """Primary and replicas of the one partition, as it was placed."""
    destination = shuffle.routes().locations.current[0].destination
    return destination.primary, [worker for worker, _ in destination.replicas]


def read(shuffle: ReduceShuffle) -> list[bytes]:
    """What a reader gets, in order."""
    return sorted(bytes(each.payload) for each in shuffle.reader([0]))


def copies(shuffle: ReduceShuffle) -> dict[WorkerId, Status]:
    """What the manifest says of the copies of the first epoch."""
    shuffle.forget_manifest()
    (first,) = [each for each in shuffle.manifest().epochs.epochs if each.epoch == 0]
    return {copy.worker: copy.status for copy in first.copies}


@pytest.mark.parametrize("dies", [False, True])
def test_a_replica_that_stands_still_holds_up_no_push(tmp_path: Path, dies: bool) -> None:
    """Two of three copies acknowledge, and one replica stands still: what is pushed is acknowledged all the same. The
    map ends when the masters have recorded that this copy is incomplete, also where the primary is killed before it can
    say so. The commit does not name it as a copy; people are told; it is made again on the fourth worker, of a
    complete one. With the primary killed, and the slow worker back, everything is read."""
    with (
        local_cluster(masters=1, workers=4, dir=tmp_path / "cluster", settings=AT_ONCE) as cluster,
        Session(cluster.endpoints, app="slow") as session,
    ):
        session.ack_copies = 2
        shuffle = session.register_reduce_shuffle(partitions=1, maps=2, replication=3)
        assert shuffle.ack_copies == 2
        number, (slow, other) = place(shuffle)
        primary, still, third = [worker_of(cluster, each) for each in (number, slow, other)]
        first = shuffle.writer(0)
        first.write(0, FIRST)
        statuses = [first.close()]
        still.kill(signal.SIGSTOP)
        second = shuffle.writer(1)
        for record in RECORDS:
            second.write(0, record)
        second.flush()
        wait_until(lambda: second.acknowledged_bytes > len(RECORDS[0]), "pushes without the slow replica")
        if dies:
            primary.kill()
        statuses.append(second.close())
        # What was not acknowledged when the primary died went to another epoch, which the slow one may be of as well.
        incomplete = metric(cluster, "holdfast_master_copies_incomplete")
        assert incomplete >= 1
        assert "shuffle.copies_incomplete" in {each["event"] for each in cli(cluster, "events")["events"]}
        still.kill(signal.SIGCONT)
        shuffle.commit(statuses)
        (listed,) = cli(cluster, "shuffles")["shuffles"]
        assert (listed["ack_copies"], listed["incomplete"], listed["lost"]) == (2, incomplete, 0)
        assert copies(shuffle)[slow] is Status.INCOMPLETE
        # The commit waits for nobody here: a copy that is sealed a moment later is named then.
        wait_until(lambda: copies(shuffle)[other] is Status.OK, "the other copy")
        assert read(shuffle) == sorted([FIRST, *RECORDS])
        if dies:
            primary.start()
        wait_until(lambda: metric(cluster, UNDER_REPLICATED) == 0, "the copy that is made again")
        found = copies(shuffle)
        assert found.pop(slow) is Status.INCOMPLETE
        assert list(found.values()) == [Status.OK] * 3
        primary.kill()
        third.kill()
        assert read(shuffle) == sorted([FIRST, *RECORDS])


def test_how_many_copies_acknowledge_is_checked_where_it_is_asked_for(tmp_path: Path) -> None:
    """At least one copy, at most those that there are; what the session was made with is for shuffles that do not say
    it themselves, and means all copies of those with fewer."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="two") as session,
    ):
        assert session.register_reduce_shuffle(1, replication=2).ack_copies == 2
        for number in (0, 6):
            with pytest.raises(ConfigError, match="ack_copies"):
                session.ack_copies = number
        session.ack_copies = 1
        for number in (0, 3):
            with pytest.raises(ConfigError, match="ack_copies"):
                session.register_reduce_shuffle(1, replication=2, ack_copies=number)
        assert session.register_reduce_shuffle(1, replication=2).ack_copies == 1
        assert session.register_reduce_shuffle(1, replication=2, ack_copies=2).ack_copies == 2
