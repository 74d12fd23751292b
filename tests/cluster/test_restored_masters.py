"""Masters that were restored from a backup that is older than what workers and clients have seen, in real processes.

What the lost part of the log handed out, it hands out again: numbers of workers, ids of shuffles. Each of them goes
with the id of the masters' state that gave it, so nobody takes one for the other.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import worker_status
from tests.cli.test_commands import document
from tests.cli.test_commands import run as command
from tests.cluster.masters import SHORT
from tests.support.reduce_client import PARTITIONS, Records, contents, fill, push, read, records_of
from tests.support.waiting import wait_until

#: What another process does as a part of the same application: it registers shuffles by number and writes them.
_WRITE = """
import sys
from holdfast.client import Session
from tests.cluster.test_restored_masters import records_like
from tests.support.reduce_client import PARTITIONS, push
endpoints, instance, number, commits, seed = sys.argv[1:]
session = Session(endpoints, attach=instance)
records = records_like(int(seed))
if number == "9":
    shuffle = session.register_map_shuffle(PARTITIONS, 1, replication=2, shuffle_id=9)
    with shuffle.writer(0, 1) as writer:
        status = writer.close(records)
else:
    shuffle = session.register_reduce_shuffle(PARTITIONS, 1, replication=2, shuffle_id=int(number))
    status = push(shuffle, 0, 1, records)
if commits == "True":
    shuffle.commit([status])
"""
#: Shuffles by number: pushed and not committed, pushed and committed, written as MAP files and not committed.
OPEN, COMMITTED, FILES = 7, 8, 9


def records_like(seed: int) -> Records:
    """Records of other bytes for each seed, as many of them and as long: nothing but the bytes tells them apart."""
    return [(partition, bytes([seed, number]) * 500) for partition in range(PARTITIONS) for number in range(10)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters and two workers of one test; a worker that is silent for a second is lost."""
    settings = {**SHORT, "lease": {**SHORT["lease"], "worker": "2s"}}
    with local_cluster(masters=3, workers=2, dir=tmp_path / "cluster", settings=settings) as started:
        yield started


def back_up(cluster: LocalCluster, file: Path) -> None:
    """Back up the leading master, which has everything that was acknowledged."""
    document(command("backup", file, "--config", cluster.leader().config, "--json"))


def kill_masters(cluster: LocalCluster) -> None:
    for master in cluster.masters:
        master.kill()


def restore(cluster: LocalCluster, file: Path) -> None:
    """All masters of the cluster as they were at the backup."""
    kill_masters(cluster)
    for master in cluster.masters:
        directory = cluster.directory / master.name
        directory.rename(directory.with_name(f"{master.name}-before-{file.name}"))
        document(command("restore", file, "--config", master.config, "--json"))
    for master in cluster.masters:
        master.start()


def listed(cluster: LocalCluster) -> dict[str, tuple[int, str]]:
    """Number and state of every worker that the masters know, by name."""
    with Session(cluster.endpoints, app="looks") as session:
        return {each.name: (each.worker, each.state) for each in session.workers()}


def write(cluster: LocalCluster, session: Session, number: int, seed: int, *, commits: bool) -> None:
    """Let another process register this shuffle and write it with attempt 1 of its one map."""
    story = [str(number), str(commits), str(seed)]
    words = [sys.executable, "-c", _WRITE, cluster.endpoints, session.instance.hex(), *story]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def masters_that_know_no_worker(cluster: LocalCluster) -> None:
    """Kill everybody, and start the masters on empty directories."""
    for worker in cluster.workers:
        worker.kill()
    kill_masters(cluster)
    for master in cluster.masters:
        directory = cluster.directory / master.name
        directory.rename(directory.with_name(f"{master.name}-first"))
    for master in cluster.masters:
        master.start()


def test_a32_two_workers_are_never_taken_for_one(cluster: LocalCluster, tmp_path: Path) -> None:
    """A worker that registered after the backup holds a number that the restored masters give to another one, in the
    same incarnation. Both are known and alive, under numbers of their own, and one that dies is called lost."""
    first, second = cluster.workers
    masters_that_know_no_worker(cluster)
    back_up(cluster, tmp_path / "empty")
    first.start()
    cluster.wait_ready()
    number = listed(cluster)[first.name][0]
    first.kill(signal.SIGSTOP)
    restore(cluster, tmp_path / "empty")
    second.start()
    cluster_alive(cluster, second)
    assert listed(cluster)[second.name][0] == number, "the masters give the number again: or this test shows nothing"
    first.kill(signal.SIGCONT)

    def both() -> bool:
        found = listed(cluster)
        return {name: state for name, (_, state) in found.items()} == {first.name: "alive", second.name: "alive"}

    wait_until(both, "the masters to know both workers")
    assert len({number for number, _ in listed(cluster).values()}) == 2
    second.kill()
    wait_until(lambda: listed(cluster)[second.name][1] == "lost", "the dead worker to be called lost")
    assert listed(cluster)[first.name][1] == "alive"


def test_a32_a_client_goes_on_when_workers_get_each_others_numbers(cluster: LocalCluster, tmp_path: Path) -> None:
    """Masters that were restored give two workers each other's numbers. A process that lived through it, with open
    connections to both, writes and reads, as a process does that begins now."""
    first, second = cluster.workers
    masters_that_know_no_worker(cluster)
    cluster.leader()
    with Session(cluster.endpoints, app="lives on", no_room_grace=5) as session:
        back_up(cluster, tmp_path / "without workers")
        for worker in cluster.workers:
            worker.start()
            cluster_alive(cluster, worker)
        shuffle, expected = fill(session)
        assert read(shuffle) == expected
        before = {name: number for name, (number, _) in listed(cluster).items()}
        first.kill(signal.SIGSTOP)
        restore(cluster, tmp_path / "without workers")
        cluster_alive(cluster, second)
        first.kill(signal.SIGCONT)
        cluster_alive(cluster, first)
        after = {name: number for name, (number, _) in listed(cluster).items()}
        swapped = {first.name: before[second.name], second.name: before[first.name]}
        assert after == swapped, "the numbers are swapped: or this test shows nothing"
        shuffle, expected = fill(session)
        assert read(shuffle) == expected


def cluster_alive(cluster: LocalCluster, worker: Server) -> None:
    wait_until(lambda: worker.name in (cluster.alive_workers() or ()), f"{worker.name} to be alive")


@pytest.mark.parametrize("number", [OPEN, COMMITTED, FILES])
def test_a33_a_shuffle_registered_again_has_its_own_bytes_alone(
    cluster: LocalCluster, tmp_path: Path, number: int
) -> None:
    """A shuffle that was registered and written after the backup, and perhaps committed, is registered and written
    again under its number, by the same map and attempt: what is read is what was written now."""
    with Session(cluster.endpoints, app="restored") as session:
        back_up(cluster, tmp_path / "masters.backup")
        write(cluster, session, number, 21, commits=number == COMMITTED)
        restore(cluster, tmp_path / "masters.backup")
        write(cluster, session, number, 22, commits=True)
        found = contents({})
        opened = session.open_shuffle(number) if number == FILES else session.open_reduce_shuffle(number)
        for record in opened.reader(range(PARTITIONS)):
            found[record.partition][record.map, bytes(record.payload)] += 1
        assert found == contents({0: records_like(22)})


def test_a33_what_the_backup_knows_goes_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """A shuffle that was committed before the backup is read after the restore, one that was half written then is
    written to its end and read: nothing is written again."""
    with Session(cluster.endpoints, app="restored") as session:
        committed, expected = fill(session)
        half = session.register_reduce_shuffle(PARTITIONS, 2)
        done = push(half, 0, 1, records_of(11))
        back_up(cluster, tmp_path / "masters.backup")
        write(cluster, session, COMMITTED, 21, commits=True)
        restore(cluster, tmp_path / "masters.backup")
        half.commit([done, push(half, 1, 2, records_of(12))])
        assert read(half) == contents({0: records_of(11), 1: records_of(12)})
        assert read(session.open_reduce_shuffle(committed.key.shuffle)) == expected


def test_a33_what_the_masters_never_heard_of_is_kept_apart(cluster: LocalCluster, tmp_path: Path) -> None:
    """Data of a shuffle that a restore forgot is not deleted with a shuffle of the same number that was registered
    after it; the worker says that the masters never heard of it. When the application goes, it goes too."""
    with Session(cluster.endpoints, app="restored") as session:
        back_up(cluster, tmp_path / "masters.backup")
        write(cluster, session, COMMITTED, 21, commits=True)
        before = folders(cluster, session)
        restore(cluster, tmp_path / "masters.backup")
        write(cluster, session, COMMITTED, 22, commits=True)
        assert before < folders(cluster, session)
        session.open_reduce_shuffle(COMMITTED).unregister()
        wait_until(lambda: folders(cluster, session) == before, "what was written again to be deleted")
        wait_until(
            lambda: any("the masters do not know" in each for each in problems(cluster)), "the workers to say so"
        )
        document(command("forget", session.instance.hex(), "--yes", "--json", masters=cluster.endpoints))
        wait_until(lambda: not folders(cluster, session), "everything to be deleted with its application")


def folders(cluster: LocalCluster, session: Session) -> set[str]:
    """Folders of shuffles of this session, of all workers."""
    own = [cluster.directory / worker.name / "data" / session.instance.hex() for worker in cluster.workers]
    return {str(each) for place in own if place.is_dir() for each in place.iterdir()}


def problems(cluster: LocalCluster) -> list[str]:
    """What the workers want people to know."""
    return [text for worker in cluster.workers for text in worker_status(worker.http)["problems"]]
