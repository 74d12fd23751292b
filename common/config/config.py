"""Every key an operator may set, with default and meaning; docs/operate/configuration.md is made from here.

Rules: to add a key, add one line to its section; the parser, the environment, the documentation and the errors follow
from it (settings.py). Text in, frozen dataclasses out: the edge reads the file and passes its environment. What two
processes must agree on is not here but in limits.py.

    config = parse(text, environ=os.environ, source="holdfast.toml")
    config.raft.heartbeat.seconds, config.worker.memory

Called by the mains, the CLI and the local cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from holdfast.common.addresses import is_web_address
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
    """Shared by all servers of a cluster."""

    id: Name = setting(Name("holdfast"), "Other ids are refused.")
    secret_file: str = setting(
        "",
        "File with the cluster's secret, 16 bytes or more, for Raft connections and tokens. Empty: masters on "
        "loopback only.",
        secret="file",
    )
    other_secret_file: str = setting(
        "",
        "File with a second accepted secret, during a change (docs/operate/security.md).",
        secret="file",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPeer:
    """One master of the cluster."""

    name: Name = required("Its [master] name.")
    raft: Address = required("Address for the other masters.")
    http: Address = required("Address for clients.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSection:
    """For masters."""

    name: Name = setting(Name(""), "This master among the peers.")
    bind: Host = setting(Host("127.0.0.1"), "Listen address; the default is for this host only.")
    address: Host = setting(Host(""), "Address for others. Empty: bind, or this host's name if bind is any.")
    http_port: Port = setting(Port(7070), "HTTP port of the endpoints. 0: any free port.")
    grpc_port: Port = setting(Port(7071), "gRPC port, announced over HTTP. 0: any free port.")
    directory: str = setting("", "Absolute path for journal and snapshots. Required.")
    peers: tuple[MasterPeer, ...] = setting(
        (), "All masters, this one too: one, three or five (two or four during a change)."
    )
    spark_history_url: str = setting(
        "", "Spark's history server, or an address with {app_id}, for links on the page: http://history:18080."
    )

    def __post_init__(self) -> None:
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a peer twice: {', '.join(sorted(names))}")
        if len(names) > PEERS_MAX:
            raise ConfigError(
                f"has {len(names)} peers, and there may be {PEERS_MAX}: each command waits for most of them"
            )
        if self.spark_history_url and not is_web_address(self.spark_history_url.replace("{app_id}", "")):
            raise ConfigError(
                "spark_history_url must be an address of http or https, as in http://history:18080 or "
                f"http://rm:8088/cluster/app/{{app_id}}, not {settings.shown(self.spark_history_url)}"
            )
        if self.directory and not self.directory.startswith("/"):
            raise ConfigError(
                f"directory must be absolute, as in /var/lib/holdfast/m1, not {settings.shown(self.directory)}: "
                "relative to another working directory the master would start empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSection:
    """Elections and log; the same on all masters."""

    election_timeout_min: Duration = duration(
        "400ms", "Silence after which a follower starts an election; a tenth if the leader disconnected."
    )
    election_timeout_max: Duration = duration("900ms", "Timeouts are random between min and max.")
    heartbeat: Duration = duration("100ms", "Heartbeat interval.")
    snapshot_entries: int = setting(20_000, "Log entries before a snapshot.")
    snapshot_bytes: Size = size("64MiB", "Log size before one; the state's size, at least 1 MiB, if that is less.")

    def __post_init__(self) -> None:
        if self.election_timeout_max.ns < self.election_timeout_min.ns + self.heartbeat.ns:
            raise ConfigError("election_timeout_max must be at least election_timeout_min plus one heartbeat")
        if self.heartbeat.ns * 2 > self.election_timeout_min.ns:
            raise ConfigError("heartbeat must be at most half of election_timeout_min, or one loss starts an election")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSection:
    """Times of leases; the same on all masters."""

    application: Duration = duration("10m", "Life of an application after its last call.")
    deletion_grace: Duration = duration("1m", "Time from the expiry of a lease to the deletion of its data.")
    worker: Duration = duration("10s", "Silence after which a worker is lost and its epochs move.")
    heartbeat: Duration = duration("2s", "Heartbeat interval of workers.")
    tick: Duration = duration("500ms", "Interval of lease checks; a late one first renews all leases.")

    def __post_init__(self) -> None:
        if self.heartbeat.ns * 2 > self.worker.ns:
            raise ConfigError("heartbeat must be at most half of worker, or one lost message loses a worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySetting:
    """One storage directory."""

    path: str = required("Absolute path; belongs permanently to one worker.")
    tier: Literal["MEMORY", "SSD", "HDD"] = setting("SSD", "MEMORY, SSD or HDD; faster tiers fill first.")
    capacity: Size = size("0", "Bytes for Holdfast, at least 16MiB; 0: all. Required for MEMORY.")

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
    """For workers; masters read return_grace, copy_grace, restore_after and restore_rate."""

    name: Name = setting(Name(""), "Permanent name in the cluster. Required.")
    host: Name = setting(Name(""), "Failure domain: two copies never share it. Empty: this machine's name.")
    machine_id: Name = setting(
        Name(""),
        "Identity of the machine, one for each host. Empty: a hash of /etc/machine-id. Set it to make one machine "
        "several hosts, or several machines one.",
    )
    rack: Name = setting(Name(""), "Copies avoid sharing it. Empty: unknown.")
    tags: tuple[Tag, ...] = setting((), "Its pools (placement.md).")
    bind: Host = setting(Host("127.0.0.1"), "Listen address; the default is for this host only.")
    address: Host = setting(Host(""), "Address for others. Empty: bind, or this host's name if bind is any.")
    data_port: Port = setting(Port(7080), "Pushes and reads. 0: any free port.")
    http_port: Port = setting(Port(7081), "Health, status, metrics. 0: any free port.")
    masters: tuple[Address, ...] = setting((), "HTTP endpoints of the masters. Required.")
    directories: tuple[DirectorySetting, ...] = setting((), "Storage directories. Required.")
    return_grace: Duration = duration("30s", "How long a commit waits for a lost worker.")
    copy_grace: Duration = duration(
        "5s",
        "The same if another copy is sealed, at most 5m; from its last heartbeat if it is unreachable. Later copies "
        "are sealed when it returns.",
    )
    restore_after: Duration = duration(
        "10m",
        "Copies of a worker lost this long are made again. 0: never.",
    )
    restore_rate: Size = size("64MiB", "Bytes a second that a worker sends, or receives, for these.")
    drain_timeout: Duration = duration("60s", "After SIGTERM, time to hand open data over. 0: none.")
    memory: Size = size("256MiB", "All buffers; beyond it pushes wait.")
    soft_split: Size = size("1GiB", "A partition this large asks writers to move on.")
    hard_split: Size = size("2GiB", "A partition this large refuses data.")
    disk_reserve: Size = size("5GiB", "With less free (or a tenth of the capacity, if less) partitions split.")

    def __post_init__(self) -> None:
        if problem := tags_problem(self.tags):
            raise ConfigError(problem)
        if self.copy_grace.ns > _COPY_GRACE_NS_MAX:
            raise ConfigError("copy_grace must be at most 5m: commits, and the jobs that need them, wait for it")
        if not self.restore_rate:
            raise ConfigError('restore_rate is 0: to copy nothing, set restore_after = "0s"')


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsSection:
    """Store of the DFS tier; the same on workers and masters."""

    url: str = setting(
        "", "/path (not in worker.directories), s3://bucket/prefix or hdfs://host:port/path. Empty: no DFS tier."
    )
    endpoint: str = setting("", "S3: as in http://host:9000. Empty: AWS_ENDPOINT_URL or Amazon's.")
    region: str = setting("", "S3. Empty: from the AWS environment.")
    access_key: str = setting("", "S3: key id. Empty: the usual AWS credentials.", secret="value")
    secret_key_file: str = setting("", "S3: file with the secret of access_key.", secret="file")
    connect_timeout: Duration = duration("5s", "S3: for a connection attempt.")
    call_timeout: Duration = duration("30s", "For a request; uploads get 1 s more per MiB.")
    retry_window: Duration = duration("30s", "How long failed requests are retried.")
    part_bytes: Size = size("8MiB", "Part of an upload; each takes this memory, or twice.")
    verify: Literal["ends", "whole"] = setting(
        "ends", "Check before the local file goes: length and both ends, or every byte at twice the cost."
    )
    clean_every: Duration = duration("5m", "How often the leader looks for dropped files.")
    clean_grace: Duration = duration("10m", "They are deleted this much later; live workers delete sooner.")

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
    """Which directory gets a file, and which files move; for workers (storage.md)."""

    order: tuple[Literal["MEMORY", "SSD", "HDD", "DFS"], ...] = setting(
        ("MEMORY", "SSD", "HDD", "DFS"),
        "Tiers from the fastest; files move down.",
    )
    allocator: Literal["greedy", "maxfree", "roundrobin"] = setting(
        "maxfree", "Directory in a tier: first that fits (greedy), emptiest, or in turn."
    )
    reviewer: Literal["accepting", "probabilistic"] = setting(
        "probabilistic",
        "probabilistic: fewer new files as room falls.",
    )
    reviewer_hard: Size = size("5GiB", "With less free (or a tenth of the capacity, if less) no new file.")
    reviewer_soft: Size = size("20GiB", "With more free (or four tenths, if less) every new file.")
    memory_annotator: Literal["largest", "lru", "lrfu"] = setting(
        "largest", "What leaves MEMORY first: largest, lru or lrfu."
    )
    annotator: Literal["largest", "lru", "lrfu"] = setting("lru", "What leaves a disk first: the same.")
    lrfu_step: Ratio = setting(Ratio(0.25), "lrfu: 0 counts reads, 1 is close to lru.")
    lrfu_attenuation: float = setting(2.0, "lrfu: each later read fades a read by attenuation ^ -step; at least 2.")
    high_watermark: Ratio = setting(Ratio(0.95), "A tier this full moves its coldest files down.")
    low_watermark: Ratio = setting(
        Ratio(0.7),
        "Where moving stops; lower for what faster tiers keep free.",
    )
    free_ahead: Size = size("0", "Bytes to free beyond a request; 0: none.")
    align: bool = setting(False, "Swap hot files below with cold ones above.")
    promote: bool = setting(False, "Move hot files up if there is room.")
    range: int = setting(100, "Files that a round of moves considers on each side.")
    promote_quota: Ratio = setting(Ratio(0.9), "Promotion stops at this share of a tier.")
    backoff: Literal["any", "directory"] = setting(
        "directory", "Swaps and promotions avoid directories in use; any: wait while any is."
    )
    cooldown: Duration = duration("10s", "In use means a stream within this time.")

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
    """A worker's checks of its directories."""

    interval: Duration = duration("10s", "How often each is written, synced and read back.")
    timeout: Duration = duration("30s", "A longer check fails: the device hangs.")
    errors: int = setting(3, "Failed writes, syncs or checks in the window that make it critical.")
    error_window: Duration = duration("60s", "The window; to recover, it needs one without an error.")
    good_probes: int = setting(3, "Successful checks in a row before it is used again.")
    average_window: Duration = duration("10s", "Window of mean write and read times.")

    def __post_init__(self) -> None:
        if not min(self.interval.ns, self.timeout.ns, self.error_window.ns, self.average_window.ns):
            raise ConfigError("interval, timeout, error_window and average_window must be more than 0")
        if not 1 <= self.errors <= ERRORS_MAX or not self.good_probes:
            raise ConfigError(f"errors must be 1 to {ERRORS_MAX}, good_probes at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """One user's limits."""

    user: str = required("User's name.")
    bytes: Size = size("0", "With all copies; 0: unlimited.")
    files: int = setting(0, "0: unlimited.")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSection:
    """At its limit an application or user gets no new shuffle. For masters, the same on all; 0: unlimited."""

    application_bytes: Size = size("0", "Per application, with all copies.")
    application_files: int = setting(0, "Per application, open and sealed.")
    user_bytes: Size = size("0", "Per user.")
    user_files: int = setting(0, "Per user.")
    users: tuple[UserQuota, ...] = setting((), "Users with other limits.")

    def __post_init__(self) -> None:
        names = [each.user for each in self.users]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a user twice: {', '.join(sorted(names))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """The same on all servers (docs/operate/security.md)."""

    enabled: bool = setting(
        False, "Every request needs TLS (with the next three keys) and a token; faults are refused."
    )
    certificate: str = setting("", "PEM file with this server's certificate and intermediate ones.")
    key_file: str = setting("", "PEM file with its private key, mode 0600.", secret="file")
    ca: str = setting("", "PEM file with the servers' CA.")
    token_life: Duration = duration("7d", "Life of application tokens, renewed at half of it.")

    def __post_init__(self) -> None:
        if self.enabled:
            for key in ("certificate", "key_file", "ca"):
                if not getattr(self, key).startswith("/"):
                    raise ConfigError(f"is enabled and needs {key}: the absolute path of a PEM file")
        if self.token_life.seconds < TOKEN_LIFE_SECONDS_LEAST:
            raise ConfigError(f"token_life is at least {TOKEN_LIFE_SECONDS_LEAST} s: renewals need some time")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """Logs on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", "Lowest level logged.")
    format: Literal["text", "json"] = setting("text", "json: one object a line.")


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
shown_tables = settings.shown_tables


def marked_in(config: Config) -> list[settings.MarkedKey]:
    """What of a configuration is secret."""
    return settings.marked_in(Config, asdict(config))


def marked_in_text(text: str, environ: Mapping[str, str]) -> list[settings.MarkedKey]:
    """What of a text for `parse` is secret, also where `parse` refuses it."""
    return settings.marked_in_text(Config, text, environ, ENVIRONMENT_PREFIX)


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
