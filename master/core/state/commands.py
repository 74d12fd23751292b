"""The commands that masters replicate, as plain values; master/state_machine/codec.py gives them their bytes.

Rules: a command carries every choice and every time that its apply needs, so that all masters do the same with it.
Sizes are checked by the leader before it proposes and again by apply, which answers and never raises.
Made by master/api and master/control, applied by master/core/state/apply.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.ids import ShuffleKey, StateId
from holdfast.master.core.state.records import Directory


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterWorker:
    """A worker start. Answer: value = worker number, or the lowest accepted incarnation with INCARNATION_TOO_LOW."""

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
    #: of the machine it runs on; empty: not known
    machine_id: str = ""
    #: the pools it is in
    tags: tuple[str, ...] = ()
    #: /region/rack, as the leader resolved it
    place: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """One start of a worker."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class SetWorkersAlive:
    """Workers found lost, or back, and then those of lost ones that are not needed any more; those that have another
    incarnation by now are left alone. Answer: value = how many changed."""

    alive: bool
    workers: tuple[WorkerRef, ...]
    gone: tuple[WorkerRef, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where a worker is: /region/rack."""

    worker: int
    place: str


@dataclass(frozen=True, slots=True)
class PlaceWorkers:
    """Workers that were found to be elsewhere. Answer: value = how many changed."""

    workers: tuple[WorkerPlace, ...]


@dataclass(frozen=True, slots=True)
class BeginState:
    """The state is called `state` from here on, unless it got another name behind place `after` of the log."""

    state: StateId
    after: int


@dataclass(frozen=True, slots=True)
class SetWorkersDraining:
    """These starts of workers take nothing new from now on, or do again. Answer: value = how many changed."""

    draining: bool
    workers: tuple[WorkerRef, ...]
    #: when their hosts go away; 0: nothing is said of that
    leaves_ms: int = 0


@dataclass(frozen=True, slots=True)
class RegisterApplication:
    """Create an application with its first lease; nothing else creates one."""

    instance: bytes
    name: str
    user: str
    lease_ms: int
    holder: bytes
    spark_id: str = ""
    tags: tuple[str, ...] = ()
    ui_url: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """One more lease. With an empty instance: on the newest of that name. Answer: subject = instance."""

    instance: bytes
    name: str
    lease_ms: int
    holder: bytes


@dataclass(frozen=True, slots=True)
class Detach:
    """End a lease; the application is dropped with its last one. Answer: value = shuffles dropped."""

    instance: bytes
    holder: bytes


@dataclass(frozen=True, slots=True)
class LeaseRef:
    """One holder's lease on one application."""

    instance: bytes
    holder: bytes


@dataclass(frozen=True, slots=True)
class MarkLeases:
    """Mark leases as expired, or take the mark back after a renewal."""

    marked: bool
    leases: tuple[LeaseRef, ...]


@dataclass(frozen=True, slots=True)
class EndLeases:
    """End those of these leases that are still marked. Answer: value = dropped applications."""

    leases: tuple[LeaseRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterShuffle:
    """Open a generation with its complete assignment, given or sent as the parts of `upload`.

    `lost_before`: the leader found that the generation before, which may be open, has lost data. `avoid`: see Shuffle.
    """

    key: ShuffleKey
    kind: int
    partitions: int
    maps: int
    copies_wanted: int
    copies: int
    ack: int
    assignment: bytes
    upload: bytes = b""
    lost_before: bool = False
    avoid: tuple[int, ...] = ()
    #: 0: all
    ack_copies: int = 0

    @property
    def acknowledging(self) -> int:
        """How many copies hold a push before it is acknowledged."""
        return self.ack_copies or self.copies_wanted


@dataclass(frozen=True, slots=True)
class Revive:
    """New places for partitions of one shuffle: `rows` are those of state/moves.py, each naming the epoch that failed.
    A row whose epoch is not the newest any more makes nothing. Answer: value = epochs made."""

    key: ShuffleKey
    rows: bytes


@dataclass(frozen=True, slots=True)
class MarkIncomplete:
    """Copies of open epochs that lack something that was acknowledged: `rows` are those of state/incomplete.py. Nothing
    is marked where an epoch would have fewer others than acknowledge. Answer: value = copies marked."""

    key: ShuffleKey
    rows: bytes


@dataclass(frozen=True, slots=True)
class MoveEpochs:
    """New places for the epochs of workers that are lost or have started again; committed or dropped ones are skipped.
    Answer: value = epochs made."""

    revives: tuple[Revive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The final word on a generation. Winners and, for REDUCE partitions, the manifest are given, or were sent one
    after the other as the parts of `upload`, the last `manifest_bytes` being the manifest. It names the first `epochs`
    epochs that the generation ever had, and says how many of them are lost or under-replicated, how many of the latter
    are sealed once more when a worker is back, and of how many copies no worker said anything. `incomplete` copies were
    marked when it was made.
    """

    key: ShuffleKey
    winners: bytes
    upload: bytes
    winners_digest: bytes
    maps: int
    partitions: int
    data_bytes: int
    manifest: bytes = b""
    manifest_bytes: int = 0
    epochs: int = 0
    lost: int = 0
    under_replicated: int = 0
    awaited: int = 0
    unsealed: int = 0
    incomplete: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCopies:
    """The manifest of a committed generation with copies that were sealed after the commit, given or sent as the parts
    of `upload`. It applies to the manifest of `manifest_version` alone: CONFLICT if that was replaced meanwhile.
    """

    key: ShuffleKey
    manifest_version: int
    manifest: bytes
    upload: bytes
    data_bytes: int
    lost: int
    under_replicated: int
    awaited: int
    unsealed: int


@dataclass(frozen=True, slots=True)
class Unregister:
    """Drop the generations of a shuffle up to and including the one named. Answer: value = how many."""

    key: ShuffleKey


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop an application, or one shuffle of it. Answer: value = shuffles dropped, subject = u32 little-endian
    applications dropped. An unknown instance is remembered as dropped."""

    instance: bytes
    one_shuffle: bool
    shuffle: int


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` of `parts` of the array `upload`."""

    upload: bytes
    number: int
    parts: int
    data: bytes


Body = (
    RegisterWorker
    | SetWorkersAlive
    | PlaceWorkers
    | SetWorkersDraining
    | BeginState
    | RegisterApplication
    | Attach
    | Detach
    | MarkLeases
    | EndLeases
    | RegisterShuffle
    | Revive
    | MarkIncomplete
    | MoveEpochs
    | Commit
    | AddCopies
    | Unregister
    | Forget
    | Part
)


@dataclass(frozen=True, slots=True)
class Command:
    """A body and the call that asked for it. An empty client means that no answer is remembered.

    `drawn_index` is the Raft index the client had seen when it drew its id; `digest` covers method and request; its
    calls below `open_from` are over.
    """

    body: Body
    client: bytes = b""
    number: int = 0
    drawn_index: int = 0
    digest: bytes = b""
    open_from: int = 0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one place of the log holds: commands that the leader had in hand together, and its time (ms since 1970)."""

    time_ms: int
    commands: tuple[Command, ...]
