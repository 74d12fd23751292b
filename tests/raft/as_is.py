"""The library as it is in the simulation: its own Raft, its own journal's habits, nothing of the product.

The disk has its two levels: what the kernel has (each journal operation one by one: what kill -9 leaves) and what was
written back some time ago (what a power loss leaves, since the library never syncs its journal).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.master.raft import library
from tests.raft.world import Crash, Oracle, World

WRITEBACK_SECONDS = 5.0


@dataclass
class LibraryDisk:
    """The journal file and its meta file, in the kernel and on the platter."""

    log: list[tuple[bytes, int, int]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    platter: tuple[list[tuple[bytes, int, int]], dict[str, Any]] = field(default_factory=lambda: ([], {}))
    written_back: float = 0.0


class LibraryJournal:
    """What pysyncobj's FileJournal does, on a `LibraryDisk`; every operation is a step at which the node may end."""

    def __init__(self, disk: LibraryDisk, peer: LibraryPeer, oracle: Oracle) -> None:
        self._disk, self._peer, self._oracle = disk, peer, oracle
        self._meta = dict(disk.meta)

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append."""
        if self._disk.log:
            self._oracle.entry(self._peer.name, command, idx, term, self._disk.log[-1][2])
        self._disk.log.append((command, idx, term))
        if term == self.getCurrentTerm():
            self._oracle.hold(self._peer.name, idx, term)
        self._peer.step()

    def clear(self) -> None:
        """Forget all."""
        self._disk.log.clear()

    def deleteEntriesFrom(self, entry: int) -> None:  # noqa: N802
        """Truncate."""
        del self._disk.log[entry:]
        self._peer.step()

    def deleteEntriesTo(self, entry: int) -> None:  # noqa: N802
        """Drop the head."""
        del self._disk.log[:entry]

    def __getitem__(self, item: Any) -> Any:
        return self._disk.log[item]

    def __len__(self) -> int:
        return len(self._disk.log)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Noted; written by the timer."""
        self._meta["commit"] = index

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The one noted."""
        return int(self._meta.get("commit", 1))

    def setCurrentTerm(self, term: int, vote: str | None) -> None:  # noqa: N802
        """Written at once (not synced)."""
        self._meta.update(term=term, vote=vote)
        self._disk.meta = dict(self._meta)
        self._peer.step()

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The one noted."""
        return int(self._meta.get("term", 0))

    def getVotedForNodeId(self) -> Any:  # noqa: N802
        """The one noted."""
        return self._meta.get("vote")

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Write the meta file."""
        self._disk.meta = dict(self._meta)

    def _destroy(self) -> None:
        """Nothing to release."""


class LibraryTransport:
    """The transport object over the simulated network; nothing is checked or stamped."""

    ready = True

    def __init__(self, peer: LibraryPeer, world: World) -> None:
        self._peer, self._world = peer, world

        self.on_message: Callable[[Any, Any], None]
        self.on_connected: Callable[[Any], None]
        self.on_disconnected: Callable[[Any], None]

    def setOnMessageReceivedCallback(self, callback: Callable[[Any, Any], None]) -> None:  # noqa: N802
        """Where messages go."""
        self.on_message = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        """Told of connections."""
        self.on_connected = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        """Told of their ends."""
        self.on_disconnected = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Unused."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Unused."""

    def setOnUtilityMessageCallback(self, message: str, callback: object) -> None:  # noqa: N802
        """Unused."""

    def tryGetReady(self) -> None:  # noqa: N802
        """Always ready."""

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        """Send as it is."""
        return self._world.send(self._peer.name, node.id, message)


class LibraryPeer:
    """`world.Peer` around the library's SyncObj with its default settings but immediate appends."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self._world = name, world
        self._disk = LibraryDisk()
        self._armed: int | None = None
        self._offset = world.rng.uniform(0.0, 1000.0)
        self._so: Any = None
        self._applied: list[tuple[int, bytes]] = []
        self._seen = (0, 0)

    def step(self) -> None:
        """A moment at which an armed crash may happen."""
        if self._armed is not None:
            self._armed -= 1
            if self._armed < 0:
                self._armed = None
                raise Crash

    def boot(self) -> None:
        """See `Peer`."""
        self._seen, self._applied = (0, 0), []
        module = library.load(lambda: self._world.now + self._offset, self._world.rng)
        module.createJournal = lambda given: given
        module.createPoller = lambda _kind: library.NoPoller()
        module.PIPE_NOTIFIER_ENABLED = False
        module.logger.disabled = True
        apply = self._apply

        def do_apply(so: Any, command: bytes) -> int:
            return apply(so, command)

        class Node(module.Node):  # type: ignore[misc, name-defined] # the library is untyped
            def __hash__(self) -> int:
                return zlib.crc32(self.id.encode())

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Node) and bool(self.id == other.id)

        kind = type("Recording", (module.SyncObj,), {"_SyncObj__doApplyCommand": do_apply})
        conf = module.SyncObjConf(
            autoTick=False,
            journalFile=LibraryJournal(self._disk, self, self._world.oracle),
            appendEntriesUseBatch=False,
            commandsWaitLeader=False,
        )
        self.transport = LibraryTransport(self, self._world)
        self._nodes = {name: Node(name) for name in self._world.names}
        others = [node for name, node in self._nodes.items() if name != self.name]
        self._so = kind(self._nodes[self.name], others, conf, transport=self.transport)

    def _apply(self, so: Any, command: bytes) -> int:
        index = so.raftLastApplied + 1
        term = next(entry[2] for entry in reversed(self._disk.log) if entry[1] == index)
        if command[0] == 0:
            self._world.oracle.apply(self.name, index, term, command[1:])
            self._applied.append((index, command[1:]))
        return int(index)

    def connected(self, peer: str) -> None:
        """See `Peer`."""
        self.transport.on_connected(self._nodes[peer])

    def disconnected(self, peer: str) -> None:
        """See `Peer`."""
        self.transport.on_disconnected(self._nodes[peer])

    def received(self, peer: str, payload: Any) -> None:
        """See `Peer`."""
        self.transport.on_message(self._nodes[peer], payload)

    def tick(self) -> None:
        """See `Peer`."""
        if self._world.now - self._disk.written_back > WRITEBACK_SECONDS:
            self._disk.written_back = self._world.now
            self._disk.platter = (list(self._disk.log), dict(self._disk.meta))
        self._so.doTick(0)

    def due(self) -> float | None:
        """See `Peer`."""
        return self._world.now + 0.05

    def propose(self, command: bytes) -> None:
        """See `Peer`."""
        self._so._applyCommand(command, lambda index, error: self._answered(command, index, error), 0)

    def _answered(self, command: bytes, index: Any, error: int) -> None:
        if error == 0:
            self._world.note("ack", command, index)
            self._world.oracle.ack(command, index)

    def read(self) -> None:
        """The library has no confirmed reads."""

    def crash(self, hard: bool) -> None:
        """See `Peer`."""
        self._so = None
        self._armed = None
        if hard:
            self._disk.log, self._disk.meta = list(self._disk.platter[0]), dict(self._disk.platter[1])

    def arm(self, steps: int) -> None:
        """See `Peer`."""
        self._armed = steps

    def transfer(self) -> None:
        """See `Peer`."""
        self._so.transferLeadership()

    def state(self) -> list[tuple[int, bytes]]:
        """See `Peer`."""
        return self._applied

    @property
    def leads(self) -> bool:
        """Whether the node thinks that it leads."""
        return self._so is not None and bool(self._so._isLeader())

    def observe(self) -> None:
        """See `Peer`."""
        so, log, oracle = self._so, self._disk.log, self._world.oracle
        seen_term, seen_commit = self._seen
        if so._isLeader() and so.raftCurrentTerm != seen_term:
            seen_term = so.raftCurrentTerm
            oracle.leader(self.name, seen_term, 1, [entry[2] for entry in log])
        for index in range(max(seen_commit, 1) + 1, min(so.raftCommitIndex, len(log)) + 1):
            command, _, term = log[index - 1]
            oracle.commit(self.name, index, term, command)
        self._seen = (seen_term, max(seen_commit, so.raftCommitIndex))
