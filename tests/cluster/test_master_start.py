"""A master that cannot start says why and what to do, and ends with 2."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.common.system.ports import free_ports


def start(tmp_path: Path, ports: dict[str, int], directory: str = "") -> subprocess.CompletedProcess[str]:
    """Start a master on these ports, and wait for its end."""
    peer = {"name": "m1", "raft": f"127.0.0.1:{ports['raft']}", "http": f"127.0.0.1:{ports['http']}"}
    peers = ", ".join(f"{key} = {json.dumps(value)}" for key, value in peer.items())
    path = tmp_path / "m1.toml"
    path.write_text(
        f'[master]\nname = "m1"\ndirectory = "{directory or tmp_path}"\npeers = [{{ {peers} }}]\n'
        f"http_port = {ports['http']}\ngrpc_port = {ports['grpc']}\n"
    )
    command = [sys.executable, "-P", "-m", "holdfast.master", "--config", str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("which", ["raft", "http", "grpc"])
def test_a_port_that_is_taken(tmp_path: Path, which: str) -> None:
    """Each of its three: one line that names the port and says what to do, exit 2 as a worker's."""
    ports = dict(zip(("raft", "http", "grpc"), free_ports(3), strict=True))
    with socket.create_server(("127.0.0.1", ports[which])):
        done = start(tmp_path, ports)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("holdfast master: ")
    assert str(ports[which]) in last
    assert last.endswith("stop the process that listens there (a shutdown takes some seconds), or set another port")


def test_a_relative_directory(tmp_path: Path) -> None:
    """It is refused with file and line, and nothing is made."""
    done = start(tmp_path, dict(zip(("raft", "http", "grpc"), free_ports(3), strict=True)), "m1")
    assert done.returncode == 2
    assert done.stderr.startswith(f"holdfast master: {tmp_path}/m1.toml line 1: [master] directory must be absolute")
    assert [path.name for path in tmp_path.iterdir()] == ["m1.toml"]
