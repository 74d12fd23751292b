"""What the page shows, as plain values: made by gather.py and summary.py, laid out by the templates. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from holdfast.common.ids import shuffle_name
from holdfast.common.sizes import counted, fewer_copies
from holdfast.master.core.events import Event
from holdfast.master.core.rates import Rates
from holdfast.master.core.readers import HostReader
from holdfast.master.core.retention import Retention
from holdfast.master.core.shuffle_sums import HostShare, ShuffleSums
from holdfast.master.core.state.records import KIND_REDUCE, Application, Shuffle, Worker
from holdfast.master.placement.groups import Adhering
from holdfast.master.raft.node import RaftStatus
from holdfast.master.web.drawings import Curve, Histogram, curve_of
from holdfast.master.web.view import Cut, View, address_of


@dataclass(frozen=True, slots=True)
class MasterRow:
    """One master. `lag`: entries it is behind, None where this master cannot know."""

    name: str
    http: str
    own: bool
    leads: bool
    connected: bool
    lag: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Own:
    """This master. `serving`: it leads, and could prove it."""

    name: str
    cluster: str
    version: str
    status: RaftStatus
    serving: bool
    leader_http: str
    masters: tuple[MasterRow, ...]
    faults: tuple[str, ...]
    workers: int
    workers_alive: int
    applications: int
    shuffles: int
    now_ms: int


@dataclass(slots=True)
class TierUsage:
    """Bytes of one tier, here or there."""

    used: int = 0
    free: int = 0
    spots: int = 0

    def add(self, used: int, free: int = 0, spots: int = 1) -> None:
        """Add what one directory has, or several."""
        self.used += used
        self.free += free
        self.spots += spots

    @property
    def total(self) -> int:
        """What there is, taken or not."""
        return self.used + self.free


def stored(tiers: Mapping[str, TierUsage]) -> TierUsage:
    """All tiers that have an end together."""
    usages = [usage for tier, usage in tiers.items() if usage.total and tier != "DFS"]
    return TierUsage(sum(usage.used for usage in usages), sum(usage.free for usage in usages))


@dataclass(frozen=True, slots=True)
class DiskRow:
    """A directory, or with `url` as its path the DFS, of a worker."""

    path: str
    tier: str
    state: str
    used: int
    free: int
    problem: str
    full: str
    known: bool = True


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker. `seen_ms` is -1 before its first heartbeat to this leader."""

    worker: Worker
    rack: str
    seen_ms: int
    memory: int
    files: int
    rates: Rates
    disks: tuple[DiskRow, ...]
    drain: str = ""


@dataclass(slots=True)
class GroupRow:
    """One rack or one host: its workers in sums."""

    name: str
    workers: int = 0
    alive: int = 0
    draining: int = 0
    lost: int = 0
    ill: int = 0
    rates: Rates = Rates()
    tiers: dict[str, TierUsage] = field(default_factory=lambda: defaultdict(TierUsage))

    @property
    def stored(self) -> TierUsage:
        """All tiers that have an end together."""
        return stored(self.tiers)

    @property
    def well(self) -> bool:
        """Whether nobody has to look at its workers."""
        return not (self.draining or self.lost or self.ill)


@dataclass(frozen=True, slots=True)
class ShuffleRow:
    """One generation of a shuffle. `held`: bytes that workers reported while it is open; `tags`: what workers need to
    be given anything of it."""

    application: Application
    shuffle: Shuffle
    held: int
    sealing: tuple[int, int] | None
    waits_for: tuple[str, ...]
    retention: Retention
    tags: frozenset[str] = frozenset()

    @property
    def number(self) -> str:
        """The part of its name after the application."""
        name = self.application.name
        return shuffle_name(name, *self.shuffle.key.number).removeprefix(name)

    @property
    def address(self) -> str:
        """Of its own page."""
        return address_of("shuffles", self.application.instance.hex(), *self.shuffle.key.number)

    @property
    def moves(self) -> int:
        """How many epochs were made above the first of a partition."""
        return self.shuffle.moved

    @property
    def epochs(self) -> int:
        """How many epochs it has, 0 of MAP partitions."""
        return self.shuffle.partitions + self.moves if self.shuffle.kind == KIND_REDUCE else 0

    @property
    def result(self) -> tuple[str, str, str]:
        """What its commit came to: a word, its mood, and what is missing."""
        shuffle = self.shuffle
        if shuffle.lost:
            return "data lost", "bad", f"{counted(shuffle.lost, 'epoch')} lost"
        if shuffle.under_replicated:
            return "committed", "warn", fewer_copies(shuffle.under_replicated, shuffle.awaited)
        return "committed", "good", ""


@dataclass(frozen=True, slots=True)
class ShuffleDetail:
    """What is in one shuffle. `hosts` are those with most bytes, of `hosts_total`; `workers` are theirs, by number;
    `histogram` is None while it is open; `failures` are sentences; `readers` asked last for it, of `readers_total`."""

    sums: ShuffleSums
    hosts: tuple[HostShare, ...]
    hosts_total: int
    workers: Mapping[int, Worker]
    histogram: Histogram | None
    skew: float | None
    failures: tuple[str, ...]
    readers: tuple[HostReader, ...] = ()
    readers_total: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationDetail:
    """An application; `held`: bytes on living workers, second copies counted."""

    application: Application
    retention: Retention
    held: int
    files: int


@dataclass(frozen=True, slots=True)
class ShuffleCounts:
    """Of all shuffles."""

    open: int = 0
    committed: int = 0
    lost: int = 0
    under_replicated: int = 0
    awaited: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem to look at."""

    text: str
    grave: bool = True


@dataclass(frozen=True, slots=True)
class FleetPicture:
    """The workers, all in sums and some one by one."""

    racks: tuple[GroupRow, ...]
    #: of the hosts of `rows`, by name, those that have several workers
    hosts: Mapping[str, GroupRow]
    rows: tuple[WorkerRow, ...]
    cut: Cut
    tiers: dict[str, TierUsage]
    rates: Rates
    alive: int
    draining: int
    lost: int
    problems: tuple[Problem, ...]

    @property
    def known(self) -> int:
        """Workers, alive or not."""
        return sum(rack.workers for rack in self.racks)

    @property
    def missing(self) -> str:
        """Those that are not simply alive, in words."""
        counts = ((self.lost, "lost"), (self.draining, "draining"))
        return ", ".join(f"{number} {word}" for number, word in counts if number)

    @property
    def disks(self) -> dict[str, TierUsage]:
        """Tiers that have an end."""
        return {tier: usage for tier, usage in self.tiers.items() if usage.total and tier != "DFS"}

    @property
    def stored(self) -> TierUsage:
        """All of those together."""
        return stored(self.tiers)

    @property
    def overview(self) -> bool:
        """Whether the racks are to be shown in a line each: their workers do not fit one page."""
        return self.cut.pages > 1 and len(self.racks) > 1

    @property
    def groups(self) -> Iterator[tuple[GroupRow, list[tuple[GroupRow | None, list[WorkerRow]]]]]:
        """The workers of this page by rack, and there by host; None for a host with a single worker."""
        racks = {rack.name: rack for rack in self.racks}
        for name, rows in groupby(self.rows, lambda row: row.rack):
            hosts = groupby(rows, lambda row: row.worker.host if row.worker.host in self.hosts else "")
            yield racks[name], [(self.hosts.get(host), list(each)) for host, each in hosts]


@dataclass(frozen=True, slots=True)
class Pace:
    """Bytes a second of the last minutes, oldest first, `every` seconds apart."""

    every: int
    samples: tuple[Rates, ...] = ()

    @property
    def push(self) -> Curve | None:
        """What was pushed."""
        return curve_of([each.push for each in self.samples], self.every)

    @property
    def fetch(self) -> Curve | None:
        """What was fetched."""
        return curve_of([each.fetch for each in self.samples], self.every)


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it. On a follower `fleet` is None: only the leader hears workers."""

    view: View
    own: Own
    events: tuple[Event, ...]
    fleet: FleetPicture | None = None
    shuffles: tuple[ShuffleRow, ...] = ()
    shuffle_cut: Cut = Cut(1, 1, 0, 0, 0)
    counts: ShuffleCounts = ShuffleCounts()
    #: open partitions
    adhering: Adhering = Adhering()
    #: applications whose leases are all over
    silent: int = 0
    application: str = ""
    #: what is short of copies because workers are gone, and what is done about it
    short: str = ""
    #: epochs of open shuffles that are short of copies
    open_short: int = 0
    pace: Pace = Pace(5)
    #: of the workers that the page is about, by name
    trend: tuple[tuple[str, Curve | None], ...] = ()
    #: on pages about one thing: that there is none, in a sentence, or what there is
    missing: str = ""
    detail: ShuffleDetail | ApplicationDetail | None = None
    #: where Spark's history server shows the application of this page; "" where that is not known
    history_url: str = ""
