"""Something else answers where a master or worker was: a proxy, a mesh, another cluster. Nothing ends for it, nothing
is forgotten, and whoever was looking for the leader finds it."""

import threading
import time
from pathlib import Path
from typing import Any

from holdfast.client import Session
from holdfast.client.cluster.local import local_cluster
from holdfast.client.cluster.server import Server
from holdfast.common.log_events import LogEvent
from tests.support.garbage import GARBAGE, Listener
from tests.support.logged import lines_of
from tests.support.reduce_client import contents, push, read, records_of
from tests.support.waiting import wait_until

#: Workers are lost and leases end within seconds, so that a client that gave up is found out.
SETTINGS = {
    "lease": {"application": "6s", "deletion_grace": "1s", "worker": "3s", "heartbeat": "500ms", "tick": "200ms"},
    "worker": {"return_grace": "120s"},
}


class Committing(threading.Thread):
    """A commit in a thread of its own, with what it raised."""

    def __init__(self, shuffle: Any, status: Any) -> None:
        super().__init__(daemon=True)
        self._work = shuffle.commit, [status]
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Commit."""
        commit, statuses = self._work
        try:
            commit(statuses)
        except BaseException as error:
            self.error = error
            raise


def port_of(server: Server) -> int:
    return int(server.address.rpartition(":")[2])


def asked(stranger: Listener, kinds: list[str]) -> None:
    """Play each kind until somebody asked after it was there."""
    for kind in kinds:
        stranger.kind = kind
        before = stranger.seen
        wait_until(lambda before=before: stranger.seen > before, f"a call to {kind}", 60)  # type: ignore[misc]


def test_a29_what_is_at_the_dead_leaders_address_loses_no_worker(tmp_path: Path) -> None:
    """The leader is killed and a proxy takes its address: the worker's heartbeats go on to the new leader, which never
    calls it lost; the session goes on, too, and its data is there long after leases would have ended."""
    with (
        local_cluster(3, 1, dir=tmp_path / "cluster", settings=SETTINGS) as cluster,
        Session(cluster.endpoints, app="goes on") as session,
    ):
        shuffle = session.register_reduce_shuffle(4, 1)
        shuffle.commit([push(shuffle, 0, 1, records_of(1))])
        leader = cluster.leader()
        leader.kill()
        with Listener("a proxy that says 404", port_of(leader)):
            cluster.leader()
            end = time.monotonic() + 9  # thrice as long as a worker may be silent, and more than a lease
            wait_until(lambda: time.monotonic() > end or cluster.alive_workers() == set(), "the leases' time", 60)
            assert cluster.alive_workers() == {cluster.workers[0].name}
            assert read(shuffle) == contents({0: records_of(1)})
        assert not any(lines_of(each.log, LogEvent.WORKER_LOST) for each in cluster.masters if each is not leader)
        assert len(lines_of(cluster.workers[0].log, LogEvent.WORKER_REGISTERED)) <= 2


def test_a28_a_mesh_that_answers_for_a_restarting_master_ends_no_lease(tmp_path: Path) -> None:
    """The only master restarts; while it is away a mesh answers 503 at its address, and others answer otherwise. The
    session's renewals go on, and its committed data is there when its lease would have ended long ago."""
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster", settings=SETTINGS) as cluster,
        Session(cluster.endpoints, app="healthy", lease_seconds=6) as session,
    ):
        shuffle = session.register_reduce_shuffle(4, 1)
        shuffle.commit([push(shuffle, 0, 1, records_of(1))])
        master = cluster.masters[0]
        master.kill()
        with Listener("a mesh that says 503", port_of(master)) as stranger:
            asked(stranger, ["a mesh that says 503", "another cluster, where nobody is known", "an empty message"])
        master.start()
        end = time.monotonic() + 15  # two leases, and the grace
        wait_until(lambda: time.monotonic() > end or session._gone is not None, "the time of two leases", 60)
        assert session._gone is None
        assert read(shuffle) == contents({0: records_of(1)})


def test_a28_a_commit_waits_for_a_worker_behind_garbage(tmp_path: Path) -> None:
    """At the address of a worker that is away anything may answer the leader that wants its seals: the commit goes on
    asking, and has every batch when the worker is back."""
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster", settings=SETTINGS) as cluster,
        Session(cluster.endpoints, app="commits", lease_seconds=600) as session,
    ):
        shuffle = session.register_reduce_shuffle(4, 1)
        status = push(shuffle, 0, 1, records_of(1))
        worker = cluster.workers[0]
        worker.kill()
        with Listener("noise", port_of(worker)) as stranger:
            committed = Committing(shuffle, status)
            asked(stranger, [kind for kind in GARBAGE if kind != "silence"])
            assert committed.is_alive()
        worker.start()
        committed.join(60)
        assert committed.error is None
        assert read(shuffle) == contents({0: records_of(1)})
