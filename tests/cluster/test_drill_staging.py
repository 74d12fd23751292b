"""Drills against a staging cluster: an inventory whose hosts are processes of this machine, killed by commands."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.tools.cli.main import run
from holdfast.tools.drills import leader
from holdfast.tools.drills.failure_domain import RACK
from holdfast.tools.drills.support.staging import staging_cluster

#: What a command runs: it asks the process that has the servers.
COMMAND = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
SIGNALS = {"KILL": 9, "STOP": 19, "CONT": 18}


class Supervisor(BaseHTTPRequestHandler):
    """Does to servers what the commands of an inventory ask: /kill/w1/KILL, /stop/w1, /start/w1, /log/w1."""

    servers: dict[str, Server]
    done: list[str]

    def do_GET(self) -> None:
        """Do it, and answer when it is done."""
        what, name, *more = self.path.strip("/").split("/")
        server = self.servers[name]
        self.done.append(f"{what} {name}")
        answer = ""
        match what:
            case "kill":
                server.kill(SIGNALS[more[0]])
            case "stop":
                server.stop(60.0)
            case "start":
                server.start(wait=False)
            case "log":
                answer = server.log_tail()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


Staging = tuple[Path, LocalCluster, list[str]]


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staging]:
    """The inventory of a cluster with two racks, the cluster, and what commands were run."""
    with staged(tmp_path_factory.mktemp("staging"), secure=False) as made:
        yield made


@pytest.fixture(scope="module")
def secured_staging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staging]:
    """The same with security."""
    with staged(tmp_path_factory.mktemp("secured"), secure=True) as made:
        yield made


@contextmanager
def staged(root: Path, secure: bool) -> Iterator[Staging]:
    """A cluster whose servers are killed, stopped and started by commands that ask a supervisor."""
    ground = RACK.ground(2)
    settings = {**ground.settings, "placement": {"flap_starts": 1_000}}
    with local_cluster(3, ground.workers, root / "cluster", settings, own=ground.own, secure=secure) as cluster:
        done: list[str] = []
        handler = type("Own", (Supervisor,), {"servers": {each.name: each for each in cluster.servers}, "done": done})
        supervisor = ThreadingHTTPServer(("", 0), handler)
        thread = Thread(target=supervisor.serve_forever)
        thread.start()
        file = root / "staging.toml"
        file.write_text(inventory(cluster, supervisor.server_port), encoding="utf-8")
        try:
            yield file, cluster, done
        finally:
            supervisor.shutdown()
            thread.join()
            supervisor.server_close()


def inventory(cluster: LocalCluster, port: int) -> str:
    """TOML of the cluster, with commands that ask a supervisor."""
    ask = f"{sys.executable} -c '{COMMAND}' http://{{host}}:{port}"
    lines = [
        f"kill = {json.dumps(ask + '/kill/{name}/{signal}')}",
        f"stop = {json.dumps(ask + '/stop/{name}')}",
        f"start = {json.dumps(ask + '/start/{name}')}",
        f"log = {json.dumps(ask + '/log/{name}')}",
    ]
    for number, server in enumerate(cluster.servers, 1):
        host = f"127.0.0.{number}"  # each has one of its own, since workers are restarted by host
        lines += [f"[[{server.role}s]]", f'name = "{server.name}"', f'host = "{host}"', f'http = "{server.http}"']
        if server.role == "worker":
            lines.append(f'data = "{server.address}"')
    return "\n".join(lines)


def drill(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    """Run a drill to a good end; its report."""
    capsys.readouterr()
    status = run(["drill", *map(str, words), "--yes", "--json"])
    output = capsys.readouterr()
    assert status == 0, output.out + output.err
    report: dict = json.loads(output.out)
    return report


def test_a_rack_of_a_staging_cluster_is_killed(staging, capsys, tmp_path: Path) -> None:
    """A drill kills the workers of a rack by the inventory, starts them again, and says where it ran."""
    file, cluster, done = staging
    done.clear()
    page = tmp_path / "rack.html"
    report = drill(capsys, "rack", "--count", 1, "--inventory", file, "--html", page)
    assert report["good"]
    assert "Drill rack" in page.read_text("utf-8")
    assert report["against"] == f"the cluster of {file}"
    assert report["checks"]["every record read once"] == 2
    assert str(file) in report["repeat"]
    killed = {each.removeprefix("kill ") for each in done if each.startswith("kill")}
    assert killed in ({"w1", "w3"}, {"w2", "w4"})
    assert {f"start {name}" for name in killed} <= set(done)
    assert all(server.running for server in cluster.servers)


LONG = pytest.mark.long
KILL_STOP_START = [
    pytest.param(["leader"], 2, marks=LONG),
    pytest.param(["leader", "--stop"], 2, marks=LONG),
    pytest.param(["masters"], 2, marks=LONG),
    pytest.param(["worker"], 3, marks=LONG),
    pytest.param(["rolling"], 1, marks=LONG),
    pytest.param(["host"], 1, marks=LONG),
    pytest.param(["driver"], 1, marks=LONG),
]


@pytest.mark.parametrize(("words", "count"), KILL_STOP_START)
def test_drills_that_kill_stop_and_start_run_against_a_staging_cluster(
    staging, capsys, monkeypatch, words, count
) -> None:
    """Whatever needs no more than that finds no broken promise there, and leaves every server running."""
    monkeypatch.setattr(leader, "FAILOVER_SECONDS", 600.0)  # how fast is another question, on a machine of its own
    file, cluster, _ = staging
    report = drill(capsys, *words, "--count", count, "--inventory", file)
    assert report["rounds_done"] == count
    assert all(server.running for server in cluster.servers)


@pytest.mark.parametrize(("words", "count"), [(["worker"], 1), *KILL_STOP_START, pytest.param(["rack"], 1, marks=LONG)])
def test_they_run_against_a_secured_one(secured_staging: Staging, capsys, monkeypatch, words, count) -> None:
    """With the CA and an admin's token in the environment nothing else is needed."""
    monkeypatch.setattr(leader, "FAILOVER_SECONDS", 600.0)
    file, cluster, _ = secured_staging
    monkeypatch.setenv("HOLDFAST_CA", str(cluster.directory / "security" / "ca.pem"))
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(cluster.directory / "security" / "admin.token"))
    report = drill(capsys, *words, "--count", count, "--inventory", file)
    assert report["rounds_done"] == count
    assert all(server.running for server in cluster.servers)


def test_without_a_token_nothing_is_killed(secured_staging: Staging, capsys, monkeypatch) -> None:
    """A secured cluster that is shown nothing, or that cannot be reached, is no broken promise: it is said what to set,
    and no command was run."""
    monkeypatch.delenv("HOLDFAST_CA", raising=False)
    monkeypatch.delenv("HOLDFAST_TOKEN_FILE", raising=False)
    file, _, done = secured_staging
    done.clear()
    assert run(["drill", "leader", "--inventory", str(file), "--yes"]) == 1
    reported = capsys.readouterr().err
    assert "nothing was killed" in reported
    assert "HOLDFAST_TOKEN_FILE" in reported
    assert done == []


@pytest.mark.parametrize("name", ["push", "disk-full", "disk-slow", "bit-flip", "partition", "clock-skew", "all"])
def test_other_drills_are_refused_there(tmp_path: Path, capsys, name: str) -> None:
    """A drill that breaks more than processes says that it needs an embedded cluster; exit 2."""
    assert run(["drill", name, "--inventory", str(tmp_path / "any.toml"), "--yes"]) == 2
    assert "embedded cluster" in capsys.readouterr().err


def test_nothing_is_killed_unasked(staging, capsys) -> None:
    """Where nobody can be asked, --yes has to be said; exit 2, and no command was run."""
    file, _, done = staging
    done.clear()
    assert run(["drill", "rack", "--inventory", str(file)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert done == []


GOOD = {
    "kill": "k {name}",
    "stop": "s",
    "start": "s",
    "masters": [{"name": "m1", "host": "h", "http": "h:1"}],
    "workers": [{"name": "w1", "host": "h", "http": "h:2", "data": "h:3"}],
}


def toml(tables: dict) -> str:
    """TOML of an inventory."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in tables.items() if not isinstance(value, list)]
    for key in ("masters", "workers"):
        for each in tables.get(key, []):
            plain += [f"[[{key}]]", *(f"{name} = {json.dumps(value)}" for name, value in each.items())]
    return "\n".join(plain)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"kill": "k {nmae}"}, "'nmae'"),
        ({"stop": ""}, "how to stop master m1"),
        ({"workers": []}, "0 workers"),
        ({"workers": [{"name": "w1", "host": "h", "http": "h:2"}]}, "worker w1 has no data"),
        ({"start": "ssh '"}, "the command start of m1"),
        ({"reboot": "r"}, "reboot means nothing"),
    ],
)
def test_a_wrong_inventory_is_reported_in_a_sentence(tmp_path: Path, capsys, change: dict, reported: str) -> None:
    """What is missing or means nothing is named, before anything is killed; exit 2."""
    file = tmp_path / "staging.toml"
    file.write_text(toml({**GOOD, **change}), encoding="utf-8")
    assert run(["drill", "leader", "--inventory", str(file), "--yes"]) == 2
    assert reported in capsys.readouterr().err


def test_an_ansible_inventory_names_the_same_servers(tmp_path: Path) -> None:
    """What `ansible-inventory --list` prints is taken as well: groups, hosts of groups below them, variables."""
    common = {"holdfast_kill": "k {name} {signal}", "holdfast_stop": "s", "holdfast_start": "s"}
    document = {
        "_meta": {
            "hostvars": {
                "a": {**common, "ansible_host": "10.0.0.1", "holdfast_name": "m1", "holdfast_http": "10.0.0.1:7070"},
                "b": {**common, "holdfast_http": "b:7081", "holdfast_data": "b:7080"},
            }
        },
        "masters": {"hosts": ["a"]},
        "workers": {"children": ["rack1"]},
        "rack1": {"hosts": ["b"]},
    }
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    cluster = staging_cluster(file)
    assert [(each.name, each.http, each.address) for each in cluster.servers] == [
        ("m1", "10.0.0.1:7070", "10.0.0.1:7070"),
        ("b", "b:7081", "b:7080"),
    ]
