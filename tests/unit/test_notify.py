"""What the service manager hears: ready, state, signs of life, the end; and nothing where there is no manager."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.common.log_events import LogEvent
from holdfast.common.system.notify import Notifier
from tests.support.logged import logged
from tests.support.waiting import wait_until_async

PID = 4711


class Manager:
    """The receiving end: a socket as systemd has one, read without waiting."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)
        self.heard: list[str] = []

    def lines(self) -> list[str]:
        """All lines so far, those of one message in their order."""
        while True:
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.heard


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


def notifier(manager: Manager, **more: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": manager.socket.getsockname(), **more}, PID)


def test_it_hears_a_life(manager: Manager) -> None:
    """Readiness comes with a state, a state is told once for each change and on one line, the end is told."""
    server = notifier(manager)
    server.ready("serves")
    server.state("serves")
    server.state("two\nlines")
    server.stopping()
    reported = ["READY=1", "STATUS=serves", "WATCHDOG=1", "STATUS=two lines", "STOPPING=1", "STATUS=ends"]
    assert manager.lines() == reported


@pytest.mark.parametrize(
    ("reported", "patience"),
    [
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(PID)}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(PID + 1)}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_that_of_this_process(manager: Manager, reported: dict[str, str], patience: float) -> None:
    """Patience meant for another process, or unreadable, is none."""
    assert notifier(manager, **reported).patience == patience


def test_only_what_turns_is_fed(manager: Manager) -> None:
    """Signs of life come while all of the server turns, and end with the first part that does not come back."""

    async def story() -> None:
        going, hung = True, asyncio.Event()

        async def turns() -> None:
            if not going:
                hung.set()
                await asyncio.Event().wait()

        def fed() -> int:
            return manager.lines().count("WATCHDOG=1")

        watch = asyncio.create_task(notifier(manager, WATCHDOG_USEC="3000").watch(lambda: "serves", turns))
        await wait_until_async(lambda: fed() > 3, "signs of life")
        going = False
        await hung.wait()
        before = fed()
        for _ in range(100):  # far more turns of the loop than a sign of life needs
            await asyncio.get_running_loop().run_in_executor(None, bool)
        assert fed() == before
        watch.cancel()

    asyncio.run(story())


def test_without_a_manager_nothing_happens() -> None:
    """No variable, or one that is no socket's name: no socket is touched and the watch ends at once."""
    for environ in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}):
        server = Notifier({**environ, "WATCHDOG_USEC": "1000"}, PID)
        assert not server.patience
        server.ready("serves")
        asyncio.run(server.watch(lambda: "serves"))
        server.stopping()


def test_a_manager_that_is_gone_ends_no_server(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    """A state that cannot be sent is logged, once."""
    server = notifier(manager)
    manager.socket.close()
    server.ready("serves")
    server.stopping()
    assert len(logged(caplog, LogEvent.SYSTEMD_UNREACHABLE)) == 1


@pytest.mark.parametrize("wanted", ["9" * 5000, "9" * 19, "²", "-1", "1e6"])
def test_a_patience_that_is_no_number_of_microseconds_is_none(manager: Manager, tmp_path: Path, wanted: str) -> None:
    """Whatever stands in WATCHDOG_USEC, a server starts; what is no sane number means that nobody waits."""
    assert Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": wanted}, PID).patience == 0.0
