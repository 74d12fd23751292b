"""What a client's process keeps open, how it ends, and what it does after a long sleep."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from tests.support.reduce_client import contents, push, read, records_of
from tests.support.waiting import wait_until

SECONDS_MAX = 90
WARM, SESSIONS = 6, 30
#: Of descriptors that come and go with what a process does in the background.
SLACK = 6


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and two workers with security."""
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    with local_cluster(1, 2, dir=directory, secure=True) as started:
        yield started


def descriptors(cluster: LocalCluster) -> dict[str, int]:
    """How many each process has open, this one among them."""
    pids = {"client": os.getpid()} | {each.name: each.pid for each in cluster.servers}
    return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()}


def one_session(cluster: LocalCluster) -> None:
    """Push, commit and read in a session of its own."""
    with Session(cluster.endpoints, app="one of many", credentials=cluster.credentials) as session:
        shuffle = session.register_reduce_shuffle(4, 1)
        shuffle.commit([push(shuffle, 0, 1, records_of(1))])
        assert read(shuffle) == contents({0: records_of(1)})


def test_a34_sessions_leave_no_connection_behind(secure: LocalCluster) -> None:
    """Descriptors of client, workers and master are the same after many sessions of a secured cluster as after a few:
    connections are the sessions' and go with them."""
    for _ in range(WARM):
        one_session(secure)
    before = descriptors(secure)
    for _ in range(SESSIONS):
        one_session(secure)

    def settled() -> bool:
        now = descriptors(secure)
        return all(now[name] <= before[name] + SLACK for name in before)

    try:
        wait_until(settled, "connections to end", 60)
    except AssertionError:
        raise AssertionError(f"descriptors grew from {before} to {descriptors(secure)}") from None


def test_a34_what_a_closed_session_left_can_still_be_read(secure: LocalCluster) -> None:
    """A reader that outlives its session, while another one keeps the shuffle, finds its way again; two sessions of one
    application share connections, and the first to close does not take them from the other."""
    first = Session(secure.endpoints, app="shared", credentials=secure.credentials)
    shuffle = first.register_reduce_shuffle(4, 1)
    shuffle.commit([push(shuffle, 0, 1, records_of(1))])
    with Session(secure.endpoints, attach=bytes(first.instance), credentials=secure.credentials) as second:
        first.close()
        assert read(shuffle) == contents({0: records_of(1)})
        assert read(second.open_reduce_shuffle(shuffle.key.shuffle)) == contents({0: records_of(1)})


def script(cluster: LocalCluster, text: str) -> subprocess.Popen[str]:
    """A program of a user, with `endpoints` and `credentials` in it."""
    opened = ""
    if cluster.credentials is not None:
        (cluster.directory / "ca-of-test").write_text(cluster.credentials.ca_pem)
        (cluster.directory / "token-of-test").write_text(cluster.credentials.token)
        files = f"{str(cluster.directory / 'ca-of-test')!r}, {str(cluster.directory / 'token-of-test')!r}"
        opened = f"from holdfast.client import Credentials\ncredentials = Credentials.from_files({files})\n"
    else:
        opened = "credentials = None\n"
    program = f"endpoints = {cluster.endpoints!r}\n{text}".replace("# credentials\n", opened)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


OPEN = """
# credentials
from holdfast.client import Session
session = Session(endpoints, app="ends", credentials=credentials)
"""
#: How a program comes to its end with a session open, by what it does.
ENDINGS = {
    "a handler from before the import": "import atexit\natexit.register(lambda: session.close())\n" + OPEN,
    "a handler from after the import": OPEN + "import atexit\natexit.register(session.close)\n",
    "a handler from before the session": (
        "import atexit\nimport holdfast.client\natexit.register(lambda: session.close())\n" + OPEN
    ),
    "never closed": OPEN,
    "never closed, while a map is written": OPEN
    + "writer = session.register_reduce_shuffle(4, 1).writer(0)\nwriter.write(0, b'x')\n",
    "closed by a handler in a program that fails": (
        "import atexit\natexit.register(lambda: session.close())\n" + OPEN + "raise SystemExit(0)\n"
    ),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_a34_a_process_ends_with_its_session_open_or_closed_late(secure: LocalCluster, ending: str) -> None:
    """An exit handler that closes a session closes it, whenever it was registered, and a program that never closes one
    ends all the same; nobody complains."""
    with script(secure, ENDINGS[ending]) as process:
        try:
            _, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the process hangs at its end") from None
    assert (process.returncode, errors) == (0, "")


SLEEPER = (
    OPEN
    + """
print("ready", flush=True)
input()
shuffle = session.register_reduce_shuffle(4, 1)
writer = shuffle.writer(0)
writer.write(0, b"after the sleep")
shuffle.commit([writer.close()])
print([bytes(each.payload) for each in shuffle.reader([0])], flush=True)
session.close()
"""
)


def test_a34_a_process_that_slept_past_its_token_goes_on(tmp_path: Path) -> None:
    """A process is stopped until its application's token has ended, while its lease and its user's token are good: it
    gets another token, its lease goes on, and all that it does afterwards succeeds."""
    settings = {"security": {"token_life": "5s"}, "lease": {"application": "10m"}}
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster", settings=settings, secure=True) as cluster,
        script(cluster, SLEEPER) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        end = time.time() + 9
        wait_until(lambda: time.time() > end, "the end of the token")
        process.send_signal(signal.SIGCONT)
        try:
            reported, errors = process.communicate("go\n", timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the process does not go on") from None
    assert (reported, process.returncode) == ("[b'after the sleep']\n", 0), errors
