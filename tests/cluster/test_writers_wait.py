"""Writers of one process share connections and wait for one another's room: none waits for what never comes."""

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.client import MapStatus, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.push_credit import WorkerLink
from holdfast.client.connection.runtime import runtime
from holdfast.client.write import push_writer, settling
from holdfast.client.write import writer as map_writer
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import FrameType
from holdfast.common.ids import Epoch, MapId
from holdfast.common.limits import KIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.client import INFLIGHT_MAX
from tests.cluster.shapes import Shape
from tests.support.logged import logged
from tests.support.waiting import wait_until

SHARED = Shape(masters=1, workers=1)


def test_a40_a_push_that_cannot_be_made_leaves_its_room_to_others(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt ends since there is no memory for its push, which had its room already; the next one over the same
    connection, which needs that room, ends well."""
    shuffle = session.register_reduce_shuffle(1)
    record = bytes(900 * KIB)  # two of them do not fit the smallest window
    full = [MemoryError("no memory for a frame")]

    def checksum(piece: bytes, crc: int = 0) -> int:
        if full:
            raise full.pop()
        return crc32c(piece, crc)

    monkeypatch.setattr(push_writer, "crc32c", checksum)
    fails = shuffle.writer(0, 1)
    fails.write(0, record)
    with pytest.raises(MemoryError):
        fails.close()
    ended = threading.Event()

    def attempt() -> None:
        with shuffle.writer(0, 2) as writer:
            writer.write(0, record)
            writer.close()
        ended.set()

    threading.Thread(target=attempt, daemon=True).start()
    wait_until(ended.is_set, "the second attempt ends")


def test_a40_a_long_wait_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer whose worker stands still says in the log which worker has not answered how much; it goes on then."""
    monkeypatch.setattr(settling, "SAY_SECONDS", 0.2)
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="slow") as session,
    ):
        shuffle = session.register_reduce_shuffle(1)
        with shuffle.writer(0, 1) as first:
            first.write(0, b"there is a connection")
            first.close()
        os.kill(cluster.workers[0].pid or 0, signal.SIGSTOP)
        try:
            with caplog.at_level(logging.WARNING), shuffle.writer(0, 2) as second:
                second.write(0, bytes(100))
                closing = threading.Thread(target=second.close, daemon=True)
                closing.start()
                wait_until(lambda: logged(caplog, LogEvent.PUSH_SLOW), "it is in the log")
                os.kill(cluster.workers[0].pid or 0, signal.SIGCONT)
                wait_until(lambda: not closing.is_alive(), "the attempt ends")
        finally:
            os.kill(cluster.workers[0].pid or 0, signal.SIGCONT)
        slow = logged(caplog, LogEvent.PUSH_SLOW)[0]
        worker = f"worker {next(iter(shuffle.routes().addresses._known))} has not answered "
        assert str(slow["task"]).endswith("map 0 attempt 2")
        assert worker in str(slow["reason"])


def test_a40_a_connection_that_takes_nothing_more_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of a map file stands still, and others of the process have filled the connection with requests: the
    writer leaves the worker as it leaves one that does not acknowledge, and writes its file on another one."""
    monkeypatch.setattr(map_writer, "ACK_SECONDS", 1.0)
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="full") as session,
    ):
        shuffle = session.register_map_shuffle(1)
        assert shuffle.assignment is not None
        worker = shuffle.assignment.worker_for(MapId(0), Epoch(0))
        address = shuffle.addresses[worker]
        server = next(each for each in cluster.workers if each.address == address)
        with shuffle.writer(0, 1) as writer:
            writer.write_region([(0, b"the file is open")])
            wait_until(lambda: writer._sender.settled_bytes, "the first frame is acknowledged")
            link = runtime().peers(shuffle.ticket).open_link(address)
            assert link is not None
            os.kill(server.pid or 0, signal.SIGSTOP)
            try:
                runtime().run(fill(link))
                status: list[MapStatus] = []
                closing = threading.Thread(target=lambda: status.append(writer.close()), daemon=True)
                closing.start()
                wait_until(lambda: status, "the map is written elsewhere")
            finally:
                os.kill(server.pid or 0, signal.SIGCONT)
        assert worker not in status[0].winner.workers


async def fill(link: WorkerLink) -> None:
    """Ask for as much as a connection may have under way."""
    for _ in range(INFLIGHT_MAX):
        await link.start(FrameType.PING)


@pytest.mark.parametrize("kind", ["map", "reduce"])
def test_a40_a_writer_that_an_exit_handler_leaves_does_not_hold_the_process(
    shared: LocalCluster, tmp_path: Path, kind: str
) -> None:
    """A writer that is given up as the process ends, after the loop of the client has ended, ends with it."""
    script = tmp_path / "leaves.py"
    script.write_text(
        "import atexit, sys\nleft = []\n"
        "atexit.register(lambda: left[0].abort())  # before the import, so that it runs after the client's own\n"
        "from holdfast.client import Session\n"
        "session = Session(sys.argv[1], app='leaves')\n"
        f"left.append(session.register_{kind}_shuffle(4).writer(0, 1))\n"
    )
    command = [sys.executable, str(script), shared.endpoints]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
