"""`holdfast doctor` on clusters that are broken for real: masters that disagree, clocks, servers that are gone."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import worker_status
from holdfast.common.errors import RetryError
from holdfast.common.system.ports import free_ports
from holdfast.tools.cli.commands.doctor import leave_unreadable_token
from tests.support.machine import OF_THE_MACHINE
from tests.support.waiting import wait_until

#: The doctor tells servers by their command lines.
pytestmark = pytest.mark.real_starts
COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers; the tests of this file break them more and more, in order."""
    settings = {"lease": {"worker": "3s", "heartbeat": "500ms"}}
    with local_cluster(masters=3, workers=2, dir=tmp_path_factory.mktemp("doctor"), settings=settings) as started:
        yield started


def doctor(*words: object, status: int) -> dict[str, dict[str, str]]:
    """Run it; return findings by code, the first of each, without what this machine alone is to blame for."""
    environ = {name: value for name, value in os.environ.items() if name != "HOLDFAST_MASTERS"}
    command = [*COMMAND, "doctor", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for each in json.loads(done.stdout)["findings"]:
        assert each["remedy"]
        if each["code"] not in OF_THE_MACHINE:
            found.setdefault(each["code"], each)
    judged = int(any(each["level"] == "problem" for each in found.values()))
    assert judged == status, done.stdout + done.stderr
    assert done.returncode >= judged
    return found


def changed(file: Path, **changes: str) -> Path:
    """A copy of a server's file, in which the text of each key is another."""
    text = file.read_text("utf-8")
    for key, value in changes.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert count == 1
    copy = file.with_name("changed.toml")
    copy.write_text(text, "utf-8")
    return copy


def test_a_sound_cluster_is_called_so(cluster: LocalCluster):
    """Seen as a client and as each of its hosts a cluster that is well has no problem, its own ports being its own."""
    assert doctor("--masters", cluster.endpoints, status=0) == {}
    for server in cluster.servers:
        doctor("--config", server.config, status=0)


def test_people_read_sentences(cluster: LocalCluster):
    """Without --json each finding is a line with its remedy below, and what was not looked at is told."""
    done = subprocess.run(
        [*COMMAND, "doctor", "--masters", cluster.masters[0].address],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert "advice endpoints-few: the list of masters names 1 of 3 masters\n        name all of them" in done.stdout
    assert "not at Spark: give --spark-conf FILE" in done.stdout


def test_another_cluster_is_named(cluster: LocalCluster):
    """A worker's file with another cluster id than the masters it names is a problem, and so is a name that lives."""
    data, http = free_ports(2)
    other = changed(cluster.workers[0].config, id='"another"', data_port=str(data), http_port=str(http))
    found = doctor("--config", other, status=1)
    assert "[cluster] id" in found["cluster-differs"]["remedy"]
    assert "directory-foreign" in found
    assert "a name of its own" in found["worker-twice"]["remedy"]


def test_masters_that_disagree_are_named(cluster: LocalCluster, tmp_path: Path):
    """A master with another secret, other leases, another list of masters, and another clock is named for each."""
    odd = cluster.masters[2]
    whole = odd.config.read_text("utf-8")
    secret = tmp_path / "secret"
    secret.write_text("another secret of sixteen bytes")
    secret.chmod(0o600)
    text = re.sub(r"(?m)^secret_file = .*$", f'secret_file = "{secret}"', whole)
    text = text.replace('worker = "3s"', 'worker = "4s"')
    text = text.replace(f'http = "{cluster.masters[0].address}"', f'http = "127.0.0.1:{free_ports(1)[0]}"')
    odd.stop()
    odd.config.write_text(text + '\n[faults]\nenabled = true\nclock_offset = "1h"\n', "utf-8")
    try:
        odd.start()
        found = doctor("--masters", cluster.endpoints, status=1)
        file = doctor("--config", cluster.masters[0].config, status=1)
    finally:
        odd.stop()
        odd.config.write_text(whole, "utf-8")
        odd.start()
    for code, remedy in (
        ("secret-differs", "the same file"),
        ("settings-differ", "[lease]"),
        ("peers-differ", "the same list"),
        ("clock", "NTP"),
        ("faults", "[faults]"),
    ):
        assert "m3" in found[code]["where"], found[code]
        assert remedy in found[code]["remedy"]
    assert "than this file" in file["secret-differs"]["what"]
    assert secret.read_text() not in json.dumps([found, file])


def test_servers_that_are_gone_are_named(cluster: LocalCluster):
    """A worker that is lost, one that is stopped, too few hosts for two copies, and masters that do not answer."""
    first, second = cluster.workers
    second.kill()

    def lost() -> bool:
        done = subprocess.run([*COMMAND, "workers", "--masters", cluster.endpoints], capture_output=True, check=False)
        return done.returncode == 1

    wait_until(lost, "the worker is lost")
    conf = cluster.directory / "spark.conf"
    conf.write_text(f"spark.holdfast.master.endpoints {cluster.endpoints}\nspark.holdfast.replication 2\n")
    found = doctor("--spark-conf", conf, status=1)
    assert "w2" in found["worker-lost"]["where"]
    assert "more hosts" in found["spark-replication"]["remedy"]
    first.kill(signal.SIGSTOP)
    try:
        found = doctor("--masters", cluster.endpoints, status=1)
    finally:
        first.kill(signal.SIGCONT)
    assert "firewall" in found["worker-silent"]["remedy"]
    cluster.masters[0].kill()
    found = doctor("--masters", cluster.endpoints, status=1)
    assert cluster.masters[0].address in found["master-silent"]["where"]
    listed = subprocess.run(
        [*COMMAND, "status", "--json", "--masters", cluster.endpoints], capture_output=True, check=False
    )
    assert [each["name"] for each in json.loads(listed.stdout)["masters"]] == ["m1", "m2", "m3"], "also who is away"
    cluster.masters[1].kill()
    wait_until(lambda: "no-leader" in doctor("--masters", cluster.endpoints, status=1), "the last master leads no more")


def test_masters_that_are_not_there_yet_are_no_problem_of_a_new_host(cluster: LocalCluster):
    """Before the first start nothing answers: advice for who installs a worker, a problem for who says it runs."""
    data, http, master = free_ports(3)
    home = cluster.directory / "fresh"
    text = f'[worker]\nname = "w7"\ndata_port = {data}\nhttp_port = {http}\nmasters = ["127.0.0.1:{master}"]\n'
    file = cluster.directory / "fresh.toml"
    file.write_text(text + f'directories = [{{ path = "{home}", capacity = "1GiB" }}]\n')
    assert doctor("--config", file, status=0)["master-silent"]["level"] == "advice"
    assert doctor("--config", file, "--masters", f"127.0.0.1:{master}", status=1)["master-silent"]["level"] == "problem"


def test_a_secured_cluster_is_seen_with_what_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a token, and from a server's own files, a secured cluster is well; without, the doctor says what to set. A
    token that a user may not read does not stand in the way of the server's own."""
    pytest.importorskip("cryptography")
    for variable in ("HOLDFAST_CA", "HOLDFAST_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", secure=True) as cluster:
        found = doctor("--masters", cluster.endpoints, status=1)
        assert "HOLDFAST_TOKEN_FILE" in found["token"]["remedy"]
        for server in cluster.servers:
            assert "port-held" not in doctor("--config", server.config, status=0)
        assert cluster.credentials is not None
        ca, token = tmp_path / "ca.pem", tmp_path / "token"
        ca.write_text(cluster.credentials.ca_pem)
        token.write_text(cluster.credentials.token)
        token.chmod(0o600)
        monkeypatch.setenv("HOLDFAST_CA", str(ca))
        monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(token))
        assert [each for each in doctor("--masters", cluster.endpoints, status=0) if each != "token"] == []
        leave_unreadable_token()
        assert os.environ["HOLDFAST_TOKEN_FILE"] == str(token), "this user may read it"
        token.unlink()  # as one of root's is for the user of --user; root may read every file that is there
        assert "token" in doctor("--config", cluster.masters[0].config, status=1)
        leave_unreadable_token()
        assert "token" not in doctor("--config", cluster.masters[0].config, status=0)


def answers(server: Server) -> bool:
    """Whether something listens at its HTTP port."""
    try:
        worker_status(server.http, 1.0)
    except RetryError as error:
        return "refused" not in str(error)
    return True


def test_a_server_that_its_cluster_does_not_know_learns_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker with another secret, without TLS or with another CA runs and has its ports: those are its own, and the
    finding is what differs."""
    authority = pytest.importorskip("holdfast.common.security.authority")
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", secure=True) as cluster:
        monkeypatch.setenv("HOLDFAST_CA", str(cluster.directory / "security" / "ca.pem"))
        monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(cluster.directory / "security" / "admin.token"))
        worker, text = cluster.workers[0], cluster.workers[0].config.read_text()
        secret, other = tmp_path / "secret", tmp_path / "other"
        secret.write_text("another secret of the same length")
        secret.chmod(0o600)
        authority.keep(other, "server", ["127.0.0.1"])
        for changed_text, code, words in (
            (text.replace(str(cluster.directory / "secret"), str(secret)), "secret-differs", "the masters have"),
            (text.replace("enabled = true", "enabled = false"), "security-differs", "enable [security]"),
            (text.replace(str(cluster.directory / "security"), str(other)), "certificate", "the CA"),
        ):
            assert changed_text != text
            worker.stop()
            worker.config.write_text(changed_text)
            worker.start(wait=False)
            wait_until(lambda: answers(worker), "the worker to listen")
            found = doctor("--config", worker.config, status=1)
            assert words in found[code]["remedy"]
            assert "port-held" not in found


def test_a_port_at_which_nothing_listens_is_not_blamed_on_a_firewall(tmp_path: Path):
    """A worker that ended a moment ago is alive for the masters, and its host refuses connections: the doctor says that
    nothing listens there and to start it, and no word of firewalls."""
    long = {"lease": {"worker": "5m", "heartbeat": "500ms"}}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=long) as own:
        own.workers[0].kill()
        found = doctor("--masters", own.endpoints, status=1)["worker-silent"]
    assert "nothing listens" in found["what"]
    assert "start it" in found["remedy"]
    assert "firewall" not in found["remedy"]
