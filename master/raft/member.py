"""One Raft member without sockets, threads or files: the library, the gate, proposals, reads, apply, snapshots.

Rules: all methods are called by one thread at a time (the Raft thread, or the simulator); `tick` after every batch
of events, then `flush`; the machine is touched only under `lock`. Any exception that leaves a method ends the node:
half-applied commands must not exist (row 6). Called by `node` and by the simulation in the tests.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from holdfast.master.raft import library
from holdfast.master.raft.codec import ENTRY_COMMAND, ENTRY_NO_OP, ENTRY_VERSION, NO_OP, Entry, SnapshotPart
from holdfast.master.raft.errors import (
    WAY_OUT,
    NodeStopped,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    RaftError,
    StorageDamaged,
    StorageFailed,
)
from holdfast.master.raft.journal import Journal
from holdfast.master.raft.library import LEADER
from holdfast.master.raft.message_filter import MessageFilter, Network
from holdfast.master.raft.prevote import ASK_AGAIN_SHARE, CUT_OFF_SHARE, PreVotes
from holdfast.master.raft.replicator import Replicator
from holdfast.master.raft.snapshot import SnapshotId, Snapshots

T = TypeVar("T")
#: A function of the machine, and what it is to resolve.
Read = tuple[Callable[[Any], Any], Future[Any]]
PREFIX = bytes([ENTRY_COMMAND, ENTRY_VERSION])
APPLY_SLICE_SECONDS = 0.02
APPLY_CHUNK = 64
TAKE_COMMANDS = 1_000  # appended in one step; more would make one long transaction
TAKE_BYTES = 4 << 20
#: The log is cut when it is as long as the state, and never for less than this.
COMPACT_BYTES_MIN = 1 << 20
#: What an entry costs beside its bytes.
ENTRY_BYTES = 64


class RaftStateMachine(Protocol):
    """What is replicated. Equal commands in equal order give equal states."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply one command; the proposer gets its result. Deterministic; must not raise."""

    def capture(self) -> object:
        """A view of the state that later commands do not change; quick."""

    def encode(self, captured: object) -> Iterator[bytes]:
        """The captured state in small pieces (at most 64 KiB or 1 ms each); runs on another thread."""

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the whole state; the borders between chunks are not those of `encode`."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A command that was applied here: its place in the log and what `apply` returned."""

    index: int
    term: int
    result: object


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Identity, timing in seconds, and bounds of a member."""

    node_id: str
    peers: Collection[str]
    election_min: float = 0.4
    election_max: float = 0.9
    heartbeat: float = 0.12
    leader_fallback: float = 0.9
    compact_entries: int = 20_000
    compact_bytes: int = 64 << 20
    queue_commands: int = 20_000
    queue_bytes: int = 64 << 20
    batch_entries: int = 2_000  # at most in one append
    window_messages: int = 64  # appends on their way to one peer


class Background(Protocol):
    """Runs a job elsewhere and its end back on the Raft thread."""

    def run(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job`, then `done(result, None)` or `done(None, error)` where the member is called."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a member meets: other members, threads, time and chance."""

    network: Network
    background: Background
    clock: Callable[[], float]
    rng: Random


@dataclass(slots=True)
class _HandOver:
    """A transfer of leadership to `node`, or to the member with the longest log."""

    node: Any
    future: Future[bool]
    deadline: float
    asked: bool = False


class RaftMember:
    """See the module. `on_leadership(serving, term)` is called when the node starts and stops serving as leader."""

    def __init__(
        self,
        settings: MemberSettings,
        machine: RaftStateMachine,
        journal: Journal,
        snapshots: Snapshots,
        world: Surroundings,
        on_leadership: Callable[[bool, int], None] = lambda _serving, _term: None,
    ) -> None:
        self.settings, self.machine, self.journal, self.snapshots = settings, machine, journal, snapshots
        self._background, self._clock, self._on_leadership = world.background, world.clock, on_leadership
        self.lock = threading.RLock()
        self._queue: deque[tuple[bytes, Future[Applied]]] = deque()
        self._queue_bytes = 0
        self._inflight: dict[int, tuple[int, Future[Applied]]] = {}
        self._inflight_bytes = 0
        self._new_reads: list[Read] = []
        self._round: tuple[int, list[Read]] | None = None
        self._handing: _HandOver | None = None
        self._serving_term: int | None = None
        self._role_changed = False
        self._compacting = False
        self._applied_bytes = 0
        restored = self._restore()
        peers = sorted(settings.peers)
        self._pre_votes = PreVotes(
            settings.node_id, len(peers) + 1, settings.election_min - settings.heartbeat, world.clock
        )
        self.gate = MessageFilter(world.network, journal, peers, settings.window_messages, self._pre_votes)
        timing = (settings.election_min, settings.election_max, settings.heartbeat, settings.leader_fallback)
        self.raft, self._nodes = library.make(
            host=self,
            node_id=settings.node_id,
            peers=peers,
            journal=journal,
            transport=self.gate,
            clock=world.clock,
            rng=world.rng,
            timing=timing,
        )
        self._replicator = Replicator(self.raft, self._nodes, self.gate, journal, snapshots, settings.batch_entries)
        self.gate.bind(self.raft, self._nodes, self._keep_part)
        if restored is not None:
            self.raft.set_applied(restored.index)
        journal.sync()

    def _restore(self) -> SnapshotId | None:
        """Row 7: the snapshot was verified; the log behind it is kept if it continues it, else it is replaced."""
        last = self.snapshots.current
        if last is None:
            if len(self.journal) and self.journal.first_index > 1:
                raise StorageDamaged(f"the journal was compacted and its snapshot is missing. {WAY_OUT}")
            return None
        self.machine.restore(self.snapshots.chunks())
        if len(self.journal) == 0 or self.journal.term_at(last.index) != last.term:
            if len(self.journal) and self.journal.first_index > last.index:
                raise StorageDamaged(f"the snapshot is older than the journal's first entry. {WAY_OUT}")
            self.journal.restart_at(NO_OP, last.index, last.term)
        return last

    # events

    def propose(self, entry: bytes, future: Future[Applied]) -> None:
        """Queue an entry (PREFIX + command) for the next append; the future is resolved once it is applied."""
        if len(self._queue) >= self.settings.queue_commands or self._queue_bytes > self.settings.queue_bytes:
            future.set_exception(Overloaded("too many commands wait to be proposed; wait and retry"))
            return
        self._queue.append((entry, future))
        self._queue_bytes += len(entry)

    def read(self, fn: Callable[[Any], Any], future: Future[Any]) -> None:
        """Run fn(machine) once leadership is proven to hold after this call."""
        self._new_reads.append((fn, future))

    def transfer_leadership(self, to: str | None, future: Future[bool]) -> None:
        """Have `to`, or the peer with the longest log, start an election as soon as it has the whole log.

        Commands wait meanwhile, or no peer would have it under load. The future is True once this node is no longer
        leader, False if no peer was ready within an election timeout: then it stays the leader, and takes what
        waited. Only the time of an election is chosen here: whom a majority follows is decided as ever.
        """
        node = self._nodes.get(to) if to else None
        if self.raft.role != LEADER or self._handing is not None or not self._nodes or (to and node is None):
            future.set_result(False)
        else:
            self._handing = _HandOver(node, future, self._clock() + self.settings.election_max)

    def _hand_on(self) -> None:
        """Take a step of handing over: ask, find that it has happened, or cancel it."""
        handing = self._handing
        if handing is None:
            return
        if self.raft.role != LEADER:
            self._hand_over_ends(True)
        elif self._clock() >= handing.deadline:
            self._hand_over_ends(False)
        elif not handing.asked:
            self.raft.transferLeadership(handing.node, self._handing_asked)

    def _handing_asked(self, _result: object, error: int) -> None:
        if self._handing is not None:
            self._handing.asked = error == 0  # else the peer lacks something yet, and the next tick asks again

    def _hand_over_ends(self, over: bool) -> None:
        if self._handing is not None:
            handing, self._handing = self._handing, None
            handing.future.set_result(over)

    def match_index(self, peer: str) -> int:
        """On the leader: up to where the peer's log is known equal."""
        return self.raft.match_index.get(self._nodes[peer], 0)

    def received(self, peer: str, payload: bytes) -> None:
        """A payload from an authenticated peer; raises WireError if unreadable."""
        self.gate.received(peer, payload)

    def hearing(self, peer: str) -> None:
        """The leader is in the middle of a large message: it lives, although its heartbeats wait behind it."""
        if self.raft.role == library.FOLLOWER and self.raft.leader_id == peer:
            self.raft.postpone_election()
            self._pre_votes.heard()

    def connected(self, peer: str) -> None:
        """A connection is open."""
        self.gate.connected(peer)

    def disconnected(self, peer: str) -> None:
        """A connection ended."""
        self._replicator.forget(peer)
        self.gate.disconnected(peer)
        self._pre_votes.end()  # an unreachable peer may have a leader before it is reachable again
        if self.raft.role == library.FOLLOWER and self.raft.leader_id == peer:
            self._pre_votes.cut_off()
            self.raft.hasten_election(CUT_OFF_SHARE)

    def tick(self) -> None:
        """Let the library act on what came in and on the time; then let messages leave."""
        self._settle()
        self._ask_first()
        self.raft.doTick(0)
        self._settle()
        self._hand_on()
        self._serve_reads()
        self.gate.flush()

    def _ask_first(self) -> None:
        """Row 12: before an election of its own this member has to know that a majority would vote for it."""
        if not self.raft.election_due or not self._nodes:
            return
        if self._pre_votes.may_stand:
            self._pre_votes.end()
            return
        self.gate.ask_pre_votes()
        self.raft.postpone_election(ASK_AGAIN_SHARE)

    def next_tick(self) -> float | None:
        """Clock time of the next `tick` needed even if nothing comes in; None for never."""
        if self.raft.commit_index > self.raft.applied_index and not self.gate.installing:
            return self._clock()
        if self._queue and self.serving and self._handing is None and self._may_propose():
            return self._clock()
        if not self._nodes and self.raft.role == LEADER and self.journal.last_index > self.raft.commit_index:
            return self._clock()
        due = self.raft.next_tick(alone=not self._nodes)
        if self._handing is not None:
            due = self._handing.deadline if due is None else min(due, self._handing.deadline)
        if self.journal.soft_dirty:
            hint = self._clock() + 1.0
            return hint if due is None else min(due, hint)
        return due

    @property
    def serving(self) -> bool:
        """Leader that has applied an entry of its own term."""
        return self.raft.role == LEADER and self._serving_term == self.raft.term

    @property
    def committed_in_term(self) -> bool:
        """Whether an entry of the present term is committed, as far as this member knows."""
        return self.journal.term_at(self.raft.commit_index) == self.raft.term

    def stop(self) -> None:
        """Fail what waits."""
        stopped = NodeStopped("the node was stopped")
        for _entry, future in self._queue:
            future.set_exception(stopped)
        self._queue.clear()
        self._fail_reads(stopped)
        self._fail_inflight()
        self._hand_over_ends(False)
        self._replicator.forget_all()

    # roles

    def state_changed(self) -> None:
        """Called by the library in the middle of a step; acted on by `_settle`."""
        self._role_changed = True
        self.gate.forget_progress()

    def _settle(self) -> None:
        raft = self.raft
        if self._role_changed:
            self._role_changed = False
            self._replicator.forget_all()
            if raft.role != LEADER:
                self._stop_serving()
        if raft.role != LEADER and (self._queue or self._new_reads):
            self._refuse()

    def _stop_serving(self) -> None:
        self._fail_inflight()
        if self._serving_term is not None:
            term, self._serving_term = self._serving_term, None
            self._on_leadership(False, term)
        if self.raft.role == library.FOLLOWER and self.raft.leader_id is None:
            self.raft.postpone_election()  # a leader's own deadline is stale: it would start an election at once

    def _refuse(self) -> None:
        error = NotLeader(self.raft.leader_id)
        for _entry, future in self._queue:
            future.set_exception(error)
        self._queue.clear()
        self._queue_bytes = 0
        self._fail_reads(error)

    def _fail_inflight(self) -> None:
        inflight, self._inflight, self._inflight_bytes = self._inflight, {}, 0
        for _term, future in inflight.values():
            future.set_exception(OutcomeUnknown("leadership was lost before the command's fate was known"))

    def _fail_reads(self, error: RaftError) -> None:
        pending = self._new_reads + (self._round[1] if self._round else [])
        self._new_reads, self._round = [], None
        for _fn, future in pending:
            future.set_exception(error)

    # proposals and reads

    def take_proposals(self) -> None:
        """Append what waits; one append and one sync carry them all."""
        if not self.serving or self._handing is not None:
            return
        index, term = self.journal.last_index, self.raft.term
        end, taken = index + TAKE_COMMANDS, 0
        while self._queue and index < end and taken < TAKE_BYTES and self._may_propose():
            entry, future = self._queue.popleft()
            self._queue_bytes -= len(entry)
            self._inflight_bytes += len(entry)
            taken += len(entry)
            index += 1
            self.journal.add(entry, index, term)
            self._inflight[index] = (term, future)

    def _may_propose(self) -> bool:
        settings = self.settings
        return self._inflight_bytes < settings.queue_bytes and len(self._inflight) < settings.queue_commands

    def _serve_reads(self) -> None:
        """Row 5: reads run after a majority answered appends sent after the reads came."""
        if not self.serving:
            if self._round is not None:
                self._new_reads, self._round = self._round[1] + self._new_reads, None
                self._settle()
            return
        if self._round is not None and self.gate.confirmed_seq() > self._round[0]:
            pending, self._round = self._round[1], None
            self._run_reads(pending)
        if self._new_reads and self._round is None:
            pending, self._new_reads = self._new_reads, []
            if not self._nodes:
                self._run_reads(pending)
                return
            self._round = (self.gate.last_seq, pending)
            self.raft._SyncObj__sendAppendEntries()

    def _run_reads(self, pending: list[Read]) -> None:
        with self.lock:
            for fn, future in pending:
                try:
                    result = fn(self.machine)
                except Exception as error:  # noqa: BLE001 (the reader gets it)
                    future.set_exception(error)
                else:
                    future.set_result(result)

    # apply

    def apply_committed(self) -> None:
        """Apply committed entries for at most a slice of time."""
        if self.gate.installing or self.raft.commit_index <= self.raft.applied_index:
            return
        if not self._nodes:
            self.journal.sync()  # alone, nothing is sent, so nothing else would have synced
        stop = self._clock() + APPLY_SLICE_SECONDS
        while (index := self.raft.applied_index) < self.raft.commit_index:
            count = min(self.raft.commit_index - index, APPLY_CHUNK)
            with self.lock:
                for entry in self.journal.slice(index + 1, count):
                    self._apply(entry)
            if self._clock() >= stop:
                return

    def _apply(self, entry: Entry) -> None:
        command, index, term = entry
        if command[0] == ENTRY_NO_OP:
            self.raft.set_applied(index)
            self._begin_serving(term)
            return
        if command[:2] != PREFIX:
            raise RaftError(
                f"log entry {index} has kind {command[0]} and version {command[1:2].hex()}; this build applies kind "
                f"{ENTRY_COMMAND} version {ENTRY_VERSION}: start the build that wrote it"
            )
        result = self.machine.apply(index, term, command[2:])
        self.raft.set_applied(index)
        self._applied_bytes += len(command) + ENTRY_BYTES
        waiting = self._inflight.pop(index, None)
        if waiting is not None:
            self._inflight_bytes -= len(command)
            if waiting[0] == term:
                waiting[1].set_result(Applied(index, term, result))
            else:
                waiting[1].set_exception(OutcomeUnknown("another leader's command took its place"))

    def _begin_serving(self, term: int) -> None:
        if self.raft.role == LEADER and term == self.raft.term and self._serving_term != term:
            self._serving_term = term
            self._on_leadership(True, term)

    def replicate(self, heartbeat: bool) -> None:
        """Called by the library and its overrides when something is to be sent."""
        self._replicator.replicate(heartbeat)

    # snapshots

    @property
    def _log_bytes_max(self) -> int:
        """How long the log gets: as the state, so that neither memory nor a start is about more than twice of that."""
        return min(self.settings.compact_bytes, max(COMPACT_BYTES_MIN, self.snapshots.length))

    def compact(self) -> None:
        """Row 8 and 9: capture here, encode and sync elsewhere, only then drop the head of the log."""
        if self._compacting or self.gate.installing:
            return
        have = self.snapshots.current
        done_to = have.index if have else 0
        index = self.raft.applied_index
        few = index - done_to < self.settings.compact_entries
        if index <= done_to or (few and self._applied_bytes < self._log_bytes_max):
            return
        last = SnapshotId(index, self.journal[index - self.journal.first_index][2])
        with self.lock:
            captured = self.machine.capture()
        self._compacting = True
        self._applied_bytes = 0
        self._background.run(
            lambda: self.snapshots.write(last, self.machine.encode(captured)),
            lambda _length, error: self._compacted(last, error),
        )

    def _compacted(self, last: SnapshotId, error: BaseException | None) -> None:
        self._compacting = False
        if isinstance(error, StorageFailed):
            raise error
        if error is not None:
            raise RaftError(f"a snapshot could not be written: {error}") from error
        self.journal.drop_covered(last.index, self.settings.compact_entries // 4, self._log_bytes_max // 4)

    def _keep_part(self, part: SnapshotPart) -> bool:
        whole = self.snapshots.receive(part)
        if whole and not self._compacting:
            self.gate.installing = True
            self._background.run(self._install, self._installed)
        return whole

    def _install(self) -> SnapshotId:
        last = self.snapshots.adopt()
        with self.lock:
            self.machine.restore(self.snapshots.chunks())
        return last

    def _installed(self, last: SnapshotId | None, error: BaseException | None) -> None:
        if isinstance(error, StorageFailed):
            raise error
        if last is None:
            raise RaftError(f"a snapshot from the leader could not be installed: {error}") from error
        self.journal.restart_at(NO_OP, last.index, last.term)
        self.raft.set_applied(last.index)
        self._applied_bytes = 0
        self.gate.installing = False
