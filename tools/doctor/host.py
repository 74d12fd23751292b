"""Gathers facts of this machine: limits, memory, names, and the listeners on the ports of its servers."""

from __future__ import annotations

import errno
import re
import resource
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from holdfast.common.config.config import Config, advertised
from holdfast.common.system.ports import outgoing_range
from holdfast.common.system.versions import versions
from holdfast.tools.doctor.asking import whose_http
from holdfast.tools.doctor.core.facts import Host, NameFact, PortFact, PortState
from holdfast.tools.doctor.core.host import host_of

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_REFUSALS: dict[int, PortState] = {
    errno.EADDRINUSE: "held",
    errno.EACCES: "forbidden",
    errno.EADDRNOTAVAIL: "elsewhere",
}


def gather_host(server_pid: int | None = None) -> Host:
    """What is true of this machine; the limit of files is the running server's, where one is known."""
    memory, whose = psutil.virtual_memory().total, "this machine has"
    for path in _CGROUP_LIMITS:
        limit = _number(Path(path))
        if limit is not None and limit < memory:
            memory, whose = limit, "this control group has"
    nofile, nofile_of = _nofile(server_pid)
    addresses = {
        address.address.partition("%")[0]
        for each in psutil.net_if_addrs().values()
        for address in each
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }
    return Host(
        name=socket.gethostname(),
        addresses=frozenset(addresses),
        optimised=bool(sys.flags.optimize) or not __debug__,
        nofile=nofile,
        nofile_of=nofile_of,
        nofile_first=_nofile_first(),
        memory_bytes=memory,
        memory_of=whose,
        outgoing=outgoing_range(),
        versions=versions(),
    )


def _nofile(server_pid: int | None) -> tuple[int, str]:
    limits, whose = resource.getrlimit(resource.RLIMIT_NOFILE), "this shell (ulimit -Hn)"
    if server_pid is not None:
        try:
            limits, whose = psutil.Process(server_pid).rlimit(psutil.RLIMIT_NOFILE), f"the server, process {server_pid}"
        except (psutil.Error, OSError, AttributeError):
            pass  # another user's, or it ended meanwhile: this shell's limit is all that is known
    hard = limits[1]
    return (1 << 62 if hard == resource.RLIM_INFINITY else hard), whose


def _nofile_first(file: Path = Path("/proc/1/limits")) -> int:
    """What the first process of this host may have open; a large number if unknown."""
    try:
        found = re.search(r"(?m)^Max open files +\S+ +(\d+) ", file.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        found = None
    return int(found[1]) if found else 1 << 62


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such control group, or "max"
        return None


def gather_names(config: Config, host: Host) -> dict[str, NameFact]:
    """Look up every host of the configuration, and the name or address that other hosts get for this one."""
    hosts: list[str] = []
    if config.master.peers:
        hosts += [address for peer in config.master.peers for address in (str(peer.raft), str(peer.http))]
        hosts.append(advertised(config.master.bind, config.master.address, host.name) + ":")
        hosts.append(f"{config.master.bind}:")
    if config.worker.directories:
        hosts += [str(each) for each in config.worker.masters]
        hosts.append(advertised(config.worker.bind, config.worker.address, host.name) + ":")
        hosts.append(f"{config.worker.bind}:")
    names = dict.fromkeys(map(host_of, hosts))
    return {name: look_up(name) for name in names if name}


def look_up(name: str) -> NameFact:
    """What this host takes the name for."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return NameFact(host=name, error=getattr(error, "strerror", None) or str(error))
    return NameFact(host=name, addresses=tuple(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found)))


def gather_ports(config: Config, file: Path | None = None) -> tuple[list[PortFact], int | None]:
    """The state of every port that servers of this file listen on, and the process id of such a server if one runs."""
    facts: list[PortFact] = []
    pid: int | None = None
    for role, name, http, wanted in _listeners(config):
        states = [(setting, bind, port, *_try(bind, port)) for setting, bind, port in wanted]
        pids = _holders({port for *_, port, state, _ in states if state == "held"})
        # Who runs from this very file is ours, also where it does not talk to us: certificate, secret or TLS differ.
        ours = bool(http and pids) and (
            _runs_from(pids.get(http, 0), role, file)
            or whose_http(role, _reach(wanted[0][1]), http, config) == (config.cluster.id, name)
        )
        own_pid = pids.get(http, 0) if ours else 0
        pid = pid or own_pid or None
        for setting, bind, port, state, holder in states:
            found: PortState = state
            if state == "held" and ours and pids.get(port, 0) in (own_pid, 0):
                found = "ours"
            elif state == "held" and pids.get(port):
                holder = _described(pids[port])
            facts.append(PortFact(setting=setting, address=f"{bind}:{port}", port=port, state=found, holder=holder))
    return facts, pid


def _listeners(config: Config) -> Iterable[tuple[str, str, int, list[tuple[str, str, int]]]]:
    """(role, name, HTTP port, [(setting, address to bind, port)]) of each server that the file describes."""
    master, worker = config.master, config.worker
    if master.peers:
        wanted = [("master.http_port", str(master.bind), int(master.http_port))]
        wanted.append(("master.grpc_port", master.bind, int(master.grpc_port)))
        own = next((peer for peer in master.peers if peer.name == master.name), None)
        if own is not None:
            host, _, port = str(own.raft).rpartition(":")
            wanted.append((f"master.peers {own.name} raft", host.strip("[]"), int(port)))
        yield "master", master.name, int(master.http_port), wanted
    if worker.directories:
        wanted = [("worker.http_port", str(worker.bind), int(worker.http_port))]
        wanted.append(("worker.data_port", worker.bind, int(worker.data_port)))
        yield "worker", worker.name, int(worker.http_port), wanted


def _reach(bind: str) -> str:
    return "127.0.0.1" if bind in ("", "0.0.0.0", "::") else bind


def _try(bind: str, port: int) -> tuple[PortState, str]:
    """Listen there for a moment, as a server would."""
    if port == 0:
        return "free", ""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            bind or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return _REFUSALS.get(error.errno or 0, "unusable"), error.strerror or str(error)
    return "free", ""


def _holders(ports: set[int]) -> dict[int, int]:
    """Process ids of the listeners on these ports; 0 if this user may not see it."""
    found = dict.fromkeys(ports, 0)
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return found
    for each in connections:
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port in found:
            found[each.laddr.port] = each.pid or found[each.laddr.port]
    return found


def _runs_from(pid: int, role: str, file: Path | None) -> bool:
    """Whether that process is the server of that role which was started with this file."""
    if not pid or file is None:
        return False
    try:
        process = psutil.Process(pid)
        words, place = process.cmdline(), process.cwd()
        named = words[words.index("--config") + 1]
        return f"holdfast.{role}" in words and Path(place, named).samefile(file)
    except (psutil.Error, OSError, ValueError, IndexError):
        return False


def _described(pid: int) -> str:
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return f"process {pid}"
    return f"process {pid} ({command[:80]})"
