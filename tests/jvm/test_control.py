"""The Java client of the masters against real ones: calls, long polls, leaders that die or hang, leases."""

import http.server
import json
import re
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import ask
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system.ports import free_ports
from tests.support.jvm import Jvm, Program, Programs
from tests.support.waiting import wait_until

DEADLINE_MS = 20_000
#: Leases that end while a test looks on.
SHORT = {"lease": {"tick": "100ms", "deletion_grace": "300ms"}}
LEASE_MS = 1_500


class Shell:
    """A ControlShell: calls by line, in the background or waited for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._labels = 0
        program.hear("ready")

    def begin(self, command: str, *args: object) -> str:
        """Begin a call; return the label under which it answers."""
        self._labels += 1
        label = f"call-{self._labels}"
        words = [str(each).lower() if isinstance(each, bool) else str(each) for each in args]
        self.program.say(label, command, *words)
        return label

    def end(self, label: str, seconds: float = 60.0) -> list[str]:
        """The words of an answer; raises AssertionError where the call was refused."""
        kind, _, rest = self.program.find(f"{label} ", seconds).partition(" ")
        assert kind == "ok", f"{kind} {rest}"
        return rest.split()

    def refused(self, label: str, seconds: float = 60.0) -> tuple[str, bool, str]:
        """Status, whether another try may help, and the message of a refused call."""
        kind, _, rest = self.program.find(f"{label} ", seconds).partition(" ")
        assert kind == "refused", f"{kind} {rest}"
        status, again, message = rest.split(" ", 2)
        return status, again == "true", message

    def call(self, command: str, *args: object) -> list[str]:
        return self.end(self.begin(command, *args))

    def refusal(self, command: str, *args: object) -> tuple[str, bool, str]:
        return self.refused(self.begin(command, *args))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers for the tests that leave them running."""
    directory = tmp_path_factory.mktemp("control") / "cluster"
    with local_cluster(masters=3, workers=2, dir=directory, settings=SHORT) as started:
        yield started


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters and a worker of one test."""
    with local_cluster(masters=3, workers=1, dir=tmp_path / "cluster") as started:
        yield started


def shell(programs: Programs, cluster: LocalCluster | str, deadline_ms: int = DEADLINE_MS) -> Shell:
    endpoints = cluster if isinstance(cluster, str) else cluster.endpoints
    return Shell(programs.start("control.ControlShell", endpoints, deadline_ms))


def cluster_has(cluster: LocalCluster, living: int) -> bool:
    """Whether the masters call so many workers alive."""
    reply = ask(cluster.masters[0].address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 5.0)
    return reply.workers_alive == living


def places(text: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, each.split(":"))) for each in text.split(",")]


def test_a_shuffle_from_registration_to_its_end(programs: Programs, shared: LocalCluster) -> None:
    """Registered, revived, committed, read and dropped: answers are what masters hold, refusals have their status."""
    java = shell(programs, shared)
    java.call("lease", "app", 0)
    generation, copies, index, located, workers = java.call("register", 7, 0, 4, 2, 2, False, False)
    assert (generation, copies) == ("0", "2")
    assert int(index) > 0
    assert {each.split("/")[2] for each in workers.split(",")} == {"h1", "h2"}
    assert all(each.endswith("/true") for each in workers.split(","))
    numbers = {int(each.split("/")[0]) for each in workers.split(",")}
    assert all(epoch == 0 and {primary, replica} == numbers for epoch, primary, replica in places(located))
    assert java.call("register", 7, 0, 4, 2, 2, False, False)[3] == located
    assert java.refusal("register", 7, 0, 5, 2, 2, False, False)[:2] == ("CONFLICT", False)

    confined = shell(programs, shared, 1_000)
    confined.call("lease", "app", 0, "gpu", "etl")
    assert "has the tags etl and gpu" in confined.refusal("register", 7, 0, 4, 2, 2, False, False)[2]

    failed = f"1:0:{Status.HARD_SPLIT.value},3:0:{Status.UNAVAILABLE.value}"
    revived = java.call("revive", 7, 0, failed)
    assert [place[:2] for place in places(revived[0])] == [(1, 1), (3, 1)]
    assert java.call("revive", 7, 0, failed)[0] == revived[0]

    assert java.refusal("manifest", 7, 0, 1000, True)[:2] == ("NEED_WINNERS", False)
    assert java.refusal("manifest", 7, 0, 10, False)[:2] == ("NOT_COMMITTED", True)
    java.call("commit", 7, 0, 4, "11,12")
    java.call("commit", 7, 0, 4, "11,12")
    assert java.refusal("commit", 7, 0, 4, "11,13")[:2] == ("CONFLICT", False)
    attempts, epochs, _ = java.call("manifest", 7, 0, 0, True)
    assert attempts == "11,12"
    assert [each.split(":")[:2] for each in epochs.split(",")] == [
        [str(partition), str(epoch)] for partition, epoch in [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1)]
    ]
    assert {each.split(":")[3] for each in epochs.split(",")} == {"UNKNOWN_FILE"}
    assert java.refusal("revive", 7, 0, failed)[0] == "COMMITTED"

    assert java.call("unregister", 7, 0) == ["1"]
    assert java.call("unregister", 7, 0) == ["0"]
    assert java.refusal("manifest", 7, 0, 0, False)[0] in ("UNKNOWN_SHUFFLE", "UNKNOWN_GENERATION")


def test_a06_fewer_copies_are_a_warning(programs: Programs, tmp_path: Path) -> None:
    """Two copies asked for, one of two workers lost: the log has a warning at the registration, with the lost worker,
    and one at the commit, with the number of epochs that have one copy. With a worker that goes in between, the warning
    at the commit names it."""
    quick = {"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"copy_grace": "0s"}}
    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=quick) as cluster:
        program = programs.start(
            "control.ControlShell", cluster.endpoints, DEADLINE_MS, options=("-Dorg.apache.logging.log4j.level=WARN",)
        )
        java = Shell(program)
        instance, *_ = java.call("lease", "app", 0)
        with Session(cluster.endpoints, attach=instance) as session:

            def written(shuffle_id: int) -> None:
                java.call("register", shuffle_id, 0, 4, 1, 2, False, False)
                shuffle = session.register_reduce_shuffle(partitions=4, maps=1, replication=2, shuffle_id=shuffle_id)
                with shuffle.writer(0, attempt=5) as writer:
                    for partition in range(4):
                        writer.write(partition, b"x" * 100)
                    writer.close()

            written(1)
            cluster.workers[0].kill()
            java.call("commit", 1, 0, 4, "5")
            wait_until(lambda: cluster_has(cluster, 1), "the worker is lost")
            written(2)
            java.call("commit", 2, 0, 4, "5")
        said = program.output()
    first, second = (f"{instance[:8]}/{number}" for number in (1, 2))
    fewer = f"{LogEvent.SHUFFLE_FEWER_COPIES} shuffle={second} copies=1 wanted=2 lost_workers=w1 — "
    assert fewer in said
    under_replicated = LogEvent.SHUFFLE_UNDER_REPLICATED
    assert f"{under_replicated} shuffle={first} epochs=4 awaited=4 waits_for=w1 — {under_replicated.sentence}" in said
    assert f'{under_replicated} shuffle={second} epochs=4 awaited=0 waits_for="" — ' in said
    assert said.count(f"{LogEvent.SHUFFLE_FEWER_COPIES} ") == 1


def test_a_generation_to_write_is_found(programs: Programs, shared: LocalCluster) -> None:
    """A map task that knows of no generation gets the newest that takes data, opened if need be."""
    java = shell(programs, shared)
    java.call("lease", "app", 0)
    register = ("register", 1, 0, 4, 1, 1, True, False)
    assert java.call(*register)[0] == "0"
    assert java.call(*register)[0] == "0"
    java.call("commit", 1, 0, 4, "5")
    assert java.call(*register)[0] == "1"
    assert java.call(*register)[0] == "1"
    assert java.call("register", 1, 1, 4, 1, 1, True, False)[0] == "1"
    assert java.call("unregister", 1, 1) == ["2"]


def test_messages_of_megabytes(programs: Programs, shared: LocalCluster) -> None:
    """Winners of 300,000 maps, which cannot be compressed, go to the masters and come back as they were."""
    java = shell(programs, shared)
    java.call("lease", "app", 0)
    java.call("register", 5, 0, 2, 300_000, 1, False, False)
    java.call("commit", 5, 0, 2, "random:300000")
    assert java.call("winners", 5, 0, "random:300000") == ["true"]


def test_workers_are_reported(programs: Programs, shared: LocalCluster) -> None:
    """The list has every worker's number, incarnation, host and address; calls learn cluster and Raft index."""
    java = shell(programs, shared)
    (reported,) = java.call("workers")
    (leader,) = [master for master in shared.masters if master is shared.leader()]
    reply = ask(leader.address, "Admin/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersReply, 5.0)
    assert sorted(reported.split(",")) == sorted(
        f"{each.worker}/{each.incarnation}/{each.host}/{each.data_address}/true" for each in reply.workers
    )
    java.call("lease", "app", 0)
    cluster_id, index = java.call("seen")
    assert cluster_id == (shared.directory / "cluster").read_text()
    assert int(index) > 0


def test_a_long_poll_waits_for_the_commit(programs: Programs, shared: LocalCluster) -> None:
    """A reader that asks before the commit is answered by it; an interrupted one ends and stays interrupted."""
    java = shell(programs, shared)
    java.call("lease", "app", 0)
    java.call("register", 2, 0, 4, 1, 1, False, False)
    waits, stops = (java.begin("manifest", 2, 0, 30_000, False) for _ in range(2))
    wait_until(lambda: long_polls(shared) >= 2, "both to wait")
    java.call("interrupt", stops)
    status, again, message = java.refused(stops, seconds=5)
    assert (status, again) == ("INTERNAL", False)
    assert "still interrupted" in message
    java.call("commit", 2, 0, 4, "9")
    assert java.end(waits)[0] == "9"


def long_polls(cluster: LocalCluster) -> int:
    """How many calls wait on the leader."""
    with urllib.request.urlopen(f"http://{cluster.leader().http}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("holdfast_master_long_polls "))))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_calls_survive_the_leader(programs: Programs, own: LocalCluster, number: int) -> None:
    """The leader killed or stopped under many calls and a long poll: each is answered, and applied once."""
    java = shell(programs, own, 60_000)
    java.call("lease", "app", 60_000)
    java.call("register", 1_000_000, 0, 4, 1, 1, False, False)
    waits = java.begin("manifest", 1_000_000, 0, 30_000, False)
    wait_until(lambda: long_polls(own) == 1, "the reader to wait")
    old = own.leader()
    many = java.begin("many", 400, 8)
    wait_until(lambda: shuffles(old.address) > 20, "some calls to be answered")
    old.kill(number)
    assert java.end(many, 90) == ["400"]
    java.call("commit", 1_000_000, 0, 4, "3")
    assert java.end(waits)[0] == "3"
    dropped = [java.begin("unregister", shuffle, 0) for shuffle in range(0, 400, 40)]
    assert [java.end(label) for label in dropped] == [["1"]] * 10
    if number == signal.SIGSTOP:
        old.kill(signal.SIGCONT)


def shuffles(address: str) -> int:
    """How many shuffle generations a master holds."""
    return ask(address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 5.0).shuffles


def test_a_lease_is_renewed_while_its_driver_lives(programs: Programs, shared: LocalCluster) -> None:
    """An application outlives a later one that is not renewed; killed with -9 it is gone soon after."""
    java = shell(programs, shared)
    instance, holder, lease_ms = java.call("lease", "renewed", LEASE_MS)
    assert (len(instance), len(holder), int(lease_ms)) == (32, 32, LEASE_MS)
    java.call("register", 3, 0, 4, 1, 1, False, False)
    silent = b"never heard of::"
    key = pb.ShuffleKey(instance=silent)
    request = pb.RegisterApplicationRequest(instance=silent, name="silent", holder=silent, lease_ms=2 * LEASE_MS)
    shuffle = pb.RegisterShuffleRequest(key=key, kind=pb.PARTITION_KIND_REDUCE, partitions=1, holder=silent)
    leader = shared.leader().address
    ask(leader, "Shuffles/RegisterApplication", request, pb.RegisterApplicationReply, 5.0)
    ask(leader, "Shuffles/RegisterShuffle", shuffle, pb.RegisterShuffleReply, 5.0)
    assert listed(shared, "silent") == listed(shared, "renewed") == 1
    wait_until(lambda: listed(shared, "silent") == 0, "the other one's lease to end")
    assert java.call("gone") == ["no"]
    assert listed(shared, "renewed") == 1
    java.program.kill()
    wait_until(lambda: listed(shared, "renewed") == 0, "the lease of the killed driver to end")


def listed(cluster: LocalCluster, name: str) -> int:
    """How many shuffles of applications of this name the masters hold. None is named: that would renew it."""
    reply = ask(cluster.leader().address, "Admin/ListShuffles", pb.ListShufflesRequest(), pb.ListShufflesReply, 5.0)
    return sum(each.application == name and each.state != "dropped" for each in reply.shuffles)


def test_closing_gives_the_lease_back(programs: Programs, shared: LocalCluster) -> None:
    """After close the shuffles go at once, no thread of ours is left, and calls are refused."""
    java = shell(programs, shared)
    java.call("lease", "closing", 60_000)
    java.call("many", 40, 8)
    assert listed(shared, "closing") == 40
    assert java.call("close") == []
    wait_until(lambda: listed(shared, "closing") == 0, "the shuffles to go")
    status, again, _ = java.refusal("workers")
    assert (status, again) == ("INTERNAL", False)
    assert java.program.wait() == 0


def test_closing_ends_calls_under_way(programs: Programs, shared: LocalCluster) -> None:
    """A long poll under way ends as soon as the masters' calls are closed."""
    java = shell(programs, shared)
    java.call("lease", "app", 0)
    java.call("register", 4, 0, 4, 1, 1, False, False)
    waits = java.begin("manifest", 4, 0, 30_000, False)
    wait_until(lambda: long_polls(shared) >= 1, "the reader to wait")
    java.call("closeMasters")
    assert java.refused(waits, seconds=5)[0] == "INTERNAL"


def test_a_forgotten_application_is_noticed(programs: Programs, shared: LocalCluster) -> None:
    """A driver whose application was dropped hears of it with the next renewal, and its calls are refused for good."""
    java = shell(programs, shared)
    instance, _, _ = java.call("lease", "dropped", LEASE_MS)
    request = pb.ForgetRequest(instance=bytes.fromhex(instance))
    ask(shared.leader().address, "Admin/Forget", request, pb.ForgetReply, 5.0)
    wait_until(lambda: java.call("gone") == ["APPLICATION_GONE"], "the driver to hear of it")
    assert java.refusal("register", 1, 0, 4, 1, 1, False, False)[:2] == ("APPLICATION_GONE", False)


def test_messages_as_json(jvm: Jvm) -> None:
    """Numbers, bytes and texts survive JSON, up to arrays of many MiB; what is no message is a typed error."""
    assert jvm.run("control.JsonChecks") == "checked\n"


@pytest.fixture
def silent_names(tmp_path: Path) -> Iterator[list[str]]:
    """What runs a command where names are looked up at a name server that never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind(("127.0.0.54", 53))
        except OSError as error:
            pytest.skip(f"a name server needs the right to its port: {error}")
        resolver = tmp_path / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.54\noptions timeout:30 attempts:5\n")
        alone = ["unshare", "--mount", "sh", "-c", f'mount --bind {resolver} /etc/resolv.conf && exec "$@"', "sh"]
        if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
            pytest.skip("mounts of its own cannot be made here")
        yield alone


def test_a14_a_name_that_is_not_looked_up_holds_up_no_other_master(
    jvm: Jvm, shared: LocalCluster, silent_names: list[str], tmp_path: Path
) -> None:
    """The first of the endpoints is a name that no name server answers for: a call is answered by the others all the
    same, while the name is still being looked up."""
    endpoints = f"m1.holdfast.test:1,{shared.endpoints}"
    command = [*silent_names, *jvm.command("control.ControlShell", endpoints, DEADLINE_MS)]
    program = Program(command, tmp_path / "shell.log")
    try:
        java = Shell(program)
        assert len(java.call("workers")) == 1
    finally:
        program.kill()


def test_a_long_call_says_what_it_waits_for(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only master stands still in the middle of a call: the log says after ten seconds what is waited for; the
    call is answered when the master goes on."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dorg.apache.logging.log4j.level=WARN")
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        java = shell(programs, cluster, 120_000)
        assert len(java.call("workers")) == 1
        cluster.masters[0].kill(signal.SIGSTOP)
        under_way = java.begin("workers")
        address = cluster.masters[0].address
        reported = rf'call\.slow method=\S+ seconds=10 seconds_max=1.. reason="{address} has not answered'
        wait_until(lambda: re.search(reported, java.program.output()), "it is in the log")
        cluster.masters[0].kill(signal.SIGCONT)
        assert len(java.end(under_way)) == 1


def test_nobody_answers(programs: Programs) -> None:
    """Masters that are not there: the calls end at their deadline and name each address and why."""
    first, second = free_ports(2)
    java = shell(programs, f"127.0.0.1:{first},127.0.0.1:{second}", 1_000)
    status, again, message = java.refusal("workers")
    assert (status, again) == ("UNAVAILABLE", True)
    assert f"127.0.0.1:{first}: connection refused" in message
    assert f"127.0.0.1:{second}: connection refused" in message


class Stranger(http.server.BaseHTTPRequestHandler):
    """An HTTP server that is no master."""

    def do_POST(self) -> None:
        """Answer as many servers do."""
        body = json.dumps({"message": "no such page"}).encode()
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_wrong_endpoints_are_reported_at_once(programs: Programs, jvm: Jvm) -> None:
    """What is no master, an unknown host and words that are no endpoint are named without waiting for a deadline."""
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        java = shell(programs, f"127.0.0.1:{server.server_port},no-such-host.invalid:7070", 600_000)
        status, _, message = java.refusal("workers")
        server.shutdown()
    assert status == "UNAVAILABLE"
    assert "answers, but is no master: no such page" in message
    assert "no-such-host.invalid:7070: unknown host" in message
    for wrong in ("nonsense", "bücher:7070", "a..b:7070", "::1:7070", f"{'x' * 64}:7070"):
        with pytest.raises(pytest.fail.Exception, match=f'"{wrong}" is no endpoint'):
            jvm.run("control.ControlShell", wrong, 1000)


def test_without_a_second_host_there_is_one_copy(programs: Programs, own: LocalCluster) -> None:
    """Two copies asked for and one host there: the answer says one, and no location has a replica."""
    java = shell(programs, own)
    java.call("lease", "app", 0)
    _, copies, _, located, _ = java.call("register", 1, 0, 4, 1, 2, False, False)
    assert copies == "1"
    assert {len(place) for place in places(located)} == {2}, "an epoch and one worker"
