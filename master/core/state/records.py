"""The records of the replicated state and the answer to a command: immutable, replaced and never edited.

Rules: no behaviour beyond one record; times are cluster time, milliseconds since 1970, taken from
commands. A snapshot may therefore be encoded from shallow copies of the tables while commands go on.
Used by all of master/core; encoded by master/machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.common.worker_states import ALIVE, DRAINING, GONE, LOST
from holdfast.master.core.state.moves import moved_count

#: `kind` of a shuffle whose partitions are files of one map each (PARTITION_KIND_MAP of the wire).
KIND_MAP = 1
KIND_REDUCE = 2
#: What the number of a worker to avoid occupies.
AVOID_BYTES = 36


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command came to. `value` and `subject` mean what the command's apply function says."""

    status: int = Status.OK
    detail: str = ""
    value: int = 0
    subject: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the command did, or had already done, what it asks for."""
        return self.status == Status.OK


@dataclass(frozen=True, slots=True)
class Directory:
    """A storage directory of a worker, as named at registration. `capacity_bytes` 0 is all of its file system."""

    id: bytes
    path: str
    tier: str
    capacity_bytes: int

    @property
    def in_memory(self) -> bool:
        """Whether it is new after each boot of the machine: nothing that is SYNCED ever lies there."""
        return self.tier == "MEMORY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that ever registered, by its latest incarnation.

    Places in the log: `started_index` of this incarnation; `kept_index` of the first of the latest starts that all kept
    every directory but those of tier MEMORY, which are new after each boot; `boot_index` of the first of those that
    kept these, too, and were in this boot of the machine. `place` is where the
    leader found it to be, /region/rack; `draining_ms` since when it takes nothing new, 0 if it does; `machine_id` what
    the machine is called that it runs on, empty if it has not said; `tags` are the pools it is
    in; `leaves_ms` when its host goes away, 0 if nobody gave a time; `gone` says of one that is not alive that nobody
    needs what it kept: it had drained until it kept nothing, or a person removed it.
    """

    id: int
    uid: bytes
    name: str
    incarnation: int
    host: str
    rack: str
    data_address: str
    http_address: str
    directories: tuple[Directory, ...]
    boot_id: str
    version: str
    alive: bool
    changed_ms: int
    started_index: int
    boot_index: int
    kept_index: int
    place: str = ""
    draining_ms: int = 0
    machine_id: str = ""
    tags: tuple[str, ...] = ()
    leaves_ms: int = 0
    gone: bool = False

    @property
    def state(self) -> str:
        """The name of its state."""
        if self.alive:
            return DRAINING if self.draining_ms else ALIVE
        return GONE if self.gone else LOST


@dataclass(frozen=True, slots=True)
class Lease:
    """One holder's claim on an application. `marked_ms` is when it was found expired, 0 while it is not."""

    holder: bytes
    lease_ms: int
    marked_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One run of an application; it lives while it has a lease. `serial` grows with each application made, `spark_id`
    is what Spark calls it, if it is Spark's, `tags` what workers of its shuffles need, `ui_url` where its own pages
    are: an address of http or https, or empty."""

    instance: bytes
    name: str
    user: str
    created_ms: int
    serial: int
    leases: tuple[Lease, ...]
    spark_id: str = ""
    tags: tuple[str, ...] = ()
    ui_url: str = ""

    def lease(self, holder: bytes) -> Lease | None:
        """Return this holder's lease, if it has one."""
        return next((lease for lease in self.leases if lease.holder == holder), None)

    @property
    def silent(self) -> bool:
        """Whether all its leases are expired."""
        return all(lease.marked_ms for lease in self.leases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """One generation of a shuffle. It is committed when `committed_ms` is not 0; then `winners` is final.

    `assignment`, `winners` and `manifest` (of REDUCE) are arrays of protocol.md; `winners_digest` is over the
    content, so that two encodings of the same winners are equal. `copies_wanted` was asked for, `copies` were placed,
    `ack_copies` hold a push before it is acknowledged; which copies are `incomplete` is packed by state/incomplete.py.
    `moves` are the epochs of REDUCE partitions above the first, as state/moves.py packs them. `created_index` is the
    place in the log where epoch 0 was placed. Of what was committed: how many epochs are lost, how many have fewer
    copies than wanted (of MAP partitions each map's winner has one), how many of these have a copy that is sealed when
    its worker is back (`awaited`; the others stay so), of how many copies no worker said anything (`unsealed`: they are
    asked for again then), and how often the manifest was replaced since the commit. `avoid` are the workers that get
    something of it only where others are not enough: readers of the generation before could not use them.
    """

    key: ShuffleKey
    kind: int
    partitions: int
    maps: int
    copies_wanted: int
    copies: int
    ack: int
    assignment: bytes
    created_ms: int
    created_index: int
    winners: bytes = b""
    winners_digest: bytes = b""
    data_bytes: int = 0
    committed_ms: int = 0
    manifest: bytes = b""
    moves: tuple[bytes, ...] = ()
    lost: int = 0
    under_replicated: int = 0
    awaited: int = 0
    unsealed: int = 0
    manifest_version: int = 0
    avoid: tuple[int, ...] = ()
    ack_copies: int = 0
    incomplete: bytes = b""

    def misfit(self, maps: int, partitions: int) -> str:
        """A sentence if winners of so many maps and partitions are not of this shuffle, else ""."""
        if partitions == self.partitions and self.maps in (0, maps):
            return ""
        return (
            f"winners of {maps} maps and {partitions} partitions do not fit {self.key}, registered with {self.maps} "
            f"(0: not known) and {self.partitions}"
        )

    def open_since(self, index: int) -> bool:
        """Whether it has REDUCE partitions, is not committed, and was there at this place in the log."""
        return self.kind == KIND_REDUCE and not self.committed_ms and self.created_index <= index

    @property
    def moved(self) -> int:
        """How many epochs there are above the first of each partition."""
        return moved_count(self.moves, self.copies_wanted)

    @property
    def array_bytes(self) -> int:
        """What its arrays occupy in memory and in snapshots."""
        arrays = (self.assignment, self.winners, self.manifest, self.incomplete, *self.moves)
        return sum(map(len, arrays)) + AVOID_BYTES * len(self.avoid)


@dataclass(frozen=True, slots=True)
class Upload:
    """Numbered parts of one array that is too large for a single command; b"" where a part is still missing."""

    parts: tuple[bytes, ...]
    started_ms: int

    @property
    def array_bytes(self) -> int:
        """What the parts that are here occupy."""
        return sum(map(len, self.parts))
