"""Three real masters' logs under kill -9 and SIGSTOP: what was acknowledged is there, once, everywhere the same."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raft.process import ROOT, Cluster, Process
from tests.support.waiting import wait_until


class Writers:
    """Threads that propose numbered commands to whoever leads, and remember which were acknowledged."""

    def __init__(self, cluster: Cluster, threads: int = 4) -> None:
        self.acked: list[str] = []
        self._cluster = cluster
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(k,), daemon=True) for k in range(threads)]
        for thread in self._threads:
            thread.start()

    def _write(self, who: int) -> None:
        nodes = itertools.cycle(self._cluster.nodes)
        node = next(nodes)
        for number in itertools.count():
            if self._stop.is_set():
                return
            command = f"{who}-{number}"
            try:
                node.ask("propose", command).result(3)
                self.acked.append(command)
            except (RuntimeError, TimeoutError):
                node = next(nodes)
                self._stop.wait(0.01)

    def more(self, count: int) -> None:
        """Wait for that many more acknowledgements."""
        goal = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= goal, f"{count} more acknowledged commands")

    def end(self) -> None:
        """Stop writing."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three processes that snapshot often; under TLS if the test asks for "tls"."""
    with Cluster(tmp_path, compact_entries=150, tls=getattr(request, "param", "") == "tls") as running:
        yield running


def verify(cluster: Cluster, acked: list[str]) -> None:
    """Every acknowledged command is in every node's state, none twice, and the states are equal."""
    statuses = cluster.settled()
    assert len({status["hash"] for status in statuses}) == 1
    applied = cluster.nodes[0].ask("dump").result(60)
    assert len(set(applied)) == len(applied)
    assert set(acked) <= set(applied)


def test_kills_lose_nothing(cluster: Cluster) -> None:
    """The leader, a follower, all three: killed at random moments under concurrent commands, and restarted."""
    rng = random.Random(11)
    cluster.leader()
    writers = Writers(cluster)
    for victims in ("leader", "follower", "all", "leader", "all"):
        writers.more(rng.randrange(80, 200))
        leader = cluster.leader()
        chosen = {
            "leader": [leader],
            "follower": [rng.choice([node for node in cluster.nodes if node is not leader])],
            "all": rng.sample(cluster.nodes, 3),
        }[victims]
        for node in chosen:
            node.kill()
        if victims != "all":
            writers.more(20)
        for node in chosen:
            node.start()
    writers.more(100)
    writers.end()
    verify(cluster, writers.acked)
    assert all(status["snapshot_index"] > 0 for status in cluster.settled())


def test_a_stopped_leader_answers_no_stale_read(cluster: Cluster) -> None:
    """A leader stopped by SIGSTOP, replaced, and continued: a confirmed read never shows the old state."""
    leader = cluster.leader()
    for number in range(5):
        leader.ask("propose", f"before {number}").result(60)
    leader.signal(signal.SIGSTOP)
    reads = [leader.ask("read") for _ in range(3)]  # they wait in its pipe
    others = [node for node in cluster.nodes if node is not leader]

    def accepted() -> Process | None:
        for node in others:
            try:
                node.ask("propose", "after").result(3)
            except (RuntimeError, TimeoutError):
                continue
            return node
        return None

    wait_until(accepted, "a new leader")
    leader.signal(signal.SIGCONT)
    for read in reads:
        error = read.exception(10)
        assert read.result() == 6 if error is None else str(error) == "NotLeader"
    verify(cluster, ["after"])


@pytest.mark.parametrize("cluster", ["plain", "tls"], indirect=True)
def test_an_empty_node_catches_up_by_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    """A follower whose directory is gone gets the snapshot and what follows it from the leader."""
    leader = cluster.leader()
    for batch in range(4):
        for future in [leader.ask("propose", f"{batch} {number}") for number in range(150)]:
            future.result(60)
    wait_until(lambda: leader.ask("status").result(60)["snapshot_index"] > 400, "a snapshot")
    lost = next(node for node in cluster.nodes if node is not leader)
    lost.kill()
    (tmp_path / lost.name).rename(tmp_path / "aside")
    lost.start()
    verify(cluster, [f"3 {number}" for number in range(150)])
    assert lost.ask("status").result(60)["snapshot_index"] > 0
    wait_until(lambda: lost.ask("status").result(60)["caught_up"], "it knows that it has caught up")


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """A node started by a process that is killed does not outlive it."""
    program = (
        "import sys; from pathlib import Path; from tests.raft.process import Cluster\n"
        "c = Cluster(Path(sys.argv[1]), nodes=1); c.nodes[0].start()\n"
        "print(c.nodes[0].pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()

    def gone() -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(gone, "the node to end")
