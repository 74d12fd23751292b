"""Every key an operator may set, with its default and the reason for it; docs/configuration.md is made from here.

Rules: to add a key, add one line to its section; the parser, the environment, the documentation and the errors follow
from it (settings.py). Text in, frozen dataclasses out: the edge reads the file and passes its environment. What two
processes must agree on is not here but in limits.py.

    config = parse(text, environ=os.environ, source="holdfast.toml")
    config.raft.heartbeat.seconds, config.worker.memory

Called by the mains, the CLI and the local cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.common.config import settings
from holdfast.common.config.faults import FaultsSection
from holdfast.common.config.placement import PlacementSection
from holdfast.common.config.settings import (
    Address,
    Duration,
    Host,
    Name,
    Port,
    Ratio,
    Size,
    Tag,
    duration,
    required,
    setting,
    size,
)
from holdfast.common.dfs.urls import StoreKind, harmless, parse_url
from holdfast.common.errors import ConfigError
from holdfast.common.tags import tags_problem

ENVIRONMENT_PREFIX = "HOLDFAST"
_MIB = 1 << 20
#: A push log and the index leave room for little else in less.
CAPACITY_BYTES_LEAST = 16 * _MIB
#: How many masters a cluster may have; even numbers while masters are added or taken out one by one.
PEERS = (1, 3, 5)
PEERS_MAX = max(PEERS)
#: Errors of a directory that a worker counts at most.
ERRORS_MAX = 1_000
#: Shorter lives of tokens would end between two renewals.
TOKEN_LIFE_SECONDS_LEAST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """What all servers of one cluster share."""

    id: Name = setting(Name("holdfast"), "Servers and clients with another id are refused, so that clusters never mix.")
    secret_file: str = setting(
        "",
        "File with the secret of the cluster, 16 bytes or more: by it masters know each other, and with [security]"
        " tokens are made. Empty: masters on loopback only.",
    )
    other_secret_file: str = setting(
        "",
        "File with one more secret that is taken, and with which nothing is made: the next one or the one before, while"
        " the secret is changed (docs/security.md).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPeer:
    """One master of the cluster, as the other masters reach it."""

    name: Name = required("The master's name, as in its own [master] section.")
    raft: Address = required("Where it listens for the other masters.")
    http: Address = required("Where clients are sent when it is the leader.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSection:
    """One master; read by masters only."""

    name: Name = setting(Name(""), "Which of the peers this master is.")
    bind: Host = setting(Host("127.0.0.1"), "Address to listen on. The default admits only this host.")
    address: Host = setting(
        Host(""), "Name or address that others use. Empty: as in bind, or this host's name if bind is any."
    )
    http_port: Port = setting(Port(7070), "HTTP, the port of the endpoints. 0: the system chooses.")
    grpc_port: Port = setting(Port(7071), "gRPC; clients get it over HTTP. 0: the system chooses.")
    directory: str = setting("", "Directory for the journal and the snapshots, absolute. Needed.")
    peers: tuple[MasterPeer, ...] = setting(
        (), "All masters of the cluster, this one included. One, three or five; two or four while one is added."
    )

    def __post_init__(self) -> None:
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a peer twice: {', '.join(sorted(names))}")
        if len(names) > PEERS_MAX:
            raise ConfigError(
                f"has {len(names)} peers, and there may be {PEERS_MAX}: each command waits for most of them"
            )
        if self.directory and not self.directory.startswith("/"):
            raise ConfigError(
                f"directory must be absolute, as in /var/lib/holdfast/m1, not {settings.shown(self.directory)}: "
                "relative to another working directory the master would start empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSection:
    """How masters elect a leader and keep their log; the same on all masters."""

    election_timeout_min: Duration = duration(
        "400ms", "A follower without a heartbeat for so long starts an election; the median failover is close to it."
    )
    election_timeout_max: Duration = duration(
        "900ms", "Timeouts are drawn between min and max; the spread keeps masters from standing at once."
    )
    heartbeat: Duration = duration("100ms", "A quarter of the least election timeout: three may be lost unnoticed.")
    snapshot_entries: int = setting(20_000, "Log entries after which the state is written out and the log is cut.")
    snapshot_bytes: Size = size(
        "64MiB", "At most, by size of the log: it is also cut where it is as long as the state, and 1 MiB."
    )

    def __post_init__(self) -> None:
        if self.election_timeout_max.ns < self.election_timeout_min.ns + self.heartbeat.ns:
            raise ConfigError("election_timeout_max must be at least election_timeout_min plus one heartbeat")
        if self.heartbeat.ns * 2 > self.election_timeout_min.ns:
            raise ConfigError("heartbeat must be at most half of election_timeout_min, or one loss starts an election")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSection:
    """How long the masters keep unused data; the same on all masters."""

    application: Duration = duration("10m", "An application is kept this long after its last call; a pause is safe.")
    deletion_grace: Duration = duration("1m", "Data is deleted this long after a lease expired; a renewal keeps it.")
    worker: Duration = duration("10s", "A worker without a heartbeat this long is lost and its epochs move.")
    heartbeat: Duration = duration("2s", "Interval of the heartbeats of workers: five within a lease.")
    tick: Duration = duration("500ms", "How often the leader checks leases. A late check renews all of them first.")

    def __post_init__(self) -> None:
        if self.heartbeat.ns * 2 > self.worker.ns:
            raise ConfigError("heartbeat must be at most half of worker, or one lost message loses a worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySetting:
    """One storage directory of a worker."""

    path: str = required("Where it is, absolute. It belongs to one worker of one cluster for good.")
    tier: Literal["MEMORY", "SSD", "HDD"] = setting("SSD", "What kind of storage it is on; faster ones fill first.")
    capacity: Size = size("0", "What Holdfast may use of it, at least 16MiB; 0: all there is. Needed for MEMORY.")

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "\0" in self.path:
            raise ConfigError(
                f"path must be absolute, as in /data/holdfast, not {settings.shown(self.path)}: "
                "a worker may be started from anywhere"
            )
        if 0 < self.capacity < CAPACITY_BYTES_LEAST:
            raise ConfigError(
                f"capacity must be at least {CAPACITY_BYTES_LEAST // _MIB}MiB, or nothing fits beside the push log; "
                "0 is all that the file system has"
            )
        if self.tier == "MEMORY" and not self.capacity:
            raise ConfigError(
                f'is of tier MEMORY and needs a capacity, such as capacity = "4GiB": files in {self.path} take '
                "memory of this machine"
            )


#: A commit's caller waits no longer than some minutes.
_COPY_GRACE_NS_MAX = 300 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSection:
    """One worker; return_grace, copy_grace, restore_after and restore_rate are read by the masters."""

    name: Name = setting(Name(""), "Its name in the cluster, the same after every restart. Needed.")
    host: Name = setting(Name(""), "The machine, for placement: two copies never share it. Empty: this machine's name.")
    machine_id: Name = setting(
        Name(""),
        "What the masters know its machine by: a host has one machine, and a machine one host. Empty: /etc/machine-id, "
        "hashed. Give it where one machine is to pass for several hosts, or several machines are one.",
    )
    rack: Name = setting(Name(""), "The rack, for placement: two copies avoid sharing it. Empty: not known.")
    tags: tuple[Tag, ...] = setting((), "The pools it is in: what is confined to a tag goes to workers that have it.")
    bind: Host = setting(Host("127.0.0.1"), "Address to listen on. The default admits only this host.")
    address: Host = setting(
        Host(""), "Name or address that others use. Empty: as in bind, or this host's name if bind is any."
    )
    data_port: Port = setting(Port(7080), "Pushes and reads; clients get it from the masters. 0: the system chooses.")
    http_port: Port = setting(Port(7081), "Health, status and metrics. 0: the system chooses.")
    masters: tuple[Address, ...] = setting((), "HTTP endpoints of the masters. Needed.")
    directories: tuple[DirectorySetting, ...] = setting((), "Where the bytes go, each with its own index. Needed.")
    return_grace: Duration = duration("30s", "A commit waits this long for a lost worker that may be restarting.")
    copy_grace: Duration = duration(
        "5s",
        "The same where another copy is sealed, at most 5m: counted from when the worker is asked; from its last "
        "heartbeat if it cannot be reached. What is not sealed by then is sealed when its worker is back.",
    )
    restore_after: Duration = duration(
        "10m",
        "A worker that has been lost for so long is not waited for: what it had copies of is copied again, from those "
        "that are left. 0: never.",
    )
    restore_rate: Size = size("64MiB", "The same: so much a second, of what one worker sends and of what one takes.")
    drain_timeout: Duration = duration(
        "60s", "SIGTERM: longest time to hand open data over to other workers before the end. 0: none."
    )
    memory: Size = size("256MiB", "What buffers may hold in all; past it pushes have to wait.")
    soft_split: Size = size("1GiB", "A partition of this size still accepts, and asks its writers to move on.")
    hard_split: Size = size("2GiB", "A partition of this size accepts nothing more.")
    disk_reserve: Size = size("5GiB", "A directory with less room, or a tenth of its capacity if that is less, splits.")

    def __post_init__(self) -> None:
        if problem := tags_problem(self.tags):
            raise ConfigError(problem)
        if self.copy_grace.ns > _COPY_GRACE_NS_MAX:
            raise ConfigError("copy_grace must be at most 5m: commits, and the jobs that need them, wait for it")
        if not self.restore_rate:
            raise ConfigError('restore_rate is 0: to copy nothing, set restore_after = "0s"')


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsSection:
    """The store of the DFS tier: the same on workers, which put sealed files there, and on masters, which clean it."""

    url: str = setting(
        "", "/path (none of worker.directories), s3://bucket/prefix or hdfs://host:port/path. Empty: no DFS tier."
    )
    endpoint: str = setting("", "S3: where it is served, as in http://host:9000. Empty: AWS_ENDPOINT_URL, or Amazon's.")
    region: str = setting("", "S3: the region. Empty: from the AWS environment.")
    access_key: str = setting("", "S3: id of the key. Empty: credentials as AWS tools find them (AWS_… and so on).")
    secret_key_file: str = setting("", "S3: file with the secret of access_key, so that it is in no configuration.")
    connect_timeout: Duration = duration("5s", "S3: a connection that takes longer fails.")
    call_timeout: Duration = duration("30s", "A request that takes longer fails; uploads 1 s for each MiB more.")
    retry_window: Duration = duration("30s", "What failed is tried again, with back-off, this long after it failed.")
    part_bytes: Size = size("8MiB", "Uploads go in parts of this size; each holds so much memory, or twice as much.")
    verify: Literal["ends", "whole"] = setting(
        "ends", "Read back before the local file is deleted: length and both ends, or every byte at twice the cost."
    )
    clean_every: Duration = duration("5m", "How often the leader searches for files that dropped applications left.")
    clean_grace: Duration = duration("10m", "Files it found are deleted so much later; live workers are faster.")

    def __post_init__(self) -> None:
        if not self.url:
            return
        kind = parse_url(self.url).kind
        keys = (self.endpoint, self.region, self.access_key, self.secret_key_file)
        if kind is not StoreKind.S3 and any(keys):
            raise ConfigError(
                f"has a url of {kind.called}, to which endpoint, region, access_key and secret_key_file mean nothing: "
                "take them out, or write a url such as s3://bucket/prefix"
            )
        if self.endpoint and not settings.is_endpoint(self.endpoint):
            hint = f", not {settings.shown(self.endpoint)}" if harmless(self.endpoint) else ""
            raise ConfigError(f"endpoint must be http://host:port or https://host:port, without a path{hint}")
        if bool(self.access_key) != bool(self.secret_key_file):
            raise ConfigError("needs access_key and secret_key_file, or neither, to use the environment's credentials")
        if not _MIB <= self.part_bytes <= 256 * _MIB:
            raise ConfigError("part_bytes must be from 1MiB to 256MiB")
        if self.call_timeout.ns < 10**9 or not 0 < self.connect_timeout.ns <= self.call_timeout.ns:
            raise ConfigError("call_timeout must be at least 1s, connect_timeout more than 0 and at most call_timeout")
        if self.clean_every.ns < 10**8:
            raise ConfigError("clean_every must be at least 100ms; each search costs requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersSection:
    """Which directory of a worker gets a file, and which files move; read by workers."""

    order: tuple[Literal["MEMORY", "SSD", "HDD", "DFS"], ...] = setting(
        ("MEMORY", "SSD", "HDD", "DFS"),
        "Tiers from the fastest; files move down in this order. DFS takes the rest.",
    )
    allocator: Literal["greedy", "maxfree", "roundrobin"] = setting(
        "maxfree", "Which directory of a tier takes a file: the first that fits, the emptiest, or each in turn."
    )
    reviewer: Literal["accepting", "probabilistic"] = setting(
        "probabilistic",
        "probabilistic: the less is free, the more new files go to other tiers; files here can still grow.",
    )
    reviewer_hard: Size = size(
        "5GiB", "With so little free no file is created there; a tenth of the capacity if that is less."
    )
    reviewer_soft: Size = size(
        "20GiB", "With more free every file may be created there; four tenths of the capacity if that is less."
    )
    memory_annotator: Literal["largest", "lru", "lrfu"] = setting(
        "largest", "What leaves MEMORY first: the largest, since one move then makes the most room."
    )
    annotator: Literal["largest", "lru", "lrfu"] = setting(
        "lru", "Which files leave a disk first: those that were read longest ago."
    )
    lrfu_step: Ratio = setting(Ratio(0.25), "lrfu: 0 counts reads, 1 is close to lru.")
    lrfu_attenuation: float = setting(2.0, "lrfu: a read fades by attenuation ^ -step with each later one; 2 or more.")
    high_watermark: Ratio = setting(Ratio(0.95), "A tier used to this share moves its coldest files down.")
    low_watermark: Ratio = setting(
        Ratio(0.7),
        "Where moving stops; lower by what faster tiers keep free, if that leaves it below the high one (storage.md).",
    )
    free_ahead: Size = size("0", "Bytes to free beyond those that a request needs; 0: none.")
    align: bool = setting(False, "Swap hot files below with cold ones above. Off: shuffle data is mostly read once.")
    promote: bool = setting(False, "Move hot files up while a tier has room. Off for the same reason.")
    range: int = setting(100, "Files that one round of moves considers, on either side.")
    promote_quota: Ratio = setting(Ratio(0.9), "Promotion stops at this share of a tier, below the high watermark.")
    backoff: Literal["any", "directory"] = setting(
        "directory", "Swaps and promotions keep away from directories in use, or (any) wait while any is."
    )
    cooldown: Duration = duration("10s", "How long after a stream a directory still counts as in use.")

    def __post_init__(self) -> None:
        if sorted(self.order) != ["DFS", "HDD", "MEMORY", "SSD"] or self.order[-1] != "DFS":
            raise ConfigError("order must name each of MEMORY, SSD, HDD and DFS once, DFS last: it is never full")
        if self.reviewer_hard > self.reviewer_soft:
            raise ConfigError(
                "reviewer_hard must be at most reviewer_soft: no file is created below it, every file above soft"
            )
        if self.lrfu_attenuation < 2:
            raise ConfigError("lrfu_attenuation must be 2 or more, or reads hardly fade")
        self._check_watermarks()
        if self.range < 1:
            raise ConfigError("range must be 1 or more, or nothing ever moves")

    def _check_watermarks(self) -> None:
        if not 0 < self.low_watermark < self.high_watermark:
            raise ConfigError("low_watermark must be above 0 and below high_watermark, where moving starts")
        if self.promote and self.promote_quota > self.high_watermark:
            raise ConfigError("promote_quota must be at most high_watermark, or what was moved up is moved down again")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCheckSection:
    """How a worker checks its own disks, and when a directory is left alone."""

    interval: Duration = duration(
        "10s", "How often each directory is written to, synced and read back; one sync, cheap beside a heartbeat's 2 s."
    )
    timeout: Duration = duration(
        "30s", "A check that takes longer fails: the device hangs. Busy disks have taken seconds."
    )
    errors: int = setting(3, "So many failed writes, syncs or checks within the window make a directory critical.")
    error_window: Duration = duration(
        "60s", "The window; a critical directory stays out until one has passed without an error."
    )
    good_probes: int = setting(
        3, "Successful checks in a row before an isolated directory takes data again: half a minute."
    )
    average_window: Duration = duration(
        "10s", "Window of the mean times of writes and reads in heartbeats: some heartbeats long."
    )

    def __post_init__(self) -> None:
        if not min(self.interval.ns, self.timeout.ns, self.error_window.ns, self.average_window.ns):
            raise ConfigError("interval, timeout, error_window and average_window must be more than 0")
        if not 1 <= self.errors <= ERRORS_MAX or not self.good_probes:
            raise ConfigError(f"errors must be 1 to {ERRORS_MAX}, good_probes at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """What one user may hold, instead of what all may."""

    user: str = required("The user's name, as the application gave it.")
    bytes: Size = size("0", "Bytes, second copies counted; 0 is no bound.")
    files: int = setting(0, "Files; 0 is no bound.")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSection:
    """Limits of usage on the workers: an owner at its limit gets no new shuffle. Read by masters, the same on all."""

    application_bytes: Size = size("0", "Of one application, second copies counted; 0 is no bound.")
    application_files: int = setting(0, "Of one application, open and sealed; 0 is no bound.")
    user_bytes: Size = size("0", "Of all applications of one user; 0 is no bound.")
    user_files: int = setting(0, "Of all applications of one user; 0 is no bound.")
    users: tuple[UserQuota, ...] = setting((), "Users with other limits.")

    def __post_init__(self) -> None:
        names = [each.user for each in self.users]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a user twice: {', '.join(sorted(names))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """TLS on every port, and a token for every call; the same on all servers (docs/security.md)."""

    enabled: bool = setting(
        False, "The one switch. With it every request needs TLS and a token, and faults are refused."
    )
    certificate: str = setting("", "PEM file with this server's certificate and those between it and the CA. Needed.")
    key_file: str = setting("", "PEM file with the private key of that certificate, mode 0600. Needed.")
    ca: str = setting("", "PEM file with the CA that signed the certificates of the servers. Required.")
    token_life: Duration = duration(
        "7d", "Life of the token of an application; drivers and tasks renew theirs after half of it."
    )

    def __post_init__(self) -> None:
        if self.enabled:
            for key in ("certificate", "key_file", "ca"):
                if not getattr(self, key).startswith("/"):
                    raise ConfigError(f"is enabled and needs {key}: the absolute path of a PEM file")
        if self.token_life.seconds < TOKEN_LIFE_SECONDS_LEAST:
            raise ConfigError(f"token_life is at least {TOKEN_LIFE_SECONDS_LEAST} s: renewals need some time")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What servers write to standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", "What each means: log_events.md.")
    format: Literal["text", "json"] = setting("text", "text for people, json (an object a line) for collectors.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration; one file may hold the sections of every role."""

    cluster: ClusterSection = field(default_factory=ClusterSection)
    master: MasterSection = field(default_factory=MasterSection)
    raft: RaftSection = field(default_factory=RaftSection)
    lease: LeaseSection = field(default_factory=LeaseSection)
    worker: WorkerSection = field(default_factory=WorkerSection)
    dfs: DfsSection = field(default_factory=DfsSection)
    tiers: TiersSection = field(default_factory=TiersSection)
    disk_check: DiskCheckSection = field(default_factory=DiskCheckSection)
    quota: QuotaSection = field(default_factory=QuotaSection)
    placement: PlacementSection = field(default_factory=PlacementSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    faults: FaultsSection = field(default_factory=FaultsSection)
    log: LogSection = field(default_factory=LogSection)


def parse(text: str, environ: Mapping[str, str] | None = None, source: str = "configuration") -> Config:
    """Read TOML; variables HOLDFAST_SECTION_KEY in `environ` win. `source` is what errors call the text.

    Raises ConfigError with every problem found, each with its line or variable and what to write instead.
    """
    return settings.parse(Config, text, environ or {}, ENVIRONMENT_PREFIX, source)


def place(text: str, environ: Mapping[str, str], source: str, section: str, key: str) -> str:
    """Where a key of a text for `parse` is written, as in its errors: the line, or the variable."""
    return settings.place(Config, text, environ, ENVIRONMENT_PREFIX, source, (section, key))


def from_tables(tables: Mapping[str, object], source: str = "settings") -> Config:
    """Read sections given as mappings, such as the `settings` of a local cluster; values as in TOML."""
    return settings.from_tables(Config, tables, source)


render = settings.render


def require_master(config: Config) -> MasterPeer:
    """Check what only a master needs; return its own entry among the peers. Raises ConfigError."""
    _check_security(config)
    _need(config.master.directory, "master.directory", "a directory for the journal")
    _need(config.master.peers, "master.peers", 'the masters, such as [{ name = "m1", raft = "…", http = "…" }]')
    for peer in config.master.peers:
        if peer.name == config.master.name:
            _check_http(config.master, peer)
            return peer
    names = ", ".join(peer.name for peer in config.master.peers)
    raise ConfigError(f'master.name is "{config.master.name}", which is not among the peers: {names}')


def _check_http(section: MasterSection, own: MasterPeer) -> None:
    """Raise ConfigError if clients would be sent to a port of this machine that has no listener. Another name or
    address may be forwarded to any port here."""
    host, _, port = str(own.http).rpartition(":")
    here = host == "localhost" or host.startswith("127.") or host.strip("[]") in ("::1", section.bind)
    if here and section.http_port and int(port) != section.http_port:
        raise ConfigError(
            f'master.http_port is {section.http_port}, and among the peers {own.name} has http = "{own.http}", where'
            " clients are sent: give both the same port"
        )


def require_worker(config: Config) -> None:
    """Check what only a worker needs. Raises ConfigError."""
    _check_security(config)
    _need(config.worker.name, "worker.name", "a name that stays the same after restarts")
    _need(config.worker.masters, "worker.masters", 'the masters\' HTTP endpoints, such as ["127.0.0.1:7070"]')
    _need(config.worker.directories, "worker.directories", 'where the bytes go, such as [{ path = "/data/holdfast" }]')


def _check_security(config: Config) -> None:
    if config.security.enabled:
        _need(config.cluster.secret_file, "cluster.secret_file", "security.enabled makes tokens with that secret")
        if config.faults.enabled:
            raise ConfigError("faults.enabled and security.enabled exclude each other: take the faults out")


def advertised(bind: str, address: str, this_host: str) -> str:
    """The name by which others reach a server: what is set, else where it listens, else this machine's name."""
    return address or (this_host if bind in ("", "0.0.0.0", "::") else bind)


def master_hosts(config: Config, own: MasterPeer) -> list[str]:
    """By what clients, and other masters where there are some, reach the master `own`."""
    addresses = [own.http, own.raft] if len(config.master.peers) > 1 else [own.http]
    return list(dict.fromkeys(str(address).rpartition(":")[0].strip("[]") for address in addresses))


def _need(value: object, key: str, what: str) -> None:
    if not value:
        section, _, name = key.partition(".")
        raise ConfigError(f"[{section}] needs {name}: {what}")
