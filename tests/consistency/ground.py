"""Where the cluster of the harness stands: as root in namespaces of its own, else on loopback behind the drills' proxy.

As root every server is a host: a network namespace with an address, on a bridge with all others. Two are cut apart, one
way or both, by neighbour entries that lead nowhere: packets are gone without a word, as behind a switch that is broken.
Directories of workers are small file systems in memory that a bystander fills. All of it lives in the namespaces of
this process, and goes with its last child.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

from holdfast.client.cluster.local import LocalCluster, Sections, Server
from holdfast.tools.drills.support.network import CLIENT, ProxiedNetwork
from tests.diskfull.test_file_systems import reported_bytes, run, tmpfs

MASTERS, WORKERS = 3, 3
NAMES = [*(f"m{number}" for number in range(1, MASTERS + 1)), *(f"w{number}" for number in range(1, WORKERS + 1))]
#: Set for the process that was started in namespaces of its own.
OWN_NAMESPACES = "HOLDFAST_OWN_MOUNTS"
LEFT_OUT = "left out without root: network namespaces (the drills' proxy cuts instead) and file systems that fill"
_TMPFS_MIB = 256
_SUBNET = "10.86.0"
_NOWHERE = "02:00:00:00:00:00"
_CLONE_NEWNET = 0x4000_0000
_LOOPBACK = "127.0.0.1"


class Plain:
    """Loopback, and the proxy of `drill partition`."""

    left_out = LEFT_OUT
    #: workers whose disk can be filled
    small: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._network = ProxiedNetwork(NAMES)

    @property
    def own(self) -> Mapping[str, Sections]:
        """Settings of single servers."""
        return self._network.own

    @contextmanager
    def around(self, cluster: LocalCluster) -> Iterator[None]:
        """Stand while the cluster lives."""
        self._ports = [port for server in cluster.servers for port in server.ports.values()]
        with self._network.around(cluster):
            yield

    @property
    def way(self) -> list[str]:
        """What client processes are given to find their way."""
        return [self._network._hosts[CLIENT], ",".join(map(str, self._ports))]

    def cut(self, some: Iterable[str], others: Iterable[str], *, one_way: bool) -> None:
        """Let nothing pass between them; `one_way` is for real networks."""
        self._network.cut(some, others)

    def join(self) -> None:
        """Let everything pass again."""
        self._network.join(broken=False)

    def fill(self, worker: str) -> None:
        """Nobody can without root."""
        raise NotImplementedError

    empty = fill


class Namespaces:
    """A host for each server, made of a network namespace and a small disk."""

    left_out = ""
    small = tuple(name for name in NAMES if name.startswith("w"))
    own: Mapping[str, Sections] = {name: {"faults": {"enabled": True}} for name in NAMES}
    way: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._addresses = {name: f"{_SUBNET}.{number}" for number, name in enumerate((CLIENT, *NAMES), start=1)}
        self._bystanders: dict[str, Path] = {}

    @contextmanager
    def around(self, cluster: LocalCluster) -> Iterator[None]:
        """Make the hosts, and move the servers there before they start."""
        run("mount", "-t", "tmpfs", "none", "/run")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "name", "br0", "type", "bridge")
        run("ip", "address", "add", f"{self._addresses[CLIENT]}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "address", self._mac(CLIENT), "up")
        texts = {server.name: server.config.read_text("utf-8") for server in cluster.servers}
        ports = {port: server.name for server in cluster.servers for port in server.ports.values()}
        with ExitStack() as stack:
            for server in cluster.servers:
                self._make_host(server.name)
                self._move(server, texts[server.name], ports)
                server.launcher = stack.enter_context(_launcher(server.name))
                if server.role == "worker":
                    stack.enter_context(tmpfs(cluster.directory / server.name, _TMPFS_MIB))
                    self._bystanders[server.name] = cluster.directory / server.name / "lost+found"
            yield

    def _mac(self, name: str) -> str:
        return f"02:86:00:00:00:{int(self._addresses[name].rpartition('.')[2]):02x}"

    def _make_host(self, name: str) -> None:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"b-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", f"b-{name}", "master", "br0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", "eth0", "address", self._mac(name), "up")
        run("ip", "-n", name, "address", "add", f"{self._addresses[name]}/24", "dev", "eth0")

    def _move(self, server: Server, text: str, ports: Mapping[int, str]) -> None:
        """Have the server listen at its host's address, and know the others by theirs."""
        for port, name in ports.items():
            text = text.replace(f"{_LOOPBACK}:{port}", f"{self._addresses[name]}:{port}")
        address = self._addresses[server.name]
        text = text.replace(f"[{server.role}]\n", f'[{server.role}]\nbind = "{address}"\n', 1)
        server.config.write_text(text, "utf-8")
        server.address = server.address.replace(_LOOPBACK, address)
        server.http = server.http.replace(_LOOPBACK, address)

    def cut(self, some: Iterable[str], others: Iterable[str], *, one_way: bool) -> None:
        """Let nothing pass from the first to the others; nor back, unless `one_way`."""
        for one, other in product(some, others):
            self._neighbour(one, other, _NOWHERE)
            if not one_way:
                self._neighbour(other, one, _NOWHERE)

    def join(self) -> None:
        """Let everything pass again."""
        for one, other in product(self._addresses, repeat=2):
            if one != other:
                self._neighbour(one, other, self._mac(other))

    def _neighbour(self, one: str, other: str, mac: str) -> None:
        where = ["dev", "br0"] if one == CLIENT else ["dev", "eth0"]
        at = [] if one == CLIENT else ["-n", one]
        run("ip", *at, "neigh", "replace", self._addresses[other], "lladdr", mac, "nud", "permanent", *where)

    def fill(self, worker: str) -> None:
        """A bystander takes all the room of its disk."""
        path = self._bystanders[worker]
        with path.open("wb", buffering=0) as file:
            while reported_bytes(path.parent):
                try:
                    file.write(bytes(1 << 20))
                except OSError:
                    return

    def empty(self, worker: str) -> None:
        """And gives it back."""
        self._bystanders[worker].unlink(missing_ok=True)


Ground = Plain | Namespaces


@contextmanager
def _launcher(name: str) -> Iterator[ThreadPoolExecutor]:
    """A thread in the network namespace of a host: what it starts is there, too."""
    with ThreadPoolExecutor(1, initializer=_enter, initargs=(name,)) as pool:
        yield pool


def _enter(name: str) -> None:
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)


def enter_own_namespaces(command: list[str]) -> None:
    """Become `command` in namespaces of its own, if this is root's and not there yet; returns where it is not."""
    if os.environ.get(OWN_NAMESPACES) or not may_have_namespaces():
        return
    os.environ[OWN_NAMESPACES] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation", "private", *command])


def may_have_namespaces() -> bool:
    """Whether this process may make network and mount namespaces, with all that is wanted in them."""
    script = "ip link set lo up && ip link add name br0 type bridge && mount -t tmpfs none /run && ip netns add x"
    asked = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script]
    try:
        return os.geteuid() == 0 and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
