"""Applications that end beside one that goes on: what is deleted of theirs is no failure of its data."""

import contextlib
import threading
from pathlib import Path

from holdfast.client import ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from tests.support.waiting import wait_until

PAYLOAD = b"x" * 3_000
#: Until the worker asks the masters what may be deleted, and has deleted it.
SECONDS_MAX = 60.0


def push(shuffle: ReduceShuffle, until: threading.Event) -> int:
    """Push batches of one map and commit them; return how many."""
    count = 0
    with shuffle.writer(0, 0) as writer:
        while not until.is_set() or not count:
            for _ in range(8):
                writer.write(count % shuffle.partitions, PAYLOAD)
                count += 1
            writer.flush()
        shuffle.commit([writer.close()])
    return count


def keep_pushing(shuffle: ReduceShuffle, until: threading.Event) -> None:
    """The task of a job that is cancelled: it goes on until somebody tells it that its shuffle is gone."""
    with contextlib.suppress(HoldfastError):
        push(shuffle, until)


def slow_disk(cluster: LocalCluster, delay: str) -> None:
    """Start the only worker anew, with syncs that take so long that something can happen meanwhile."""
    worker = cluster.workers[0]
    worker.kill()
    with (cluster.directory / "w1.toml").open("a", encoding="utf-8") as file:
        file.write('\n[faults]\nenabled = true\ndisk_delay = "' + delay + '"\n')
    worker.start()
    cluster.wait_ready()


def folders(cluster: LocalCluster) -> int:
    """Applications of which something is in the data folder of the only worker."""
    return len(list((cluster.directory / "w1" / "data").iterdir()))


def forgotten(cluster: LocalCluster) -> int:
    """Shuffles that the only worker has deleted."""
    return int(worker_status(cluster.workers[0].http, 5.0)["counters"]["shuffles_forgotten"])


def read(shuffle: ReduceShuffle) -> int:
    """How many records a reader gets, each checked."""
    found = 0
    for record in shuffle.reader(range(shuffle.partitions)):
        assert bytes(record.payload) == PAYLOAD
        found += 1
    return found


def test_a03_a_dropped_shuffle_takes_no_synced_data_of_others_with_it(tmp_path: Path) -> None:
    """Seven sessions push to one worker with SYNCED; six of them are cancelled while they push. The seventh pushes on
    until everything of them is deleted, commits, loses nothing, and reads every record; the directory stays well."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster, contextlib.ExitStack() as stack:
        slow_disk(cluster, "20ms")
        sessions = [stack.enter_context(Session(cluster.endpoints, app=f"a{number}")) for number in range(7)]
        shuffles = [one.register_reduce_shuffle(4, 1, ack=Ack.SYNCED) for one in sessions]
        stop, gone = threading.Event(), threading.Event()
        others = [threading.Thread(target=keep_pushing, args=(one, stop), daemon=True) for one in shuffles[1:]]
        pushed: list[int] = []
        mine = threading.Thread(target=lambda: pushed.append(push(shuffles[0], gone)), daemon=True)
        for thread in (mine, *others):
            thread.start()
        try:
            wait_until(lambda: folders(cluster) == 7, "all to push")
            for one in shuffles[1:]:
                one.unregister()
            wait_until(lambda: forgotten(cluster) >= 6, "the deletion", SECONDS_MAX)
        finally:
            stop.set()
            gone.set()
            for thread in (mine, *others):
                thread.join(SECONDS_MAX)
        problem = worker_status(cluster.workers[0].http, 5.0)["directories"][0]["problem"]
        assert (problem, len(pushed)) == ("", 1)
        assert shuffles[0].lost() == []
        assert read(shuffles[0]) == pushed[0]


def end_short_ones(cluster: LocalCluster, count: int) -> None:
    """So many applications push a batch each and end without a commit."""
    for number in range(count):
        with Session(cluster.endpoints, app=f"short{number}") as short:
            shuffle = short.register_reduce_shuffle(1, 1)
            with shuffle.writer(0, 0) as writer:
                writer.write(0, PAYLOAD)
                writer.close()


def test_a04_commits_while_and_after_others_are_deleted_lose_nothing(tmp_path: Path) -> None:
    """Many short applications push and end without a commit. A commit as their deletion begins and the ones after it
    lose nothing, and the directory stays well."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        slow_disk(cluster, "200ms")
        with Session(cluster.endpoints, app="mine") as session:
            shuffles = [session.register_reduce_shuffle(4, 1) for _ in range(3)]
            writers = [shuffle.writer(0, 0) for shuffle in shuffles]
            for writer in writers:
                for number in range(8):
                    writer.write(number % 4, PAYLOAD)
                writer.flush()
            end_short_ones(cluster, 1)
            wait_until(lambda: folders(cluster) == 1, "the deletion of one", SECONDS_MAX)
            end_short_ones(cluster, 40)  # gone by the time of the next deletion, 10 s after the one before
            for left, shuffle, writer in zip((41, 40, 1), shuffles, writers, strict=True):
                wait_until(lambda left=left: folders(cluster) <= left, "the deletion", SECONDS_MAX)  # type: ignore[misc]
                shuffle.commit([writer.close()])
                assert shuffle.lost() == []
                assert read(shuffle) == 8
            assert worker_status(cluster.workers[0].http, 5.0)["directories"][0]["problem"] == ""
