"""The door to the replicated log: one thread, its sockets and its disk around a `member.RaftMember`.

Rules: everything inside happens on the Raft thread; other threads hand over work through an inbox and a wake-up;
sockets are served before time is looked at, so a node that was stopped for a while reads its peers' messages before it
acts; any internal error ends the process at once (fail-stop), because half-applied commands must not continue.
Called by the master's service.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.common.log_events import LogEvent
from holdfast.common.system.files import make_folders
from holdfast.common.system.links import NO_LINK, first_foreign, sentence
from holdfast.common.system.log import log_event
from holdfast.master.raft import library
from holdfast.master.raft.codec import MAX_COMMAND_BYTES
from holdfast.master.raft.errors import CommandTooLarge, NodeStopped, Overloaded, SettingsRefused, StorageFailed
from holdfast.master.raft.handshake import MemberIdentity
from holdfast.master.raft.journal import Journal
from holdfast.master.raft.journal_store import LmdbStore
from holdfast.master.raft.member import PREFIX, Applied, MemberSettings, RaftMember, RaftStateMachine, Surroundings
from holdfast.master.raft.membership import Membership, digest
from holdfast.master.raft.snapshot import FileSnapshots
from holdfast.master.raft.transport import TlsContexts, Transport

T = TypeVar("T")
M = TypeVar("M", bound=RaftStateMachine)
#: The system takes no span of more than some weeks.
_IDLE_SECONDS_MAX = 3600.0
EXIT_FATAL = 70
#: The disk takes no write. Both are those of sysexits.h.
EXIT_DISK = 74
PACE_SECONDS = 0.001
#: A turn of the Raft thread should never take longer: heartbeats, answers and elections wait behind it.
SLOW_TURN_SECONDS = 0.05
ROLES = {library.FOLLOWER: "follower", library.CANDIDATE: "candidate", library.LEADER: "leader"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings(MemberSettings):
    """All settings of a node.

    `address` is where it listens and `peers` maps node ids to addresses (its own is ignored). Times in seconds. A
    snapshot is made after `compact_entries` commands or `compact_bytes` bytes of them. With `tls` the port speaks
    nothing else, and peers are known by the hosts of their addresses. `other_secret` is taken beside the first. The
    faults are for drills only.
    """

    address: str
    peers: Mapping[str, str]
    cluster_id: str
    secret: bytes = field(repr=False)
    directory: Path
    faults_disk_delay: float = 0.0
    faults_clock_offset: float = 0.0
    tls: TlsContexts | None = field(default=None, repr=False)
    other_secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not self.node_id or not self.cluster_id or not self.secret:
            raise SettingsRefused("node_id, cluster_id and secret must not be empty")
        if not 0 < 3 * self.heartbeat < self.election_min < self.election_max:
            raise SettingsRefused("3 * heartbeat < election_min < election_max must hold")
        if self.leader_fallback <= self.heartbeat or self.compact_entries < 8:
            raise SettingsRefused("leader_fallback must exceed heartbeat, and compact_entries must be at least 8")


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A peer as this node sees it; lag (entries it is behind) means something on the leader only."""

    connected: bool
    lag: int
    error: str | None


@dataclass(frozen=True, slots=True)
class RaftStatus:
    """A node at one moment. `serving`: leader that has applied an entry of its own term. `caught_up`: it serves, or has
    a leader and all that was committed when it began to follow it."""

    node_id: str
    role: str
    serving: bool
    caught_up: bool
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    log_length: int
    log_bytes: int
    snapshot_index: int
    #: Longest turn of the Raft thread so far, in seconds, disk included, and how many took more than SLOW_TURN_SECONDS.
    longest_turn: float
    slow_turns: int
    peers: dict[str, PeerStatus]
    #: connections to the Raft port that have not proved the secret yet, and how many had to make room for others
    strangers: int
    displaced: int


class Pacer:
    """Makes a long job rest as long as it works, a millisecond at a time: the Raft thread then gets the interpreter."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._since >= PACE_SECONDS:
            time.sleep(PACE_SECONDS)
            self._since = time.monotonic()


def die(error: BaseException) -> None:
    """Say what happened and end the process without any cleaning up."""
    of_the_disk = isinstance(error, StorageFailed)
    if of_the_disk:
        log_event(LogEvent.RAFT_DISK_FAILED, reason=error)
    else:
        log_event(LogEvent.RAFT_FAILED, trace=error)
    sys.stderr.flush()
    os._exit(EXIT_DISK if of_the_disk else EXIT_FATAL)


class RaftNode(Generic[M]):
    """One member of the replicated log as a thread.

    Raises:
        SettingsRefused: wrong settings, directory in use or another node's, address taken.
        StorageDamaged: the journal or the snapshot fails its checks.
    """

    def __init__(
        self,
        settings: RaftSettings,
        machine: M,
        *,
        on_leadership: Callable[[bool, int], None] = lambda _serving, _term: None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        on_fatal: Callable[[BaseException], None] = die,
    ) -> None:
        self._machine = machine
        offset = settings.faults_clock_offset
        self._clock: Callable[[], float] = (lambda: clock() + offset) if offset else clock
        self._on_fatal = on_fatal
        self._inbox: deque[Callable[[], None]] = deque()
        self._signalled = False
        self._stopping = False
        self._job: threading.Thread | None = None
        self._longest_turn, self._slow_turns = 0.0, 0
        self._queue_limit = settings.queue_commands
        self._peers = {peer: at for peer, at in settings.peers.items() if peer != settings.node_id}
        with ExitStack() as undo:  # a node that refuses to start leaves nothing open
            undo.enter_context(_locked(settings.directory))
            self._open(settings, on_leadership, rng or random.Random(), undo)
            self._held = undo.pop_all()
        self._thread = threading.Thread(target=self._run, name=f"raft-{settings.node_id}", daemon=True)

    def _open(
        self, s: RaftSettings, on_leadership: Callable[[bool, int], None], rng: random.Random, undo: ExitStack
    ) -> None:
        snapshots = FileSnapshots(s.directory / "snapshots", s.cluster_id, Pacer())
        store = LmdbStore(s.directory / "journal", s.cluster_id, s.node_id, s.faults_disk_delay)
        undo.callback(store.close)
        journal = Journal(store)
        members = {s.node_id, *self._peers}
        self._membership = Membership(s.directory, members)
        identity = MemberIdentity(s.node_id, s.cluster_id, s.secret, s.other_secret, digest(members))
        self._transport = Transport(identity, s.address, self._peers, self._clock, tls=s.tls)
        undo.callback(self._transport.close)
        self._member = RaftMember(
            replace(s, peers=self._peers),
            self._machine,
            journal,
            snapshots,
            Surroundings(self._transport, self, self._clock, rng),
            on_leadership,
        )
        self._transport.bind(self._member)
        self._snapshots = snapshots

    # life

    def start(self) -> None:
        """Start the Raft thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, fail what waits, close sockets and disk."""
        self._stopping = True
        self._transport.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        if self._job is not None:
            self._job.join()  # it still writes to the directory
        self._member.stop()
        self._drain()
        self._member.stop()
        self._held.close()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._step()
        except BaseException as error:  # noqa: BLE001 (whatever it is, the node must not go on)
            self._on_fatal(error)

    def _step(self) -> None:
        due = [at for at in (self._member.next_tick(), self._transport.next_due()) if at is not None]
        timeout = min(max(0.0, min(due) - self._clock()), _IDLE_SECONDS_MAX) if due else None
        self._transport.poll(timeout)
        self._drain()
        self._member.tick()
        self._transport.flush()
        if not self._membership.settled and self._transport.all_agree and self._member.committed_in_term:
            self._membership.agree()
            log_event(LogEvent.RAFT_MEMBERS_AGREED, masters=len(self._peers) + 1)
        took = self._clock() - self._transport.woke
        self._longest_turn = max(self._longest_turn, took)
        self._slow_turns += took > SLOW_TURN_SECONDS

    def _drain(self) -> None:
        self._signalled = False
        inbox = self._inbox
        for _ in range(len(inbox)):
            inbox.popleft()()

    def _post(self, work: Callable[[], None]) -> None:
        """Have `work` run on the Raft thread."""
        self._inbox.append(work)
        if not self._signalled:
            self._signalled = True
            self._transport.wake()

    def run(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run a long job on a thread of its own and its end on the Raft thread (`member.Background`)."""

        def body() -> None:
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 (ends the node where it is received)
                failure = error
                self._post(lambda: done(None, failure))
            else:
                self._post(lambda: done(result, None))

        self._job = threading.Thread(target=body, name="raft-snapshot", daemon=True)
        self._job.start()

    # calls

    def propose(self, command: bytes) -> Future[Applied]:
        """Replicate a command of at most MAX_COMMAND_BYTES.

        The future holds `Applied`, or fails with NotLeader or Overloaded (never proposed), OutcomeUnknown (perhaps
        applied: retry with the same call number) or NodeStopped. It is resolved on the Raft thread.
        """
        if len(command) > MAX_COMMAND_BYTES:
            raise CommandTooLarge(f"a command of {len(command)} bytes; at most {MAX_COMMAND_BYTES}: send parts")
        future: Future[Applied] = Future()
        if self._admit(future):
            self._post(lambda: self._member.propose(PREFIX + command, future))
        return future

    def read(self, fn: Callable[[M], T]) -> Future[T]:
        """Run fn(machine) under the state lock after a proof, later than this call, of leadership."""
        future: Future[T] = Future()
        if self._admit(future):
            self._post(lambda: self._member.read(fn, future))
        return future

    def _admit(self, future: Future[Any]) -> bool:
        future.set_running_or_notify_cancel()  # what was handed over cannot be cancelled
        if self._stopping:
            future.set_exception(NodeStopped("the node was stopped"))
        elif len(self._inbox) >= self._queue_limit:
            future.set_exception(Overloaded("too many calls wait for the Raft thread; wait and retry"))
        else:
            return True
        return False

    def turn(self) -> Future[None]:
        """Resolved by the Raft thread when it next turns; never, if that hangs."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        self._post(lambda: future.set_result(None))
        return future

    def local(self, fn: Callable[[M], T]) -> T:
        """fn(machine) under the state lock, here and now: whatever this node has applied so far."""
        with self._member.lock:
            return fn(self._machine)

    def transfer_leadership(self, to: str | None = None) -> Future[bool]:
        """Have a follower (by default the one furthest on) take over; see `RaftMember.transfer_leadership`."""
        future: Future[bool] = Future()
        if self._admit(future):
            self._post(lambda: self._member.transfer_leadership(to, future))
        return future

    def status(self) -> RaftStatus:
        """The node as it is; numbers may be a moment apart from one another."""
        member, raft = self._member, self._member.raft
        last = member.journal.last_index
        leads = raft.role == library.LEADER
        current = self._snapshots.current
        peers = {}
        for peer in sorted(self._peers):
            lag = max(0, last - member.match_index(peer)) if leads else 0
            connected = self._transport.is_connected(peer)
            peers[peer] = PeerStatus(connected, lag, None if connected else self._transport.errors.get(peer))
        return RaftStatus(
            node_id=member.settings.node_id,
            role=ROLES[raft.role],
            serving=member.serving,
            caught_up=member.serving or (raft.leader_id is not None and member.gate.caught_up),
            term=raft.term,
            leader=raft.leader_id,
            commit_index=raft.commit_index,
            applied_index=raft.applied_index,
            log_length=len(member.journal),
            log_bytes=member.journal.bytes,
            snapshot_index=current.index if current else 0,
            longest_turn=self._longest_turn,
            slow_turns=self._slow_turns,
            peers=peers,
            strangers=self._transport.strangers,
            displaced=self._transport.displaced,
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock that ends with the process: two nodes on one directory would ruin it."""
    make_folders(directory)
    foreign = first_foreign(str(directory))
    if foreign is not None:
        raise SettingsRefused(sentence(foreign))
    guard = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise SettingsRefused(f"{directory} is in use by another process: stop that one first") from error
    finally:
        os.close(guard)
