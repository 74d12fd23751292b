"""What the doctor gathers before it judges: values as they were found, without any opinion.

Filled by tools/doctor, judged by the modules beside this one; tests make up what cannot be broken for real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

#: free; ours: the very server that the configuration describes; held by another; or why listening there is impossible.
PortState = Literal["free", "ours", "held", "forbidden", "elsewhere", "unusable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """This machine and this process."""

    name: str
    #: of its interfaces
    addresses: frozenset[str] = frozenset()
    optimised: bool = False
    #: the hard limit, which servers raise theirs to; of the running server where there is one
    nofile: int = 1 << 20
    nofile_of: str = "this shell"
    #: the hard limit of the host's first process, from which all others have theirs
    nofile_first: int = 1 << 20
    memory_bytes: int = 1 << 40
    #: what set that bound: the machine or a control group
    memory_of: str = "this machine has"
    outgoing: tuple[int, int] = (32_768, 60_999)
    #: libraries that are installed, and versions of formats, by name
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFact:
    """One port that a server of this file listens on."""

    setting: str
    address: str
    port: int
    state: PortState
    #: its holder, or why it cannot be used
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFact:
    """What a host of the configuration is here; no addresses if it is not known."""

    host: str
    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFact:
    """A directory of the configuration, as far as it is there."""

    setting: str
    path: str
    #: MEMORY, SSD or HDD; "" for a master's
    tier: str = ""
    capacity_bytes: int = 0
    #: why it cannot be made or written; "" if it can
    unusable: str = ""
    #: others of this machine may write there
    open_to_all: bool = False
    device: int = 0
    file_system: str = ""
    #: the mount point of /etc/fstab above it that is not mounted
    not_mounted: str = ""
    size_bytes: int = 0
    free_bytes: int = 0
    inodes: int = 0
    inodes_free: int = 0
    #: median time of writing 4 KiB and fdatasync; None if it could not be measured
    sync_us: float | None = None
    #: its recorded owner; "" if unknown
    cluster_id: str = ""
    worker_name: str = ""
    damaged: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFact:
    """The file of the masters' secret."""

    path: str
    error: str = ""
    length: int = 0
    open_to_others: bool = False
    #: what common/agreement.py makes of it, and of the other one that is taken while the secret is changed
    digest: str = ""
    other_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFact:
    """What became of a server's certificate, key and CA where they were used."""

    #: files with secrets that others of this machine may read
    open_files: tuple[str, ...] = ()
    #: why a file cannot be read
    error: str = ""
    #: why certificate and key do not go together
    no_pair: str = ""
    #: why clients with the CA refuse the certificate
    refused: str = ""
    #: names by which others reach the server and that the certificate does not have
    names_missing: tuple[str, ...] = ()
    #: seconds since 1970; 0 if it is not known
    ends_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFact:
    """What a client here shows."""

    path: str
    error: str = ""
    ends_s: float = 0.0
    open_to_others: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFact:
    """The two files that Spark's settings name, as this user finds them; "" for a path that is not set."""

    ca: str
    token: str
    #: why they cannot be used; "" if they can
    ca_error: str = ""
    token_error: str = ""
    #: when the last certificate of the CA ends; 0 if it is not known
    ca_ends_s: float = 0.0
    #: of the token: a name of TokenKind in small letters
    kind: str = ""
    ends_s: float = 0.0
    open_to_others: bool = False
    #: how the masters that the settings name take both
    welcomes: tuple[WelcomeFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a clock is ahead of this host's, and how exactly that is known, in seconds."""

    ahead: float
    within: float


class SilentPort(NamedTuple):
    """A port that cannot be reached: what it is, why, and whether its host itself refused: nothing listens there."""

    what: str
    reason: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFact:
    """One master as it answers here."""

    address: str
    #: "" if it answered
    error: str = ""
    #: the host is there and refuses: nothing listens, or not yet
    refused: bool = False
    #: it speaks TLS, and did not answer
    speaks_tls: bool = False
    name: str = ""
    cluster_id: str = ""
    leads: bool = False
    version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    #: digests of what masters must have the same, by name; empty from a release that does not send them
    settings: Mapping[str, str] = field(default_factory=dict)
    #: names and HTTP addresses of the masters in its view
    peers: tuple[tuple[str, str], ...] = ()
    dfs_url: str = ""
    clock: Clock | None = None
    faults: tuple[str, ...] = ()
    #: epochs of committed shuffles with fewer copies than were asked for
    under_replicated: int = 0
    #: of those, which are sealed once more when a worker is back
    awaited: int = 0
    #: not in the request, another master named it
    only_named: bool = False
    #: other ports of it that cannot be reached
    silent: tuple[SilentPort, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WelcomeFact:
    """How a master takes what the server of a file, or a job, would show it."""

    address: str
    #: it has answered
    let_in: bool = False
    #: why it refuses a token made with the file's secret, or the job's token
    secret_refused: str = ""
    #: why its certificate is not believed with the CA of either
    certificate_refused: str = ""
    #: one of the two speaks TLS, and the other does not: whether it is the master
    only_master_tls: bool = False
    only_file_tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFact:
    """One worker as the masters list it, and as it answers here."""

    name: str
    host: str
    data_address: str
    http_address: str
    state: str
    version: str = ""
    dfs_url: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None
    faults: tuple[str, ...] = ()
    #: ports of it that cannot be reached
    silent: tuple[SilentPort, ...] = ()
    #: why its certificate is not believed
    certificate_refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What answers at the masters' addresses."""

    masters: tuple[MasterFact, ...] = ()
    workers: tuple[WorkerFact, ...] = ()
    #: why the workers are not known
    workers_error: str = ""
    #: the cluster is expected to run: from --masters or the variable, not just from a file of a server
    expected: bool = True
    #: a master speaks TLS
    secured: bool = False
    #: kind of the token that was shown, where it lets see a part only; else ""
    seen_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarFact:
    """One entry of a class path."""

    path: str
    setting: str
    #: on a store that is not looked into here, such as hdfs://
    remote: bool = False
    exists: bool = False
    has_plugin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFact:
    """An interpreter that Spark would start."""

    command: str
    setting: str
    #: "3.11"; "" if it does not run
    version: str = ""
    error: str = ""
    has_holdfast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFact:
    """Settings of Spark, and what they meet on this host."""

    source: str
    settings: Mapping[str, str]
    jars: tuple[JarFact, ...] = ()
    #: version of the Spark that is here, "4.1.2"; "" if none is found
    spark: str = ""
    #: name of the jar for it from this package's sources
    jar_name: str = ""
    #: major version of Java; 0 if it is missing
    java: int = 0
    java_command: str = "java"
    driver: PythonFact | None = None
    workers: PythonFact | None = None
