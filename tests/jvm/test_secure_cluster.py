"""The Java client against a secured cluster: what it shows, what it gets for that, and how it is refused."""

import http.server
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.security.tokens import Keeper, TokenKind, times_of
from tests.jvm.test_control import Shell, Stranger, shell
from tests.jvm.test_push import Pushing
from tests.support.jvm import Programs
from tests.support.tls import ca_of
from tests.support.waiting import wait_until

#: Of an application's token; a driver renews when half of it is over.
LIFE_S = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker with security."""
    life = {"security": {"token_life": f"{LIFE_S}s"}}
    with local_cluster(1, 1, dir=tmp_path_factory.mktemp("secure") / "cluster", settings=life, secure=True) as started:
        yield started


@pytest.fixture
def keeper(cluster: LocalCluster) -> Keeper:
    """Makes tokens of this cluster."""
    return Keeper((cluster.directory / "secret").read_bytes().strip(), (cluster.directory / "cluster").read_text())


@pytest.fixture
def show(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Show":
    """Say what programs that are started from now on show."""
    return Show(cluster, tmp_path, monkeypatch)


class Show:
    """The environment of Java programs."""

    def __init__(self, cluster: LocalCluster, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ca, self._file = cluster.directory / "security" / "ca.pem", directory / "token"
        self._monkeypatch = monkeypatch

    def __call__(self, token: str, ca: Path | None = None) -> None:
        """This token, and the cluster's CA or another one."""
        self._file.write_text(token + "\n")
        self._monkeypatch.setenv("HOLDFAST_CA", str(ca or self._ca))
        self._monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(self._file))


def minted(keeper: Keeper, kind: TokenKind, subject: bytes, begins: int = 0, life_s: int = 3_600) -> str:
    return keeper.mint(kind, subject, int(time.time()) + begins, life_s)


def test_what_java_pushes_through_tls_python_reads(
    programs: Programs, cluster: LocalCluster, keeper: Keeper, show: Show
) -> None:
    """Tasks of an application, with its token, push records of any size to a secured worker; all of them are read."""
    with Session(cluster.endpoints, app="push", credentials=cluster.credentials) as session:
        instance = session.register_reduce_shuffle(1, 1).key.instance
        show(minted(keeper, TokenKind.APPLICATION, instance))
        pushing = Pushing(programs, cluster, session)
        pushing.push(records=300, sizes=[1, 1_000, 70_000, 300_000])
        pushing.check()


def refused(shelled: Shell) -> tuple[str, str]:
    status, _, message = shelled.refusal("asUser")
    return status, message


def test_strangers_and_bad_tokens_are_distinguished_at_once(
    programs: Programs, cluster: LocalCluster, keeper: Keeper, show: Show, tmp_path: Path
) -> None:
    """A CA that is not the cluster's, a server without TLS, a token of another secret or one that ended: each ends the
    first call at once, with words that say which it is and never the token."""
    good = minted(keeper, TokenKind.USER, b"etl")
    show(good, ca=ca_of(tmp_path / "other"))
    status, message = refused(shell(programs, cluster))
    assert status == "UNAVAILABLE"
    assert "its certificate was made by another CA" in message
    show(good)
    assert shell(programs, cluster).call("asUser")[0].endswith("/true")
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, message = refused(shell(programs, f"127.0.0.1:{server.server_port}"))
        server.shutdown()
    assert status == "UNAVAILABLE"
    assert "it does not speak TLS" in message
    for status, token in (
        ("UNAUTHENTICATED", minted(Keeper(bytes(32), "x"), TokenKind.USER, b"etl")),
        ("TOKEN_EXPIRED", minted(keeper, TokenKind.USER, b"etl", begins=-100, life_s=50)),
    ):
        show(token)
        reported, message = refused(shell(programs, cluster))
        assert reported == status
        assert token not in message
    show(minted(keeper, TokenKind.VIEWER, b"eyes"))
    assert shell(programs, cluster).refusal("lease", "app", 0)[0] == "FORBIDDEN"


def test_without_the_settings_a_secured_cluster_says_nothing(programs: Programs, cluster: LocalCluster) -> None:
    """A client that does not speak TLS gets no answer and is told what may be missing."""
    status, _, message = shell(programs, cluster, 1_000).refusal("workers")
    assert status == "UNAVAILABLE"
    assert "security.ca" in message


def test_an_application_reaches_its_own_alone(
    programs: Programs, cluster: LocalCluster, keeper: Keeper, show: Show
) -> None:
    """With the token that registering brought, own shuffles are served; another application's are FORBIDDEN by masters
    and workers alike, be they there or not."""
    show(minted(keeper, TokenKind.USER, b"etl"))
    java, other = shell(programs, cluster), shell(programs, cluster)
    instance = java.call("lease", "mine", 0)[0]
    theirs = other.call("lease", "theirs", 0)[0]
    other.call("register", 1, 0, 4, 1, 1, False, False)
    assert java.call("register", 1, 0, 4, 1, 1, False, False)[0] == "0"
    address = cluster.workers[0].address
    assert java.call("greet", address, instance)[0] != "FORBIDDEN"
    assert java.refusal("greet", address, theirs)[0] == "FORBIDDEN"
    assert java.refusal("greet", address, bytes(16).hex())[0] == "FORBIDDEN"
    java.call("instance", theirs)
    for command in (("register", 1, 0, 4, 1, 1, False, False), ("unregister", 1, 0), ("manifest", 1, 0, 0, False)):
        status, again, message = java.refusal(*command)
        assert (status, again) == ("FORBIDDEN", False)
        assert "another application" in message
    assert other.call("unregister", 1, 0) == ["1"]


def test_tokens_follow_one_another(programs: Programs, cluster: LocalCluster, keeper: Keeper, show: Show) -> None:
    """The driver's token is a newer one before the first has ended, and calls go on beyond that; after a sleep that was
    longer than any token's life the user's brings the next."""
    show(minted(keeper, TokenKind.USER, b"etl"))
    java = shell(programs, cluster)
    java.call("lease", "long", 60_000)
    first = java.call("token")[0]
    ends = times_of(first)[1]
    newer = wait_until(lambda: token if (token := java.call("token")[0]) != first else None, "a newer token", 60.0)
    assert newer is not None
    assert times_of(newer)[0] < ends
    wait_until(lambda: time.time() > ends, "the first token to end", 60.0)
    assert java.call("register", 1, 0, 4, 1, 1, False, False)[0] == "0"
    java.program.process.send_signal(signal.SIGSTOP)
    awake = time.time() + LIFE_S
    wait_until(lambda: time.time() > awake, "all its tokens to end", 60.0)
    java.program.process.send_signal(signal.SIGCONT)
    assert java.call("unregister", 1, 0) == ["1"]
