"""The local cluster: what it promises to those who build on it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster import local as module
from holdfast.client.cluster.local import LocalCluster, StartError, local_cluster
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.errors import ConfigError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.locks import is_held
from holdfast.common.system.ports import free_ports
from tests.support.waiting import wait_until


def test_cluster_is_ready_when_it_is_yielded(cluster: LocalCluster):
    """Three masters run, one of them leads, and it calls both workers alive, on different hosts."""
    reply = ask(cluster.leader().address, "Admin/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersReply)
    assert sorted((worker.name, worker.state) for worker in reply.workers) == [("w1", "alive"), ("w2", "alive")]
    assert len({worker.host for worker in reply.workers}) == 2
    assert cluster.endpoints.split(",") == [master.address for master in cluster.masters]
    assert len({server.pid for server in cluster.servers}) == 5


def test_each_worker_has_directories_of_its_own(tmp_path: Path):
    """`{name}` in paths of settings is the worker's; a list without it is refused where it is for several workers."""
    one = {"path": str(tmp_path / "disk"), "tier": "HDD"}
    with (
        pytest.raises(ConfigError, match=r"disk/\{name\}.*workers=1"),
        local_cluster(1, 2, dir=tmp_path / "c", settings={"worker": {"directories": [one]}}),
    ):
        raise AssertionError("it began")
    named = {"worker": {"directories": [one | {"path": str(tmp_path / "disk" / "{name}")}]}}
    with local_cluster(1, 2, dir=tmp_path / "c", settings=named) as cluster:
        found = [worker_status(worker.http, 5.0)["directories"] for worker in cluster.workers]
    assert [[each["path"], each["tier"]] for [each] in found] == [
        [str(tmp_path / "disk" / name), "HDD"] for name in ("w1", "w2")
    ]


def test_hosts_have_several_workers(tmp_path: Path):
    """Workers of one host share its name and its machine, as the masters record them; each has a directory and ports of
    its own, and the first of a host is called as a single one is."""
    with local_cluster(1, dir=tmp_path, hosts=2, workers_per_host=3) as cluster:
        assert [(each.name, each.host) for each in cluster.workers] == [
            *(("w1", "h1"), ("w1-2", "h1"), ("w1-3", "h1")),
            *(("w2", "h2"), ("w2-2", "h2"), ("w2-3", "h2")),
        ]
        reply = ask(cluster.leader().address, "Admin/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersReply)
    assert {(each.name, each.host, each.machine_id) for each in reply.workers} == {
        (name, host, host) for name, host in ((each.name, each.host) for each in cluster.workers)
    }
    assert len({disk.path for each in reply.workers for disk in each.directories}) == 6
    assert len({each.http_address for each in reply.workers}) == 6


def test_one_machine_with_two_hosts_is_refused_unless_it_is_said(tmp_path: Path):
    """A worker that gives this machine a second host ends with the sentence that says what to change."""
    with local_cluster(1, 1, tmp_path / "cluster", {"worker": {"machine_id": "m"}}) as cluster:
        text = cluster.workers[0].config.read_text("utf-8").replace('"h1"', '"h2"').replace('"w1"', '"w2"')
        text = text.replace(str(tmp_path / "cluster" / "w1"), str(tmp_path / "other"))
        for port in cluster.workers[0].ports.values():
            text = text.replace(f"port = {port}", "port = 0")
        (tmp_path / "other.toml").write_text(text)
        command = [sys.executable, "-P", "-m", "holdfast.worker", "--config", str(tmp_path / "other.toml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert 'the machine of host "h2" is host "h1", by worker "w1"' in ended.stderr


def test_killed_leader_is_replaced_and_comes_back(cluster: LocalCluster):
    """After kill -9 of the leader another one leads; the killed one starts again at the same address and follows."""
    old = cluster.leader()
    old.kill()
    assert not old.running
    assert cluster.leader() is not old
    address, pid = old.address, old.pid
    old.start()
    assert (old.address, old.running) == (address, True)
    assert old.pid != pid
    status = wait_until(lambda: ask(old.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply), "an answer")
    assert status.name == old.name


def test_killed_worker_comes_back_with_a_new_incarnation(cluster: LocalCluster):
    """A worker killed and started again serves at the same address and counts its start."""
    worker = cluster.workers[0]
    before = worker_status(worker.http)["incarnation"]
    worker.kill()
    worker.start()
    cluster.wait_ready()
    assert worker_status(worker.http)["incarnation"] > before


def test_servers_die_with_the_process_that_started_them(tmp_path: Path):
    """Kill -9 of the process that holds the cluster leaves no server behind."""
    code = (
        "import sys, threading\nfrom holdfast.client.cluster.local import local_cluster\n"
        "with local_cluster(1, 1, dir=sys.argv[1]) as cluster:\n"
        "    print(*(server.pid for server in cluster.servers), flush=True)\n    threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        with holder.stdout:
            pids = [int(word) for word in holder.stdout.readline().split()]
    finally:
        holder.kill()
        holder.wait()
    assert len(pids) == 2
    wait_until(lambda: not any(map(_exists, pids)), "both servers to be gone")


def test_settings_reach_every_server(tmp_path: Path):
    """Sections given as settings are in the servers' files, beside what the cluster itself sets."""
    with local_cluster(1, 1, dir=tmp_path, settings={"lease": {"worker": "7s"}}) as cluster:
        texts = [(tmp_path / f"{server.name}.toml").read_text() for server in cluster.servers]
    assert all('worker = "7s"' in text for text in texts)


def test_wrong_settings_are_refused_before_anything_starts(tmp_path: Path):
    """An unknown key is a ConfigError that names the nearest known one, and no process was started."""
    with pytest.raises(ConfigError, match="worker"), local_cluster(1, 1, tmp_path, {"lease": {"workers": "7s"}}):
        pass
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize(
    ("masters", "workers", "sentence"),
    [
        (2, 1, "1, 3 or 5"),
        (7, 1, "1, 3 or 5"),
        (0, 1, "1, 3"),
        (3, -1, "0 or more"),
        ("3", 1, "not '3'"),
        (3, 1.0, "1.0"),
        (True, 1, "True"),
    ],
)
def test_impossible_clusters_are_refused(masters: int, workers: int, sentence: str):
    """Numbers of servers that make no cluster, and what is no whole number, are a ConfigError."""
    with pytest.raises(ConfigError, match=sentence), local_cluster(masters, workers):
        pass


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"workers": 2, "hosts": 2}, "not both"),
        ({"hosts": -1}, "cannot have -1 hosts"),
        ({"hosts": 2, "workers_per_host": 0}, "1 or more"),
        ({"hosts": "2"}, "hosts is a number"),
    ],
)
def test_impossible_hosts_are_refused(numbers: dict[str, Any], sentence: str):
    """Numbers of hosts and of their workers that make no cluster are a ConfigError."""
    with pytest.raises(ConfigError, match=sentence), local_cluster(1, **numbers):
        pass


@pytest.mark.parametrize(
    "wrong", [{"settings": 7}, {"settings": {"worker": {"name": "\ud800"}}}, {"dir": "a\0b"}, {"dir": "\ud800"}]
)
def test_what_no_cluster_can_be_made_of_is_refused(wrong: dict[str, Any], tmp_path: Path):
    """ConfigError, whatever is given; errors of coding and of types came instead."""
    with pytest.raises(ConfigError), local_cluster(**{"masters": 1, "workers": 0, "dir": tmp_path, **wrong}):
        pass


def test_a_directory_in_use_is_left_as_it_is(tmp_path: Path):
    """A second cluster there is refused, naming the process that is first, whose files have not changed."""
    with local_cluster(1, 1, dir=tmp_path):
        before = {path: path.read_bytes() for path in tmp_path.glob("*.toml")}
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} "), local_cluster(1, 2, dir=tmp_path):
            pass
        assert {path: path.read_bytes() for path in tmp_path.glob("*.toml")} == before


def test_a_server_started_by_hand_keeps_its_directory(tmp_path: Path):
    """A worker that runs on its own on a directory of an earlier cluster is in the way of a new one, and is named."""
    with local_cluster(1, 1, dir=tmp_path) as cluster:
        file = tmp_path / f"{cluster.workers[0].name}.toml"
    before = file.read_bytes()
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast.worker", "--config", str(file)], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: is_held(tmp_path / "w1" / "lock"), "the worker to have its directory")
        refused = pytest.raises(ConfigError, match=f"w1 is in use by process {worker.pid} ")
        with refused, local_cluster(1, 1, dir=tmp_path):
            pass
    finally:
        worker.kill()
        worker.wait()
    assert file.read_bytes() == before


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """When a port is taken by somebody else, the error names the server and has what the server wrote."""
    taken = free_ports(5)
    monkeypatch.setattr(module, "free_ports", lambda count, host: taken[:count])
    with (
        socket.create_server(("127.0.0.1", taken[0])),
        pytest.raises(StartError, match=r"(?s)master m1 ended with .*m1\.log.*\n.*holdfast"),
        local_cluster(1, 1, dir=tmp_path),
    ):
        pass


def test_data_of_a_directory_is_there_again(tmp_path: Path):
    """A cluster started on a directory of an earlier one has its identity and its workers."""
    ids, numbers = [], []
    for _ in range(2):
        with local_cluster(1, 1, dir=tmp_path) as cluster:
            status = ask(cluster.leader().address, "Admin/Status", pb.StatusRequest(), pb.StatusReply)
            ids.append(status.cluster_id)
            numbers.append(worker_status(cluster.workers[0].http)["incarnation"])
    assert ids[0] == ids[1]
    assert numbers[1] > numbers[0]


def test_stop_ends_in_order(tmp_path: Path):
    """`stop` ends a server with exit status 0, also one that was stopped by SIGSTOP."""
    with local_cluster(1, 1, dir=tmp_path) as cluster:
        cluster.workers[0].kill(signal.SIGSTOP)
        assert cluster.workers[0].running
        assert cluster.workers[0].stop() == 0
        assert cluster.masters[0].stop() == 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
