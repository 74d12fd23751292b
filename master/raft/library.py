"""The seam to pysyncobj 0.3.17: a private copy of its Raft module with our parts in it, and the overrides.

Rules: nothing of the installed package is changed for others (the module is executed a second time under our own
globals); clock, random, journal, pickle and poller are replaced where the module looks them up; every override
names the row of raft.md it answers. `Hardened` is mixed in front of the library's `SyncObj`; its attributes
beginning `_SyncObj__` are the library's private ones. Called by `member` alone.
"""

from __future__ import annotations

import functools
import importlib.util
import socket
import zlib
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from random import Random
from types import CodeType
from typing import Any, Protocol

from holdfast.master.raft.codec import MAX_ENTRY_BYTES
from holdfast.master.raft.errors import RaftError, SettingsRefused
from holdfast.master.raft.journal import Journal

PINNED = "0.3.17"
FOLLOWER, CANDIDATE, LEADER = 0, 1, 2


class NoPickle:
    """Stands where the library would pickle: whatever gets there is a bug, and ends the node."""

    def __getattr__(self, name: str) -> Any:
        raise RaftError(f"the Raft library asked for pickle.{name}; no pickle is allowed here")


class NoPoller:
    """The library polls no sockets; the node does."""

    def poll(self, timeout: float) -> None:
        """Nothing to wait for."""


def load(clock: Callable[[], float], rng: Random) -> Any:
    """A private copy of `pysyncobj.syncobj` that reads this clock and this random.

    Raises:
        SettingsRefused: another version is installed; every override here was read against the pinned one.
    """
    own = socket.inet_ntop
    try:
        from pysyncobj.version import VERSION
    finally:
        socket.inet_ntop = own  # the package puts one that needs Windows there

    if VERSION != PINNED:
        raise SettingsRefused(f"pysyncobj {VERSION} is installed; this build works with {PINNED} alone")
    spec, code = _source()
    module: Any = importlib.util.module_from_spec(spec)
    exec(code, module.__dict__)
    module.monotonicTime = clock
    module.random = rng
    return module


@functools.cache
def _source() -> tuple[ModuleSpec, CodeType]:
    """Where the library's Raft module is, and its code."""
    spec = importlib.util.find_spec("pysyncobj.syncobj")
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise SettingsRefused("pysyncobj.syncobj cannot be loaded")
    code = spec.loader.get_code(spec.name)
    if code is None:
        raise SettingsRefused("pysyncobj.syncobj has no code")
    return spec, code


class LibraryHost(Protocol):
    """What the overrides call back: implemented by `member.RaftMember`."""

    def apply_committed(self) -> None:
        """Apply committed entries, a slice at a time."""

    def replicate(self, heartbeat: bool) -> None:
        """Send entries, snapshot parts and, if asked, heartbeats to every peer."""

    def take_proposals(self) -> None:
        """Append waiting commands to the log if this node serves."""

    def compact(self) -> None:
        """Begin or finish a snapshot."""

    def state_changed(self) -> None:
        """The role changed."""


class Hardened:
    """Overrides of the library's `SyncObj`, and names for the private state this package reads and sets."""

    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftState: int
    _SyncObj__raftLeader: Any
    _SyncObj__raftLastApplied: int
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftElectionDeadline: float
    _SyncObj__newAppendEntriesTime: float
    _SyncObj__raftNextIndex: dict[Any, int]
    _SyncObj__raftMatchIndex: dict[Any, int]
    _SyncObj__connectedNodes: set[Any]
    _SyncObj__needLoadDumpFile: bool
    _SyncObj__generateRaftTimeout: Callable[[], float]
    _SyncObj__setCurrentTerm: Callable[[int, str | None], None]
    _SyncObj__transferInProgress: bool
    doTick: Callable[[float], None]  # noqa: N815
    transferLeadership: Callable[..., None]  # noqa: N815
    host: LibraryHost
    clock: Callable[[], float]
    heartbeat: float

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Rows 6 and 11: our own apply, in slices, without pickle and without a second try."""
        self.host.apply_committed()
        return False

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Rows 4 and 9: bounded batches and snapshot parts under a window, heartbeats on time."""
        self._SyncObj__newAppendEntriesTime = self.clock() + self.heartbeat
        self.host.replicate(heartbeat=True)

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Row 10: only a serving leader takes commands, and never forwards; many share one append."""
        self.host.take_proposals()
        if self._SyncObj__raftState == LEADER:
            self.host.replicate(heartbeat=False)

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Rows 8 and 9: our own snapshots."""
        self.host.compact()

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise RaftError("snapshots are loaded by this package, never by the library")

    # names for what the package reads and sets

    @property
    def term(self) -> int:
        """Current term."""
        return self._SyncObj__raftCurrentTerm

    @property
    def role(self) -> int:
        """FOLLOWER, CANDIDATE or LEADER."""
        return self._SyncObj__raftState

    @property
    def leader_id(self) -> str | None:
        """Leader of the current term as far as known."""
        leader = self._SyncObj__raftLeader
        return leader.id if leader is not None else None

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry known."""
        return self._SyncObj__raftCommitIndex

    @property
    def applied_index(self) -> int:
        """Index of the last applied entry."""
        return self._SyncObj__raftLastApplied

    def set_applied(self, index: int) -> None:
        """Note that entries up to `index` are in the state."""
        self._SyncObj__raftLastApplied = index
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, index)

    @property
    def next_index(self) -> dict[Any, int]:
        """Per peer (node object): index of the next entry to send."""
        return self._SyncObj__raftNextIndex

    @property
    def match_index(self) -> dict[Any, int]:
        """Per peer: index up to which its log is known to be equal."""
        return self._SyncObj__raftMatchIndex

    @property
    def connected(self) -> set[Any]:
        """Peers with a connection."""
        return self._SyncObj__connectedNodes

    @property
    def election_due(self) -> bool:
        """Whether the library starts an election in its next tick, without a request of the leader."""
        due = self._SyncObj__raftState != LEADER and self._SyncObj__raftElectionDeadline < self.clock()
        return due and bool(self._SyncObj__connectedNodes) and not self._SyncObj__transferInProgress

    def stand(self, term: int) -> None:
        """Have the library start an election in its next tick, in a term above this one, which others are in."""
        if term > self._SyncObj__raftCurrentTerm:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__raftElectionDeadline = self.clock() - 1.0

    def postpone_election(self, share: float = 1.0) -> None:
        """Give others a full election timeout, e.g. after this node stopped leading, or a share of one; never less than
        they had."""
        due = self.clock() + share * self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftElectionDeadline = max(due, self._SyncObj__raftElectionDeadline)

    def hasten_election(self, share: float) -> None:
        """Have an election due after a share of an election timeout, unless it is due before."""
        due = self.clock() + share * self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftElectionDeadline = min(due, self._SyncObj__raftElectionDeadline)

    def next_tick(self, alone: bool) -> float | None:
        """Clock time at which the library next has something to do, or None."""
        if self._SyncObj__raftState == LEADER:
            return self._SyncObj__newAppendEntriesTime
        return self._SyncObj__raftElectionDeadline if alone or self._SyncObj__connectedNodes else None


def make(
    *,
    host: LibraryHost,
    node_id: str,
    peers: list[str],
    journal: Journal,
    transport: object,
    clock: Callable[[], float],
    rng: Random,
    timing: tuple[float, float, float, float],
) -> tuple[Hardened, dict[str, Any]]:
    """A hardened SyncObj and the node objects of its peers.

    Args:
        timing: election timeout min and max, heartbeat period, leader fallback; seconds.
    """
    module = load(clock, rng)
    module.pickle = NoPickle()
    module.createJournal = lambda given: given
    module.createPoller = lambda _kind: NoPoller()
    election_min, election_max, heartbeat, fallback = timing

    class PeerNode(module.Node):  # type: ignore[misc, name-defined] # the library is untyped
        """A node whose hash does not depend on PYTHONHASHSEED, so that sets of nodes have one order (row 13)."""

        def __init__(self, name: str) -> None:
            super().__init__(name, crc=zlib.crc32(name.encode()))

        def __hash__(self) -> int:
            return int(self.crc)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, PeerNode) and bool(self.id == other.id)

    conf = module.SyncObjConf(
        autoTick=False,
        raftMinTimeout=election_min,
        raftMaxTimeout=election_max,
        appendEntriesPeriod=heartbeat,
        leaderFallbackTimeout=fallback,
        connectionTimeout=2 * election_max,
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=2 * MAX_ENTRY_BYTES,
        journalFile=journal,
        onStateChanged=lambda _old, _new: host.state_changed(),
    )
    parts = {"host": host, "clock": staticmethod(clock), "heartbeat": heartbeat}
    kind = type("HardenedSyncObj", (Hardened, module.SyncObj), parts)
    nodes = {peer: PeerNode(peer) for peer in peers}
    raft = kind(PeerNode(node_id), list(nodes.values()), conf, transport=transport)
    raft._SyncObj__needLoadDumpFile = False
    return raft, nodes
