"""A worker that comes and goes all the time, under load: data is right, and the masters do not work for it for ever."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.limits import KIB
from tests.cluster.reduce_peers import metric
from tests.support.waiting import wait_until

PARTITIONS = 24
#: More than are pushed; what is left of them is empty.
MAPS = 20_000
#: Starts after which the worker is known for it, and a few that were under way then.
STARTS_KNOWN = 3 + 2


class Load:
    """Maps that push one after the other until told to end."""

    def __init__(self, session: Session, copies: int) -> None:
        self.shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.statuses: list = []
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(7)
        try:
            for number in range(MAPS):
                with self.shuffle.writer(number) as writer:
                    for partition in range(0 if self._end.is_set() else PARTITIONS):
                        data = rng.randbytes(4 * KIB)
                        writer.write(partition, data)
                        self.written[partition].append(data)
                    self.statuses.append(writer.close())
        except BaseException as error:
            self._error = error
            raise

    def end(self) -> None:
        """Let the map under way end; raises what stopped it."""
        self._end.set()
        self._thread.join()
        assert self._error is None


def flap(cluster: LocalCluster, session: Session, seconds: float) -> list[float]:
    """Kill and start the first worker for so long, or so often; return the commands that epochs had needed after each
    of its starts."""
    end = time.monotonic() + seconds
    commands: list[float] = []
    worker = cluster.workers[0]
    while time.monotonic() < end or len(commands) < 3 * STARTS_KNOWN:
        worker.kill()
        worker.start()
        incarnation = worker.wait_ready()["incarnation"]

        def registered(wanted: int = incarnation) -> bool:
            return any((each.name, each.incarnation) == (worker.name, wanted) for each in session.workers())

        wait_until(registered, "the masters to hear of the start")
        commands.append(
            metric(cluster, "holdfast_master_revive_commands") + metric(cluster, "holdfast_master_move_commands")
        )
    return commands


@pytest.mark.parametrize(
    ("seconds", "copies"),
    [(0, 2), pytest.param(60, 1, marks=pytest.mark.long), pytest.param(60, 2, marks=pytest.mark.long)],
)
def test_a_flapping_worker_makes_no_storm(tmp_path: Path, seconds: float, copies: int) -> None:
    """Killed and started as fast as it can be, under load: every batch is there once, and from the starts on that make
    it known, no further command is needed for any epoch, however often it starts again."""
    settings = {"lease": {"heartbeat": "200ms", "worker": "2s"}}
    with (
        local_cluster(1, 3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="flapping") as session,
    ):
        load = Load(session, copies)
        commands = flap(cluster, session, seconds)
        load.end()
        assert commands[-1] == commands[STARTS_KNOWN], f"commands after each start: {commands}"
        assert commands[-1] <= 10 * STARTS_KNOWN
        load.shuffle.commit(load.statuses)
        assert load.shuffle.lost() == []
        for partition, wanted in enumerate(load.written):
            found = [bytes(data) for _, _, data in load.shuffle.reader([partition])]
            assert sorted(found) == sorted(wanted)
