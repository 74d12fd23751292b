"""Servers as a service manager starts them: it hears when they serve, how they are, and that they end."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, Server
from tests.cluster.shapes import Shape
from tests.conftest import Processes
from tests.support.waiting import wait_until
from tests.unit.test_notify import Manager

SHARED = Shape(masters=1, workers=1)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@pytest.mark.parametrize(("role", "state"), [("worker", "serves, incarnation"), ("master", "leader, term")])
def test_a_server_tells_its_manager(
    role: str, state: str, shared: LocalCluster, manager: Manager, processes: Processes
) -> None:
    """READY when its line is printed, signs of life after, its state in words, STOPPING at SIGTERM; exit 0."""
    server: Server = getattr(shared, f"{role}s")[0]
    server.end()
    command = [sys.executable, "-P", "-m", f"holdfast.{role}", "--config", str(server.config)]
    environ = {"NOTIFY_SOCKET": manager.socket.getsockname(), "WATCHDOG_USEC": "300000"}
    child = processes.start(role, command, environ)
    wait_until(lambda: "READY=1" in manager.lines(), f"the {role} to be ready")
    assert '"ready": true' in processes.log(role).read_text("utf-8")
    wait_until(lambda: manager.lines().count("WATCHDOG=1") > 3, "signs of life")
    wait_until(lambda: any(line.startswith(f"STATUS={state}") for line in manager.lines()), "its state")
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert "STOPPING=1" in manager.lines()
    server.start()
