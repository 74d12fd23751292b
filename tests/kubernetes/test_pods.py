"""The pods of deploy/kubernetes as processes: servers take what they are started with, and shuffle with it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import table

from holdfast.client import Session
from holdfast.client.arrow.tables import shuffle_table, write_table
from holdfast.common.security.credentials import Credentials
from holdfast.tools.cli.main import run
from tests.conftest import Processes
from tests.kubernetes.pods import Node, Pod
from tests.kubernetes.render import KUBERNETES, OVERLAYS, rendered
from tests.support.waiting import wait_until

ROWS = 1_000
SECRET = b"0123456789abcdef0123456789abcdef"

#: Makes the pods of an overlay, none of which runs yet.
Made = Callable[[str], Node]


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Made:
    """The Secret is what docs/operate/kubernetes.md tells people to make, with the addresses that names have here."""

    def make(overlay: str) -> Node:
        files = {"cluster.secret": SECRET}  # completed below, when it is known where the pods will be
        node = Node(rendered(KUBERNETES / overlay), tmp_path / "pods", files)
        if overlay == "secured":
            safe = tmp_path / "safe"
            hosts = [word for address in node.addresses.values() for word in ("--host", address)]
            assert run(["ca", "init", str(safe)]) == 0
            assert run(["ca", "issue", str(safe), "server", *hosts]) == 0
            (safe / "cluster.secret").touch(0o600)
            (safe / "cluster.secret").write_bytes(SECRET)
            words = ["token", "--kind", "admin", "--name", "ops", "--cluster", "holdfast", "--secret-file"]
            assert run([*words, str(safe / "cluster.secret"), "--out", str(safe / "admin.token")]) == 0
            capsys.readouterr()
            names = ("server.pem", "server.key", "ca.pem", "admin.token")
            files |= {name: (safe / name).read_bytes() for name in names}
        return node

    return make


def started(node: Node, nodes: dict[str, str], processes: Processes) -> dict[str, Pod]:
    """These pods on the nodes of these names, all ready."""
    pods = {name: node.pod(name, where) for name, where in nodes.items()}
    for pod in pods.values():
        pod.start(processes)
    for pod in pods.values():
        pod.wait_ready()
    return pods


def workers(pod: Pod) -> dict[str, dict[str, Any]]:
    """The workers that are alive, by the pods at whose addresses they are."""
    said = pod.run("holdfast", "workers", "--json").stdout or '{"workers": []}'
    return {each["data_address"]: each for each in json.loads(said)["workers"] if each["state"] == "alive"}


@pytest.mark.long
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_shuffle_and_restart(overlay: str, made: Made, processes: Processes) -> None:
    """Masters and workers become ready as they are started by the manifests, a host is a node, what was committed with
    two copies is read while a worker that was asked to end is away, and it comes back as the one that it was; on an
    empty volume it is another one."""
    node = made(overlay)
    masters = started(node, {f"holdfast-master-{number}": f"m{number}" for number in range(3)}, processes)
    pods = started(node, {"holdfast-worker-0": "n0", "holdfast-worker-1": "n1.example"}, processes)
    master, first = masters["holdfast-master-0"], pods["holdfast-worker-0"]
    at = node.address("holdfast-worker-0", 7080)
    wait_until(lambda: master.run("holdfast", "status").returncode == 0, "all to be well")
    known = workers(master)
    assert {each["host"] for each in known.values()} == {"n0", "n1.example"}
    assert known[at]["name"].startswith("n0-")
    assert first.probe("livenessProbe")
    backup = master.run("holdfast", "backup", "/var/lib/holdfast/copy", "--config", "/etc/holdfast/holdfast.toml")
    assert backup.returncode == 0, backup.stderr

    files = node.secret
    secured = overlay == "secured"
    credentials = Credentials(files["ca.pem"].decode(), files["admin.token"].decode().strip()) if secured else None
    endpoints = ",".join(node.address(name, 7070) for name in masters)
    with Session(endpoints, app="rows", credentials=credentials) as session:
        number = write_table(session, table({"id": range(ROWS)}), 4, replication=2)
        assert first.stop() == 0
        assert not first.probe("livenessProbe")
        assert sorted(shuffle_table(session, number)["id"].to_pylist()) == list(range(ROWS))
        for same in (True, False):
            if not same:
                first.stop()
                shutil.rmtree(first.volume("data"))
            first.start(processes)
            first.wait_ready()
            wait_until(lambda: at in workers(master), "the worker to be known")
            assert (workers(master)[at]["name"] == known[at]["name"]) == same
        assert sorted(shuffle_table(session, number)["id"].to_pylist()) == list(range(ROWS))
