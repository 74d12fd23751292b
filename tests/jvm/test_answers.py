"""What the Java client makes of answers: every status of the one table, and what no master of its cluster says."""

import http.server
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.statuses import MEANINGS, Loop, Next, Status
from tests.jvm.test_control import Shell, own, shell
from tests.support.jvm import Programs
from tests.support.waiting import wait_until

__all__ = ["own"]

CLUSTER = "alpha/1"
RENEW, WORKERS = "Shuffles/RenewLease", "Admin/ListWorkers"
LEASE_MS = 1_500


class Handler(http.server.BaseHTTPRequestHandler):
    """One request to a master that says what a test wants of it."""

    protocol_version = "HTTP/1.1"
    server: "Master"

    def do_POST(self) -> None:
        """Answer as it is told to; as a master that leads otherwise."""
        self.rfile.read(int(self.headers["Content-Length"]))
        method = self.path.removeprefix("/holdfast.v1.")
        self.server.asked[method] += 1
        answers = self.server.answers.get(method)
        if self.server.always is not None:
            self.server.always(self)
        elif answers:
            answers.popleft()(self)
        else:
            self.reply(200, json.dumps(self.server.usual(method)).encode())

    def reply(self, code: int, body: bytes, **headers: str) -> None:
        """Send an answer; of this cluster, unless `cluster` says otherwise ("": of none)."""
        self.send_response(code)
        named = headers.pop("cluster", self.server.cluster.replace("/", "%2F"))
        if named:
            self.send_header("Holdfast-Cluster", named)
        for name, value in headers.items():
            self.send_header(f"Holdfast-{name.title()}", value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def raw(self, data: bytes) -> None:
        """Send these bytes and hang up."""
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Master(http.server.ThreadingHTTPServer):
    """The only master of a cluster, which leads; or what stands where one was."""

    daemon_threads = True

    def __init__(self, port: int = 0, cluster: str = CLUSTER) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.cluster = cluster
        self.address = f"127.0.0.1:{self.server_port}"
        self.asked = Counter[str]()
        self.answers: dict[str, deque[Answer]] = {}
        #: what it answers to everything, if anything
        self.always: Answer | None = None

    def usual(self, method: str) -> dict[str, object]:
        """What a master that leads says."""
        if method == "Shuffles/Discover":
            itself = {"name": "m", "http": self.address, "leader": True}
            return {"clusterId": self.cluster, "name": "m", "leaderHttp": self.address, "masters": [itself]}
        return {"leaseMs": str(LEASE_MS)}


Answer = Callable[[Handler], None]


def says(status: int | str, **headers: str) -> Answer:
    """A refusal with this status."""
    reported = json.dumps({"code": "unavailable", "message": "so it is"}).encode()
    return lambda handler: handler.reply(503, reported, status=str(status), **headers)


def page(status: int) -> Answer:
    """What a proxy shows where nobody is behind it."""
    return lambda handler: handler.reply(status, b"<html><body>no such thing</body></html>", cluster="")


GONE = int(Status.APPLICATION_GONE)
#: What no master of the cluster says.
GARBAGE: dict[str, Answer] = {
    **{f"a page with {status}": page(status) for status in (200, 301, 401, 404, 429, 500, 502, 503, 504)},
    "a reply of no cluster": lambda handler: handler.reply(200, b'{"leaseMs": "1000"}', cluster=""),
    "a refusal of no cluster": says(GONE, cluster=""),
    "a refusal of another cluster": says(GONE, cluster="beta"),
    "a reply of another cluster": lambda handler: handler.reply(200, b"{}", cluster="beta"),
    "a cluster that is none": says(GONE, cluster="%zz"),
    "a status that is none": says("gone"),
    "no status": lambda handler: handler.reply(404, b"{}"),
    "no JSON": lambda handler: handler.reply(200, b"\x00\xff\xfe"),
    "JSON that is cut": lambda handler: handler.reply(200, b'{"leaseMs": "10'),
    "JSON that is no object": lambda handler: handler.reply(200, b"[]"),
    "JSON that is too deep": lambda handler: handler.reply(200, b'{"a":' + b"[" * 100_000),
    "nothing": lambda handler: handler.raw(b""),
    "a cut answer": lambda handler: handler.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "a cut head": lambda handler: handler.raw(b"HTTP/1.1 200 OK\r\nHoldfast-Clus"),
    "a head that does not end": lambda handler: handler.raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000),
    "no length": lambda handler: handler.raw(b"HTTP/1.1 200 OK\r\nHoldfast-Cluster: alpha%2F1\r\n\r\n{}"),
    "a wrong length": lambda handler: handler.raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    "no HTTP": lambda handler: handler.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "TLS": lambda handler: handler.raw(b"\x15\x03\x01\x00\x02\x02\x46"),
}


@contextmanager
def serving(master: Master) -> Iterator[Master]:
    """Let it answer."""
    thread = threading.Thread(target=master.serve_forever, daemon=True)
    thread.start()
    try:
        yield master
    finally:
        master.shutdown()
        master.server_close()
        thread.join()


def test_a28_no_answer_but_one_ends_a_lease(programs: Programs) -> None:
    """A driver's renewal goes on after every status but APPLICATION_GONE, after a number from the future, and after all
    that no master of its cluster says."""
    going_on = [status for status in Status if Loop.LEASE not in MEANINGS[status].ends]
    assert len(going_on) == len(Status) - 1
    with serving(Master()) as master:
        java = shell(programs, master.address)
        answers = [*GARBAGE.values(), says(60_000), *(says(int(status)) for status in going_on)]
        master.answers[RENEW] = deque(answers)
        java.call("lease", "lasting", LEASE_MS)
        wait_until(lambda: not master.answers[RENEW], "every answer to be given", 120.0)
        after = master.asked[RENEW]
        wait_until(lambda: master.asked[RENEW] > after + 1, "renewals to go on")
        assert java.call("gone") == ["no"]
        master.answers[RENEW].extend([says(GONE)] * 100)  # a busy machine may be too late to hear the first
        wait_until(lambda: java.call("gone") == ["APPLICATION_GONE"], "the one that ends it")


def test_a47_no_error_of_ours_ends_a_lease(programs: Programs) -> None:
    """A renewal that meets an Error, as where the heap is full, is made again: the lease of the driver goes on."""
    with serving(Master()) as master:
        java = shell(programs, master.address)
        master.answers[RENEW] = deque([says(int(Status.TOKEN_EXPIRED))] * 1000)  # upon which the credential is read
        java.call("frail", "lasting", LEASE_MS)
        wait_until(lambda: int(java.call("errors")[0]) >= 3, "errors", 60.0)
        master.answers[RENEW].clear()
        after = master.asked[RENEW]
        wait_until(lambda: master.asked[RENEW] > after + 2, "renewals to go on")
        assert java.call("gone") == ["no"]


def test_a28_only_a_masters_status_ends_a_call(programs: Programs) -> None:
    """A call ends with a status that is final and was told by a master of the cluster; it outlives all else."""
    with serving(Master()) as master:
        java = shell(programs, master.address)
        java.call("workers")
        for what, answer in GARBAGE.items():
            master.answers[WORKERS] = deque([answer])
            assert ends_well(java), what
            assert not master.answers[WORKERS], what
        for status in Status:
            again = MEANINGS[status].next is Next.AGAIN and status is not Status.NOT_COMMITTED
            master.answers[WORKERS] = deque([says(int(status))])
            if again:
                assert ends_well(java), status
            else:
                assert java.refusal("workers")[0] == status.name


def ends_well(java: Shell) -> bool:
    """Whether a call is answered in the end."""
    return java.call("workers") == []


STRANGERS: dict[str, Callable[[int], Master]] = {
    "another_cluster": lambda port: Master(port, "beta"),
    "unavailable": lambda port: always(port, page(503)),
    "not_found": lambda port: always(port, page(404)),
    "a_reply": lambda port: always(port, GARBAGE["a reply of no cluster"]),
}


def always(port: int, answer: Answer) -> Master:
    """What says the same to everything."""
    stranger = Master(port)
    stranger.always = answer
    return stranger


@pytest.mark.parametrize("stranger", list(STRANGERS))
def test_a29_who_took_the_dead_leaders_address_is_not_believed(
    programs: Programs, own: LocalCluster, stranger: str
) -> None:
    """The leader is killed and something else listens at its address: calls and lease go on with the next leader."""
    java = shell(programs, own)
    java.call("lease", "lasting", 3 * LEASE_MS)
    java.call("register", 1, 0, 4, 1, 1, False, False)
    old = own.leader()
    port = int(old.address.rpartition(":")[2])
    old.kill()
    with serving(STRANGERS[stranger](port)) as taken:
        java.call("register", 2, 0, 4, 1, 1, False, False)
        assert taken.asked, "it was asked, and not believed"
        java.call("commit", 2, 0, 4, "7")
        assert java.call("gone") == ["no"]
        assert java.call("manifest", 2, 0, 0, False)[0] == "7"
