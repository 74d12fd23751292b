"""Every key an operator may set, with its default and the reason for it; docs/configuration.md is made from here.

Rules: to add a key, add one line to its section; the parser, the environment, the documentation and the errors follow
from it (settings.py). Text in, frozen dataclasses out: the edge reads the file and passes its environment. What two
processes must agree on is not here but in limits.py.

    config = parse(text, environ=os.environ, source="holdfast.toml")
    config.raft.heartbeat.seconds, config.worker.memory

Called by the mains, the CLI and the local cluster.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.common import settings
from holdfast.common.errors import ConfigError
from holdfast.common.settings import (
    Address,
    Duration,
    Port,
    Ratio,
    SignedDuration,
    Size,
    duration,
    required,
    setting,
    size,
)

ENVIRONMENT_PREFIX = "HOLDFAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """What all servers of one cluster share."""

    id: str = setting("holdfast", "Servers and clients with another id are refused, so that clusters never mix.")
    secret_file: str = setting(
        "", "File with the secret by which masters know each other, 16 bytes or more. Empty: loopback only."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One master of the cluster, as the other masters reach it."""

    name: str = required("The master's name, as in its own [master] section.")
    raft: Address = required("Where it listens for the other masters.")
    http: Address = required("Where clients are sent when it leads.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSection:
    """One master; read by masters only."""

    name: str = setting("", "Which of the peers this master is.")
    bind: str = setting("127.0.0.1", "Address to listen on. Loopback until you decide who may connect.")
    address: str = setting(
        "", "Name or address that others use. Empty: as in bind, or this host's name if bind is any."
    )
    http_port: Port = setting(Port(7070), "HTTP: what endpoints name. 0 lets the system choose.")
    grpc_port: Port = setting(Port(7071), "gRPC; clients learn it over HTTP. 0 lets the system choose.")
    directory: str = setting("", "Directory for the journal and the snapshots. Needed.")
    peers: tuple[Peer, ...] = setting((), "All masters of the cluster, this one included. One or three; needed.")

    def __post_init__(self) -> None:
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a peer twice: {', '.join(sorted(names))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSection:
    """How masters elect a leader and keep their log; the same on all masters."""

    election_timeout_min: Duration = duration(
        "400ms", "A follower that hears nothing this long stands for election; the median failover is close to it."
    )
    election_timeout_max: Duration = duration(
        "900ms", "Timeouts are drawn between min and max; the spread keeps masters from standing at once."
    )
    heartbeat: Duration = duration("100ms", "A quarter of the least election timeout: three may be lost unnoticed.")
    snapshot_entries: int = setting(20_000, "Log entries after which the state is written out and the log is cut.")
    snapshot_bytes: Size = size("64MiB", "The same by size of the log, which bounds the time of a restart.")

    def __post_init__(self) -> None:
        if self.election_timeout_max.ns < self.election_timeout_min.ns + self.heartbeat.ns:
            raise ConfigError("election_timeout_max must be at least election_timeout_min plus one heartbeat")
        if self.heartbeat.ns * 2 > self.election_timeout_min.ns:
            raise ConfigError("heartbeat must be at most half of election_timeout_min, or one loss starts an election")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSection:
    """How long the masters keep what nobody asks for; the same on all masters."""

    application: Duration = duration("10m", "An application lives this long after its last call; a long pause is safe.")
    deletion_grace: Duration = duration("1m", "Data goes this long after a lease ended; a renewal in between saves it.")
    worker: Duration = duration("10s", "A worker without a heartbeat this long is lost and its epochs move.")
    heartbeat: Duration = duration("2s", "How often workers say that they live: five chances within a lease.")
    tick: Duration = duration("500ms", "How often the leader looks at its leases. A late tick renews everybody first.")

    def __post_init__(self) -> None:
        if self.heartbeat.ns * 2 > self.worker.ns:
            raise ConfigError("heartbeat must be at most half of worker, or one lost message loses a worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """One storage directory of a worker."""

    path: str = required("Where it is. It belongs to one worker of one cluster for good.")
    tier: Literal["MEMORY", "SSD", "HDD"] = setting("SSD", "What kind of storage it is on; faster ones fill first.")
    capacity: Size = size("0", "What Holdfast may use of it; 0 is all that the file system has.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSection:
    """One worker; return_grace is read by the masters."""

    name: str = setting("", "Its name in the cluster, the same after every restart. Needed.")
    host: str = setting("", "The machine, for placement: two copies never share it. Empty: this machine's name.")
    rack: str = setting("", "The rack, for placement: two copies avoid sharing it. Empty: not known.")
    bind: str = setting("127.0.0.1", "Address to listen on. Loopback until you decide who may connect.")
    address: str = setting(
        "", "Name or address that others use. Empty: as in bind, or this host's name if bind is any."
    )
    data_port: Port = setting(Port(7080), "Pushes and reads; clients learn it from the masters. 0: the system chooses.")
    http_port: Port = setting(Port(7081), "Health, status and metrics. 0 lets the system choose.")
    masters: tuple[Address, ...] = setting((), "HTTP endpoints of the masters. Needed.")
    directories: tuple[Directory, ...] = setting((), "Where the bytes go, each with its own index. Needed.")
    return_grace: Duration = duration("30s", "A commit waits this long for a lost worker that may be restarting.")
    memory: Size = size("256MiB", "What buffers may hold in all; past it pushes are told to wait.")
    region_bytes: Size = size("64MiB", "A region of a MAP file: what a map task sorts in memory at a time.")
    soft_split: Size = size("1GiB", "A partition of this size still accepts, and asks its writers to move on.")
    hard_split: Size = size("2GiB", "A partition of this size accepts nothing more.")
    disk_reserve: Size = size("5GiB", "A directory with less room, or a tenth of its capacity if that is less, splits.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """What one user may hold, instead of what all may."""

    user: str = required("The user's name, as the application gave it.")
    bytes: Size = size("0", "Bytes, second copies counted; 0 is no bound.")
    files: int = setting(0, "Files; 0 is no bound.")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSection:
    """What may be held on the workers: who has that much gets no new shuffle. Read by masters, the same on all."""

    application_bytes: Size = size("0", "Of one application, second copies counted; 0 is no bound.")
    application_files: int = setting(0, "Of one application, open and sealed; 0 is no bound.")
    user_bytes: Size = size("0", "Of all applications of one user; 0 is no bound.")
    user_files: int = setting(0, "Of all applications of one user; 0 is no bound.")
    users: tuple[UserQuota, ...] = setting((), "Users who may have more, or less.")

    def __post_init__(self) -> None:
        names = [each.user for each in self.users]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a user twice: {', '.join(sorted(names))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsSection:
    """Faults made on purpose, for drills. Shown in status."""

    enabled: bool = setting(False, "Nothing below does anything unless this is true.")
    disk_delay: Duration = duration("0", "Added to every write, sync and read.")
    disk_rate: Size = size("0", "Bytes a second that a directory takes; 0 is no bound.")
    disk_error_rate: Ratio = setting(Ratio(0.0), "Share of writes and syncs that fail.")
    disk_error: Literal["EIO", "ENOSPC", "EROFS"] = setting(
        "EIO", "How they fail; ENOSPC spares syncs, EROFS spares nothing that changes the disk."
    )
    disk_error_after: Size = size("0", "Bytes that are written before any fails; with ENOSPC what the disk holds.")
    clock_offset: SignedDuration = setting(SignedDuration(Duration(0)), "Added to the clock; may be negative.")

    def __post_init__(self) -> None:
        asked = self.disk_delay.ns or self.disk_rate or self.disk_error_rate or self.disk_error_after
        asked = asked or self.disk_error != "EIO" or self.clock_offset.ns
        if asked and not self.enabled:
            raise ConfigError("asks for faults, but enabled is false: set it to true, or take the faults out")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What servers write to standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", "One line for each change of state at INFO.")
    format: Literal["text", "json"] = setting("text", "text for people, json (an object a line) for collectors.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration; one file may hold the sections of every role."""

    cluster: ClusterSection = field(default_factory=ClusterSection)
    master: MasterSection = field(default_factory=MasterSection)
    raft: RaftSection = field(default_factory=RaftSection)
    lease: LeaseSection = field(default_factory=LeaseSection)
    worker: WorkerSection = field(default_factory=WorkerSection)
    quota: QuotaSection = field(default_factory=QuotaSection)
    faults: FaultsSection = field(default_factory=FaultsSection)
    log: LogSection = field(default_factory=LogSection)


def parse(text: str, environ: Mapping[str, str] | None = None, source: str = "configuration") -> Config:
    """Read TOML; variables HOLDFAST_SECTION_KEY in `environ` win. `source` is what errors call the text.

    Raises ConfigError with every problem found, each with its line or variable and what to write instead.
    """
    return settings.parse(Config, text, environ or {}, ENVIRONMENT_PREFIX, source)


def from_tables(tables: Mapping[str, object], source: str = "settings") -> Config:
    """Read sections given as mappings, such as the `settings` of a local cluster; values as they stand in TOML."""
    return settings.from_tables(Config, tables, source)


def render(config: Config) -> str:
    """TOML that `parse` reads back into an equal configuration; only what differs from the defaults."""
    return settings.render(config)


def require_master(config: Config) -> Peer:
    """Check what only a master needs; return its own entry among the peers. Raises ConfigError."""
    _need(config.master.directory, "master.directory", "a directory for the journal")
    _need(config.master.peers, "master.peers", 'the masters, such as [{ name = "m1", raft = "…", http = "…" }]')
    for peer in config.master.peers:
        if peer.name == config.master.name:
            return peer
    names = ", ".join(peer.name for peer in config.master.peers)
    raise ConfigError(f'master.name is "{config.master.name}", which is not among the peers: {names}')


def require_worker(config: Config) -> None:
    """Check what only a worker needs. Raises ConfigError."""
    _need(config.worker.name, "worker.name", "a name that stays the same after restarts")
    _need(config.worker.masters, "worker.masters", 'the masters\' HTTP endpoints, such as ["127.0.0.1:7070"]')
    _need(config.worker.directories, "worker.directories", 'where the bytes go, such as [{ path = "data" }]')
    paths = [directory.path for directory in config.worker.directories]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"worker.directories names a path twice: {', '.join(sorted(paths))}")


def advertised(bind: str, address: str, this_host: str) -> str:
    """The name by which others reach a server: what is set, else where it listens, else this machine's name."""
    return address or (this_host if bind in ("", "0.0.0.0", "::") else bind)


def documentation() -> str:
    """The text of docs/configuration.md: every key with its default and its reason."""
    return _INTRODUCTION + "\n".join(_document(Config)) + "\n"


def _document(kind: type[object]) -> Iterator[str]:
    for section, section_kind in typing.get_type_hints(kind).items():
        yield f"\n## [{section}]\n\n{section_kind.__doc__}\n\n| Key | Default | Meaning |\n|---|---|---|"
        yield from _rows(section_kind)
        for key, hint in typing.get_type_hints(section_kind).items():
            for table in typing.get_args(hint):
                if isinstance(table, type) and hasattr(table, "__dataclass_fields__"):
                    yield f"\nEach of `{section}.{key}`:\n\n| Key | Default | Meaning |\n|---|---|---|"
                    yield from _rows(table)


def _rows(kind: type[object]) -> Iterator[str]:
    for key, default, reason in settings.describe(kind):
        yield f"| `{key}` | {f'`{default}`' if default else 'needed'} | {reason} |"


def _need(value: object, key: str, what: str) -> None:
    if not value:
        section, _, name = key.partition(".")
        raise ConfigError(f"[{section}] needs {name}: {what}")


_INTRODUCTION = """# Configuration

Made from common/config.py by `python -m tests.write_docs`; change it there.

A file is TOML. Unknown keys, wrong types and wrong units are refused with the line and the nearest known key. Sizes
are text with a unit (B, KiB, MiB, GiB, TiB), durations too (ms, s, m, h, d). One file may hold the sections of every
role; each reads what it needs. The variable `HOLDFAST_SECTION_KEY` wins over the file, as in
`HOLDFAST_WORKER_DATA_PORT=7080` or `HOLDFAST_LOG_LEVEL=DEBUG`; lists are separated by commas, tables are written as
in the file.
"""
