"""Judges this machine, the ports of its servers, and the names by which others reach them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from holdfast.common.config.config import Config, advertised
from holdfast.common.limits import MIB
from holdfast.common.sizes import in_bytes
from holdfast.common.version import installing
from holdfast.tools.doctor.core.facts import Host, NameFact, PortFact
from holdfast.tools.doctor.core.findings import Symptom, advice, problem

#: Below the first a busy worker runs out; the second leaves room for thousands of connections beside files and peers.
NOFILE_LEAST, NOFILE_GOOD = 4_096, 65_536
#: Of the memory there is: the rest is for Python, the index's pages and the page cache.
MEMORY_SHARE = 0.8
#: What a worker may hold beside the bodies of frames, at all its bounds at once: TLS of its connections, what its
#: streams read, epochs, what it remembers of attempts (docs/operate/failure_model.md, "What a server may use").
_WORKER_FIXED = 768 * MIB
_ANY = ("", "0.0.0.0", "::")


def check_host(host: Host, config: Config | None) -> Iterator[Symptom]:
    """Python, limits, memory, libraries."""
    if host.optimised:
        what = "servers do not start without their assertions"
        remedy = "unset PYTHONOPTIMIZE and start Python without -O"
        yield problem("python-optimised", "PYTHONOPTIMIZE or -O", what, remedy)
    if config is None:
        return
    if host.nofile < NOFILE_GOOD:
        level = problem if host.nofile < NOFILE_LEAST else advice
        what = f"at most {host.nofile} files and connections may be open at once"
        yield level("nofile", host.nofile_of, what, _more_files(host))
    yield from _memory(host, config)
    if config.dfs.url and "pyarrow" not in host.versions:
        yield problem("library", "[dfs] url", "a DFS tier needs pyarrow, which is not installed", installing("dfs"))


def _more_files(host: Host) -> str:
    wanted = f"raise it to {NOFILE_GOOD} or more"
    if host.nofile_first < NOFILE_GOOD:
        return (
            f"{wanted} where this host is started (its container, its kernel): its first process has "
            f"{host.nofile_first} itself, and LimitNOFILE={NOFILE_GOOD} of a systemd unit may not get beyond that"
        )
    return (
        f"{wanted}: LimitNOFILE={NOFILE_GOOD} in the systemd unit, as deploy/ansible's has it, or ulimit -Hn where a "
        "server is started by hand"
    )


def _memory(host: Host, config: Config) -> Iterator[Symptom]:
    if not config.worker.directories:
        return
    tiers, wanted = _memory_tiers(config), worker_memory(config)
    if wanted <= host.memory_bytes * MEMORY_SHARE:
        return
    level = problem if wanted > host.memory_bytes else advice
    parts = f"worker.memory {in_bytes(config.worker.memory)}, {in_bytes(_WORKER_FIXED)} beside it"
    parts += f" and {in_bytes(tiers)} of tier MEMORY" if tiers else ""
    what = f"{parts} are to be held, and {host.memory_of} {in_bytes(host.memory_bytes)} in all"
    remedy = (
        "lower worker.memory or the capacity of the MEMORY directories: together at most four fifths of what there is"
    )
    yield level("memory", "worker.memory", what, remedy)


def worker_memory(config: Config) -> int:
    """What the worker of this file may hold at all its bounds."""
    return config.worker.memory + _WORKER_FIXED + _memory_tiers(config)


def _memory_tiers(config: Config) -> int:
    return sum(each.capacity for each in config.worker.directories if each.tier == "MEMORY")


def check_ports(ports: Sequence[PortFact], outgoing: tuple[int, int]) -> Iterator[Symptom]:
    """Each port is free or our own server's, and no two are the same."""
    seen: dict[int, PortFact] = {}
    for each in ports:
        if each.port == 0:
            continue
        twin = seen.setdefault(each.port, each)
        if twin is not each:
            what = f"is port {each.port}, and so is {twin.setting}"
            yield problem("port-twice", each.setting, what, "give each a port of its own")
            continue
        yield from _port(each)
        if outgoing[0] <= each.port <= outgoing[1]:
            what = (
                f"port {each.port} is one that the system gives to outgoing connections ({outgoing[0]} to "
                f"{outgoing[1]}), so it may be taken while the server is down"
            )
            remedy = f"choose a port below {outgoing[0]}, or add it to net.ipv4.ip_local_reserved_ports"
            yield advice("port-outgoing", each.setting, what, remedy)


def _port(each: PortFact) -> Iterator[Symptom]:
    if each.state == "held":
        what = f"{each.address} is taken by {each.holder or 'another process'}"
        remedy = "stop that process, or choose another port and change it wherever this port is named"
        yield problem("port-held", each.setting, what, remedy)
    elif each.state == "forbidden":
        what = f"this user may not listen at {each.address}: {each.holder}"
        remedy = "choose a port from 1024 on, or allow lower ones with net.ipv4.ip_unprivileged_port_start"
        yield problem("port-forbidden", each.setting, what, remedy)
    elif each.state in ("elsewhere", "unusable"):
        what = f"nothing can listen at {each.address}: {each.holder}"
        remedy = (
            'set bind to an address of this machine, or to "0.0.0.0" for all of them, and address to what others use'
        )
        yield problem("bind-elsewhere", each.setting, what, remedy)


def check_names(config: Config, host: Host, names: Mapping[str, NameFact]) -> Iterator[Symptom]:
    """Names can be looked up, and lead others here and not to themselves."""
    for each in names.values():
        if each.error:
            what = f"this host cannot resolve the name: {each.error}"
            remedy = "enter it in the DNS or in /etc/hosts of every machine, or write an address instead"
            yield problem("name-unknown", each.host, what, remedy)
    if config.master.peers:
        yield from _master_names(config, host, names)
    if config.worker.directories:
        masters = [host_of(each) for each in config.worker.masters]
        others = any(each and not is_loopback(each, names) for each in masters)
        yield from _advertised_address("worker", config.worker.bind, config.worker.address, others, host, names)


def _master_names(config: Config, host: Host, names: Mapping[str, NameFact]) -> Iterator[Symptom]:
    section = config.master
    own = next((peer for peer in section.peers if peer.name == section.name), None)
    others = any(not is_loopback(host_of(peer.raft), names) for peer in section.peers if peer is not own)
    yield from _advertised_address("master", section.bind, section.address, others, host, names)
    if own is None:
        return
    for key, address in (("raft", own.raft), ("http", own.http)):
        name = host_of(address)
        if others and is_loopback(name, names):
            what = f"{address} is loopback here, and other masters or clients are not on this machine"
            remedy = "write the name or address by which they reach this machine"
            yield problem("name-loopback", f"master.peers {own.name} {key}", what, remedy)
    name = host_of(own.raft)
    found = names.get(name, NameFact(host=name, addresses=(name,))).addresses
    if found and host.addresses and not is_loopback(name, names) and not host.addresses & set(found):
        what = f"{own.raft} is {', '.join(found)}, which is none of this machine's addresses"
        remedy = "write an address of this machine there, or correct the entry of the name"
        yield problem("raft-elsewhere", f"master.peers {own.name} raft", what, remedy)


def _advertised_address(
    role: str, bind: str, address: str, others: bool, host: Host, names: Mapping[str, NameFact]
) -> Iterator[Symptom]:
    """The name or address that other hosts get, if there are any."""
    if not others:
        return
    advertised_host = advertised(bind, address, host.name)
    remedy = f"set {role}.address to the name or address by which other machines reach this one"
    if bind not in _ANY and is_loopback(bind, names):
        remedy = f'set {role}.bind to "0.0.0.0" or an address of this machine, and {role}.address to what others use'
        what = f"listens at {bind} alone, and masters are on other machines"
        yield problem("bind-loopback", f"{role}.bind", what, remedy)
    elif is_loopback(advertised_host, names):
        found = ", ".join(names[advertised_host].addresses) if advertised_host in names else advertised_host
        what = f"others connect to {advertised_host}, which is loopback ({found}): they reach themselves"
        yield problem("name-loopback", f"{role}.address", what, remedy)
    elif not address and bind in _ANY:
        what = (
            f"is not set, so others connect to this machine's name, {advertised_host}, which all of them must resolve"
        )
        yield advice("address-missing", f"{role}.address", what, remedy)


def is_loopback(host: str, names: Mapping[str, NameFact]) -> bool:
    """Whether a host, name or address, means only the machine that resolves it."""
    found = names[host].addresses if host in names and names[host].addresses else (host,)
    return all(each == "localhost" or _is_loopback_address(each) for each in found)


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def host_of(address: object) -> str:
    """The host of an address with a port."""
    return str(address).rpartition(":")[0].strip("[]")
