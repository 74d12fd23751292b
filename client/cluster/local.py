"""A whole cluster of real processes on this machine: for tests, drills, demonstrations and a first try.

    with local_cluster(masters=3, workers=2) as cluster:
        session = Session(cluster.endpoints, app="first try")
        cluster.leader().kill()

Every server has a directory, ports and a log file that stay its own over restarts; every worker has a host of its own,
or one that it shares with as many as were asked for, so that two copies can be placed. The processes die with the one
that started them. Nothing is imported from master or worker: they are started as `python -m holdfast.master` and
`python -m holdfast.worker`.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.client.cluster.server import START_SECONDS_MAX, Server, StartError, wait_until
from holdfast.client.connection.direct import ask, worker_status
from holdfast.client.notebook import table
from holdfast.common.config import config
from holdfast.common.errors import ConfigError, HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.common.system.files import write_whole
from holdfast.common.system.locks import HeldError, holder, is_held, locked
from holdfast.common.system.ports import free_ports
from holdfast.common.worker_states import AWAY

__all__ = ["LocalCluster", "Server", "StartError", "local_cluster"]

#: For a leader to be elected: twenty times the longest election timeout.
LEADER_SECONDS_MAX = 20.0
_LOOPBACK = "127.0.0.1"
#: Where a secured local cluster keeps its CA, its certificate and its admin's token.
SECURITY, CA_CERTIFICATE, ADMIN_TOKEN = "security", "ca.pem", "admin.token"
#: Of an admin's token that a secured local cluster makes when it starts.
_TOKEN_LIFE_S = 30 * 86_400
_MASTER_PORTS = 3  # HTTP, gRPC, Raft
_WORKER_PORTS = 2  # data plane, HTTP
_WORKERS = 2  # where nobody says how many
_LOCK = "lock"  # of the whole cluster, and of every server in its own directory

Sections = Mapping[str, Mapping[str, object]]


class LocalCluster:
    """What `local_cluster` yields. One thread at a time."""

    def __init__(
        self, directory: Path, masters: list[Server], workers: list[Server], credentials: Credentials | None = None
    ) -> None:
        self.directory = directory
        #: of an admin and of a secured cluster; None without security
        self.credentials = credentials
        self.masters = masters
        self.workers = workers
        for server in self.servers:
            server.credentials = credentials

    def __repr__(self) -> str:
        return f"LocalCluster({self.endpoints}, workers={len(self.workers)}, directory={str(self.directory)!r})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = ((each.name, each.host, each.address, "running" if each.running else "stopped") for each in self.servers)
        return table(f"LocalCluster {self.endpoints}", rows)

    @property
    def endpoints(self) -> str:
        """The masters' HTTP addresses, with commas."""
        return ",".join(master.address for master in self.masters)

    @property
    def servers(self) -> list[Server]:
        """All server handles, masters first."""
        return [*self.masters, *self.workers]

    def leader(self, seconds: float = LEADER_SECONDS_MAX) -> Server:
        """Return the current leader; waits for an election. Raises RetryError."""
        found: list[Server] = []

        def look() -> bool:
            found.extend(filter(self._leads, self.masters))
            return bool(found)

        if not wait_until(look, seconds):
            raise RetryError(f"there is no leader after {seconds:g} s; look into {self.directory / 'logs'}")
        return found[0]

    def wait_ready(self, seconds: float = START_SECONDS_MAX) -> None:
        """Wait until a leader is elected and every running worker is registered.

        Raises RetryError that names the missing servers.
        """
        missing = [worker for worker in self.workers if worker.running]

        def all_there() -> bool:
            alive = self.alive_workers()
            if alive is None:
                return False
            missing[:] = [worker for worker in missing if worker.name not in alive or not self._registered(worker)]
            return not missing

        if not wait_until(all_there, seconds):
            names = ", ".join(worker.name for worker in missing)
            raise RetryError(
                f"after {seconds:g} s " + (f"the masters have not accepted {names}" if names else "there is no leader")
            )

    def _leads(self, master: Server) -> bool:
        if not master.running:
            return False
        try:
            reply = ask(master.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 1.0, self.credentials)
        except HoldfastError:
            return False
        return reply.role == "leader"

    def alive_workers(self) -> set[str] | None:
        """Names of the workers that are not lost; None without a leader."""
        for master in filter(lambda server: server.running, self.masters):
            try:
                request, answer = pb.ListWorkersRequest(), pb.ListWorkersReply
                reply = ask(master.address, "Admin/ListWorkers", request, answer, 1.0, self.credentials)
            except HoldfastError:
                continue
            return {worker.name for worker in reply.workers if worker.state not in AWAY}
        return None

    def _registered(self, worker: Server) -> bool:
        """Whether the worker knows that the masters accepted it, and takes new files."""
        try:
            return bool(worker_status(worker.http, 1.0, self.credentials)["registered"])
        except RetryError:
            return False


@contextmanager
def local_cluster(
    masters: int = 3,
    workers: int | None = None,
    dir: str | Path | None = None,  # noqa: A002 - the name is part of the settled public face
    settings: Sections | None = None,
    *,
    hosts: int | None = None,
    workers_per_host: int = 1,
    secure: bool = False,
    own: Mapping[str, Sections] | None = None,
    around: Callable[[LocalCluster], AbstractContextManager[object]] = nullcontext,
) -> Iterator[LocalCluster]:
    """Start a cluster, yield it when all workers are alive, and stop it.

    masters: 1, 3 or 5.
    workers: 0 or more, each on a host of its own; default: 2.
    dir: kept for the next start; default: a temporary directory.
    settings: configuration sections of all servers: {"lease": {"worker": "3s"}}; `{name}` in a storage path is the
        worker's name (w1, w2, …).
    own: sections of single servers, which win: {"w1": {"worker": {"rack": "r1"}}}.
    hosts, workers_per_host: instead of `workers`: w1, w1-2, w1-3 on host h1, w2, …
    secure: TLS and tokens in `dir`/security (extra `ca`); then use Session(…, credentials=cluster.credentials).
    around: entered before the first server starts, left after the last one has ended.
    Raises ConfigError for wrong arguments and a directory in use, StartError with the end of a server's log.
    """
    _check_masters(masters)
    machines = _Hosts.of(workers, hosts, workers_per_host)
    if not isinstance(settings or {}, Mapping):
        raise ConfigError(f'settings are sections, {{"worker": {{"rack": "r1"}}}}, not {settings!r}')
    root = Path(tempfile.mkdtemp(prefix="holdfast-")) if dir is None else Path(dir).absolute()
    launcher = ThreadPoolExecutor(1, thread_name_prefix="holdfast-launcher")
    servers: list[Server] = []
    try:
        with _held(root):
            try:
                cluster = _lay_out(root, masters, machines, (settings or {}, own or {}), launcher, secure)
            except OSError as error:
                raise ConfigError(f"no cluster can be kept in {root}: {error}") from error
            servers = cluster.servers
            with around(cluster):
                try:
                    for server in servers:
                        server.start(wait=False)
                    for server in servers:
                        server.wait_ready()
                    cluster.wait_ready()
                    yield cluster
                finally:
                    _end(servers)
    finally:
        launcher.shutdown()
        if dir is None:
            shutil.rmtree(root, ignore_errors=True)


def _check_number(what: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(f"{what} is a number, not {number!r}: write {what}=3")


def _check_masters(masters: object) -> None:
    _check_number("masters", masters)
    if masters not in config.PEERS:
        raise ConfigError(f"a cluster has 1, 3 or 5 masters, not {masters}")


@dataclass(frozen=True, slots=True)
class _Hosts:
    """How many hosts have workers, and how many each."""

    number: int
    workers_each: int

    @classmethod
    def of(cls, workers: int | None, hosts: int | None, workers_per_host: int) -> _Hosts:
        """`workers` are as many hosts with one each. Raises ConfigError for what cannot be."""
        if workers is not None and hosts is not None:
            raise ConfigError("workers is the number of hosts with one worker each: give workers or hosts, not both")
        what, number = ("workers", workers) if hosts is None else ("hosts", hosts)
        made = cls(_WORKERS if number is None else number, workers_per_host)
        _check_number(what, made.number)
        _check_number("workers_per_host", workers_per_host)
        if made.number < 0:
            raise ConfigError(f"a cluster cannot have {number} {what}: give 0 or more")
        if workers_per_host < 1:
            raise ConfigError(f"a host cannot have {workers_per_host} workers: give 1 or more")
        return made

    def workers(self) -> list[tuple[str, str]]:
        """Name and host of each worker: w1 is the first one of host h1, w1-2 the second."""
        return [
            (f"w{host}" if number == 1 else f"w{host}-{number}", f"h{host}")
            for host in range(1, self.number + 1)
            for number in range(1, self.workers_each + 1)
        ]


@contextmanager
def _held(root: Path) -> Iterator[None]:
    """Keep the directory for this cluster; nothing in it is changed before it is known to be unused.

    A server may have been started by hand on its own directory there, so the servers' locks are looked at, too.
    Raises ConfigError naming the process that is in the way.
    """
    with ExitStack() as stack:
        try:
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(root / _LOCK))
        except HeldError as error:
            raise ConfigError(f"{root} is in use by {error}: stop that one first, or give another directory") from None
        except (OSError, ValueError) as error:  # ValueError: no file has such a name
            raise ConfigError(f"no cluster can be kept in {root}: {error}") from error
        for lock in sorted(root.glob(f"[mw][0-9]*/{_LOCK}")):
            if is_held(lock):
                raise ConfigError(f"{lock.parent} is in use by {holder(lock)}: stop that one first")
        yield


def _end(servers: list[Server]) -> None:
    """Stop workers before masters, so that no worker calls masters that have stopped; each role at once, and no
    worker hands on what it has: all of them end."""
    for role in ("worker", "master"):
        group = [server for server in servers if server.role == role]
        with ThreadPoolExecutor(max(1, len(group)), thread_name_prefix="holdfast-stop") as pool:
            list(pool.map(Server.end, group))


def _lay_out(
    root: Path,
    masters: int,
    hosts: _Hosts,
    asked: tuple[Sections, Mapping[str, Sections]],
    launcher: ThreadPoolExecutor,
    secure: bool,
) -> LocalCluster:
    """Make directories, ports and configuration files; nothing is started. `asked`: settings of all, and of single
    servers."""
    settings, own = asked
    (root / "logs").mkdir(parents=True, exist_ok=True)
    shared: dict[str, Mapping[str, object]] = {"cluster": {"id": _identity(root), "secret_file": str(_secret(root))}}
    credentials = None
    if secure:
        credentials, shared["security"] = _secure(root, _identity(root), _secret(root))
    workers = hosts.workers()
    ports = iter(free_ports(masters * _MASTER_PORTS + len(workers) * _WORKER_PORTS, _LOOPBACK))
    master_ports = [[next(ports) for _ in range(_MASTER_PORTS)] for _ in range(masters)]
    peers = [
        {"name": f"m{number}", "raft": f"{_LOOPBACK}:{raft}", "http": f"{_LOOPBACK}:{http}"}
        for number, (http, _, raft) in enumerate(master_ports, 1)
    ]
    handles: dict[str, list[Server]] = {"master": [], "worker": []}

    def add(role: str, section: dict[str, object], address: int, ports: dict[str, int]) -> None:
        name = str(section["name"])
        file = root / f"{name}.toml"
        layers = (shared, {role: section}, _named(settings, name), own.get(name, {}))
        made = _configuration(*layers)
        file.write_text(config.render(made), encoding="utf-8")
        handles[role].append(
            Server(
                role=role,
                name=name,
                address=f"{_LOOPBACK}:{address}",
                http=f"{_LOOPBACK}:{ports['http']}",
                config=file,
                log=root / "logs" / f"{name}.log",
                launcher=launcher,
                ports=ports,
                host=str(made.worker.host) if role == "worker" else "",
            )
        )

    for peer, (http, grpc, raft) in zip(peers, master_ports, strict=True):
        section = {"name": peer["name"], "http_port": http, "grpc_port": grpc, "peers": peers}
        add(
            "master",
            {**section, "directory": str(root / peer["name"])},
            http,
            {"http": http, "grpc": grpc, "raft": raft},
        )
    if len(workers) > 1:
        _check_directories(settings)
    if strange := own.keys() - {peer["name"] for peer in peers} - {name for name, _ in workers}:
        raise ConfigError(f"own settings are for {', '.join(sorted(strange))}, and no server has that name")
    for name, host in workers:
        data, http = next(ports), next(ports)
        directory = root / name
        directory.mkdir(exist_ok=True)
        section = {"name": name, "host": host, "data_port": data, "http_port": http}
        section |= {"masters": [peer["http"] for peer in peers], "directories": [{"path": str(directory)}]}
        add("worker", section, data, {"data": data, "http": http})
    return LocalCluster(root, handles["master"], handles["worker"], credentials)


def _secure(root: Path, cluster_id: str, secret: Path) -> tuple[Credentials, Mapping[str, object]]:
    """Have a CA, one certificate for all servers here that does not end soon, and an admin's token; return what
    clients show and the section [security]."""
    from holdfast.common.security.authority import keep

    folder = root / SECURITY
    keep(folder, "server", (_LOOPBACK, "localhost"))
    keeper = Keeper(secret.read_bytes().strip(), cluster_id)
    token = keeper.mint(TokenKind.ADMIN, b"local", int(time.time()), _TOKEN_LIFE_S)
    token_file = folder / ADMIN_TOKEN
    write_whole(token_file, f"{token}\n".encode(), 0o600)
    ca = folder / CA_CERTIFICATE
    names = {"certificate": str(folder / "server.pem"), "key_file": str(folder / "server.key"), "ca": str(ca)}
    return Credentials.from_files(ca, token_file), {"enabled": True, **names}


def _directories(settings: Sections) -> list[Mapping[str, Any]]:
    """The storage directories that settings name; the configuration reports what is not such a list."""
    worker = settings.get("worker")
    found = worker.get("directories") if isinstance(worker, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []


def _check_directories(settings: Sections) -> None:
    """Raise ConfigError where several workers would have one directory."""
    for each in _directories(settings):
        path = str(each.get("path"))
        if "{name}" not in path:
            raise ConfigError(
                f'settings["worker"]["directories"] is for every worker, and {path} can be of one only: write '
                f"{path}/{{name}}, which is {path}/w1 for the first one, or give workers=1"
            )


def _named(settings: Sections, name: str) -> Sections:
    """Settings with the name of a server in the paths of its storage directories."""
    found = _directories(settings)
    if not found:
        return settings
    each = [
        one | {"path": str(one["path"]).replace("{name}", name)} if "path" in one else one for one in map(dict, found)
    ]
    return {**settings, "worker": {**settings["worker"], "directories": each}}


def _configuration(*layers: Sections) -> config.Config:
    """The layers' sections, later ones winning key by key. Raises ConfigError for what no server would take."""
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, keys in layer.items():
            if not isinstance(keys, Mapping):
                raise ConfigError(f'settings["{section}"] must be a dict of keys, not {keys!r}')
            merged.setdefault(section, {}).update(keys)
    # Here a host is what its worker says, though all of them are on one machine.
    if host := merged.get("worker", {}).get("host"):
        merged["worker"].setdefault("machine_id", host)
    return config.from_tables(merged, "settings")


def _identity(root: Path) -> str:
    """The cluster id of this directory, drawn once: two local clusters never take each other's calls for their own."""
    return _kept(root / "cluster", lambda: f"local-{secrets.token_hex(4)}")


def _secret(root: Path) -> Path:
    path = root / "secret"
    _kept(path, lambda: secrets.token_hex(32))
    return path


def _kept(path: Path, draw: Callable[[], str]) -> str:
    """The content of the file; random, and written, if it is missing or empty."""
    if not path.exists() or not path.stat().st_size:
        write_whole(path, draw().encode("ascii"), 0o600)
    return path.read_text(encoding="ascii")
