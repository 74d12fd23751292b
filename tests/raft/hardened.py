"""The product's member on the simulated disk and network of `world`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from holdfast.master.raft.codec import Entry, SnapshotPart
from holdfast.master.raft.errors import RaftError
from holdfast.master.raft.journal import Change, Journal, Meta
from holdfast.master.raft.library import LEADER
from holdfast.master.raft.member import PREFIX, Applied, MemberSettings, RaftMember, Surroundings
from holdfast.master.raft.snapshot import SnapshotId, Transfer
from tests.raft.world import Crash, Oracle, Violation, World

PART = 200  # bytes of a snapshot the simulated file gives at once, so that even small ones go in parts


@dataclass
class Disk:
    """What outlives a crash: only what was committed or renamed."""

    meta: Meta = field(default_factory=Meta)
    entries: dict[int, Entry] = field(default_factory=dict)
    snapshot: tuple[SnapshotId, bytes] | None = None


class SimStore:
    """`journal.JournalStore` on a `Disk`: a commit is durable at once and whole; `step` may end the node around it."""

    def __init__(self, disk: Disk, step: Callable[[], None], stored: Callable[[list[Entry]], None]) -> None:
        self._disk, self._step, self._stored = disk, step, stored

    def load(self) -> tuple[Meta, list[Entry], int]:
        """See `journal.JournalStore`."""
        meta, entries = self._disk.meta, self._disk.entries
        log = [entries[index] for index in range(meta.first, meta.last + 1)]
        return meta, log, min(entries, default=1) if log else 1

    def commit(self, change: Change) -> None:
        """See `journal.JournalStore`."""
        self._step()
        for low, high in change.remove:
            for index in range(low, high + 1):
                self._disk.entries.pop(index, None)
        self._disk.entries.update({entry[1]: entry for entry in change.put})
        self._disk.meta = change.meta
        self._stored(change.put)
        self._step()

    def close(self) -> None:
        """Nothing to release."""


class SimSnapshots:
    """`snapshot.Snapshots` on a `Disk`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._incoming: tuple[SnapshotId, bytes] | None = None

    @property
    def current(self) -> SnapshotId | None:
        """See `Snapshots`."""
        return self._disk.snapshot[0] if self._disk.snapshot else None

    @property
    def length(self) -> int:
        """See `Snapshots`."""
        return len(self._disk.snapshot[1]) if self._disk.snapshot else 0

    def write(self, last: SnapshotId, chunks: Iterable[bytes]) -> int:
        """See `Snapshots`."""
        body = b"".join(chunks)
        self._disk.snapshot = (last, body)
        return len(body)

    def chunks(self) -> Iterator[bytes]:
        """See `Snapshots`."""
        assert self._disk.snapshot is not None
        yield self._disk.snapshot[1]

    def transfer(self) -> Transfer | None:
        """See `Snapshots`."""
        if self._disk.snapshot is None:
            return None
        last, body = self._disk.snapshot
        body = body or b"\n"
        return Transfer(last, len(body), lambda at, size: body[at : at + min(size, PART)], lambda: None)

    def receive(self, part: SnapshotPart) -> bool:
        """See `Snapshots`."""
        last = SnapshotId(part.index, part.last_term)
        if part.offset == 0 and part.data:
            self._incoming = (last, b"")
        if self._incoming is None or self._incoming[0] != last or len(self._incoming[1]) != part.offset:
            return False
        self._incoming = (last, self._incoming[1] + part.data)
        return len(self._incoming[1]) == part.total and bool(part.data)

    def adopt(self) -> SnapshotId:
        """See `Snapshots`."""
        assert self._incoming is not None
        self._disk.snapshot, self._incoming = self._incoming, None
        return self._disk.snapshot[0]


class WatchedJournal(Journal):
    """Shows the oracle every entry as it enters the log, and again when it is on the disk."""

    def __init__(self, name: str, oracle: Oracle, disk: Disk, step: Callable[[], None]) -> None:
        self._name, self._oracle = name, oracle
        self._accepted: set[tuple[int, int]] = set()  # not yet on the disk, came while the node was in their term
        super().__init__(SimStore(disk, step, self._stored))

    def add(self, command: bytes, idx: int, term: int) -> None:
        """See `Journal`."""
        if len(self):
            self._oracle.entry(self._name, command, idx, term, self[-1][2])
        super().add(command, idx, term)
        if term == self.getCurrentTerm():
            self._accepted.add((idx, term))

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """See `Journal`."""
        cut = self[position][1]
        self._accepted = {pair for pair in self._accepted if pair[0] < cut}
        super().deleteEntriesFrom(position)

    def _stored(self, entries: list[Entry]) -> None:
        for _, index, term in entries:
            if (index, term) in self._accepted:
                self._oracle.hold(self._name, index, term)
        self._accepted.clear()


class RecordingMachine:
    """State: every command applied, with its index."""

    def __init__(self, name: str, oracle: Oracle) -> None:
        self._name, self._oracle = name, oracle
        self.applied: list[tuple[int, bytes]] = []

    def apply(self, index: int, term: int, command: bytes) -> object:
        """See `RaftStateMachine`."""
        if self.applied and index <= self.applied[-1][0]:
            raise Violation(f"{self._name} applies index {index} behind {self.applied[-1][0]}")
        self._oracle.apply(self._name, index, term, command)
        self.applied.append((index, command))
        return index

    def capture(self) -> object:
        """See `RaftStateMachine`."""
        return list(self.applied)

    def encode(self, captured: object) -> Iterator[bytes]:
        """See `RaftStateMachine`."""
        assert isinstance(captured, list)
        for index, command in captured:
            yield b"%d %s\n" % (index, command)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """See `RaftStateMachine`."""
        pairs = (line.split(b" ", 1) for line in b"".join(chunks).split(b"\n") if line)
        self.applied = [(int(index), command) for index, command in pairs]
        for index, command in self.applied:
            if self._oracle.applied[index][1] != command:
                raise Violation(f"{self._name} restored another command at index {index}")

    def state_hash(self) -> bytes:
        """See `RaftStateMachine`."""
        return repr(self.applied).encode()


class HardenedPeer:
    """`world.Peer` around the product's `RaftMember`."""

    def __init__(self, name: str, world: World, **limits: int) -> None:
        self.name, self._world, self._limits = name, world, limits  # limits: fields of MemberSettings
        self._disk = Disk()
        self._armed: int | None = None
        self._rate = world.rng.uniform(0.95, 1.05)
        self._offset = world.rng.uniform(0.0, 1000.0)
        self._life = 0
        self._seen = (0, 0)
        self.member: RaftMember | None = None

    def _clock(self) -> float:
        return self._world.now * self._rate + self._offset

    def _step(self) -> None:
        """A moment at which an armed crash may happen."""
        if self._armed is not None:
            self._armed -= 1
            if self._armed < 0:
                self._armed = None
                raise Crash

    def boot(self) -> None:
        """See `Peer`."""
        self._life += 1
        self._seen = (0, 0)
        journal = WatchedJournal(self.name, self._world.oracle, self._disk, self._step)
        self._machine = RecordingMachine(self.name, self._world.oracle)
        others = tuple(name for name in self._world.names if name != self.name)
        settings = MemberSettings(self.name, others, **self._limits)
        self.member = RaftMember(
            settings,
            self._machine,
            journal,
            SimSnapshots(self._disk),
            Surroundings(self, self, self._clock, self._world.rng),
        )

    def live(self) -> RaftMember:
        """The running member."""
        assert self.member is not None
        return self.member

    # network and background of the member

    def send(self, peer: str, payload: bytes) -> None:
        """`gate.Network`."""
        self._step()
        if self.live().journal._hard:
            raise Violation(f"{self.name} sends with unsynced changes")
        self._world.send(self.name, peer, payload)

    def run(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """`member.Background`: the job and its end are events of their own, so that crashes fall between."""
        rng, life = self._world.rng, self._world.hosts[self.name].life

        def work() -> None:
            result = job()
            later = self._world.now + rng.uniform(0.0, 0.2)
            self._world.at(later, lambda: self._world.act(self.name, lambda: done(result, None), life))

        self._world.at(self._world.now + rng.uniform(0.0, 0.3), lambda: self._world.act(self.name, work, life))

    # events

    def connected(self, peer: str) -> None:
        """See `Peer`."""
        self.live().connected(peer)

    def disconnected(self, peer: str) -> None:
        """See `Peer`."""
        self.live().disconnected(peer)

    def received(self, peer: str, payload: Any) -> None:
        """See `Peer`."""
        self.live().received(peer, payload)

    def tick(self) -> None:
        """See `Peer`."""
        self.live().tick()

    def due(self) -> float | None:
        """See `Peer`."""
        due = self.live().next_tick()
        return None if due is None else (due - self._offset) / self._rate

    def propose(self, command: bytes) -> None:
        """See `Peer`."""
        future: Future[Applied] = Future()
        future.add_done_callback(lambda f: None if f.exception() else self._acked(command, f.result()))
        self.live().propose(PREFIX + command, future)

    def _acked(self, command: bytes, applied: Applied) -> None:
        self._world.note("ack", command, applied.index)
        try:
            self._world.oracle.ack(command, applied.index)
        except Violation as violation:
            self._world.failure = violation

    def read(self) -> None:
        """See `Peer`."""
        floor = self._world.oracle.acked_to
        future: Future[int] = Future()
        future.add_done_callback(lambda f: None if f.exception() else self._read(floor, f.result()))
        self.live().read(lambda machine: machine.applied[-1][0] if machine.applied else 0, future)

    def _read(self, floor: int, value: int) -> None:
        self._world.oracle.reads += 1
        if value < floor:
            self._world.failure = Violation(
                f"{self.name} answered a read from index {value}; {floor} was acknowledged before it"
            )

    def crash(self, hard: bool) -> None:
        """See `Peer`."""
        self.member = None
        self._armed = None

    def arm(self, steps: int) -> None:
        """See `Peer`."""
        self._armed = steps

    def transfer(self) -> None:
        """See `Peer`."""
        self.live().transfer_leadership(None, Future())

    def state(self) -> list[tuple[int, bytes]]:
        """See `Peer`."""
        return self._machine.applied

    @property
    def leads(self) -> bool:
        """Whether the node thinks that it leads."""
        return self.member is not None and self.member.raft.role == LEADER

    def observe(self) -> None:
        """See `Peer`."""
        member, oracle = self.live(), self._world.oracle
        raft, journal = member.raft, member.journal
        seen_term, seen_commit = self._seen
        if raft.role == LEADER and raft.term != seen_term:
            seen_term = raft.term
            oracle.leader(self.name, raft.term, journal.first_index, [entry[2] for entry in journal[:]])
        for index in range(max(seen_commit, journal.first_index) + 1, raft.commit_index + 1):
            command, _, term = journal[index - journal.first_index]
            oracle.commit(self.name, index, term, command)
        self._seen = (seen_term, max(seen_commit, raft.commit_index))


__all__ = ["HardenedPeer", "RaftError"]
