# ruff: noqa: N818 (the names say what happened)
"""A simulated network and clocks for Raft members, and the oracles that watch them.

Rules: one thread, one heap of time, one seeded random; a node acts only inside an event, and after every event the
oracles look at what it changed. A node of the simulation is a `Peer` adapter: `hardened.HardenedPeer` runs the
product's member, `as_is.LibraryPeer` the library alone. Nothing here depends on PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class Violation(AssertionError):
    """Something happened that Raft forbids."""


class Stuck(Violation):
    """Nothing forbidden happened, but the cluster does not work although all faults have ended."""


class Crash(BaseException):
    """The simulated process ends in the middle of what it does."""


@dataclass(frozen=True, slots=True)
class Elected:
    """A leader with its log at its election: the index of the first entry, and the terms from there on."""

    node: str
    first: int
    terms: list[int]

    def term_at(self, index: int) -> int | None:
        """Term of an entry, None behind the end."""
        return self.terms[index - self.first] if index - self.first < len(self.terms) else None


@dataclass(frozen=True, slots=True)
class Committed:
    """What is committed at an index. `under` is the lowest term in which a majority accepted it, or an entry of that
    term behind it: every leader of a higher term must have it. The entry's own term may be lower (figure 8 of the Raft
    paper), and a leader of a term between the two owes nothing: it may even be elected later, by a vote on its way.
    """

    term: int
    command: bytes
    under: int


@dataclass
class Oracle:
    """What the whole cluster may know: checked as entries are written, stored, committed, applied and acknowledged.

    Entries count as committed when a majority has stored them, whether or not a leader has found out yet: what nodes
    say of commits is checked against this and is not believed.
    """

    majority: int
    leaders: dict[int, Elected] = field(default_factory=dict)
    entries: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    held: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    committed: dict[int, Committed] = field(default_factory=dict)
    committed_to: int = 1
    applied: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    acked_to: int = 0
    reads: int = 0

    def entry(self, node: str, command: bytes, index: int, term: int, prev_term: int) -> None:
        """An entry entered a log: equal (index, term) means equal command and equal past, everywhere."""
        known = self.entries.setdefault((index, term), (command, prev_term))
        if known != (command, prev_term):
            raise Violation(f"{node}: logs differ at index {index}, term {term}: {known} and {(command, prev_term)}")

    def hold(self, node: str, index: int, term: int) -> None:
        """An entry that a node accepted while it was in the entry's own term is on its disk."""
        holders = self.held.setdefault((index, term), set())
        holders.add(node)
        if len(holders) == self.majority:
            self._committed(index, term, term)

    def _committed(self, index: int, term: int, under: int) -> None:
        """An entry is committed, and all before it that were not, or only under a higher term."""
        self.committed_to = max(self.committed_to, index)
        while index > 1:
            command, prev_term = self.entries[(index, term)]
            known = self.committed.get(index)
            if known is not None and known.term != term:
                raise Violation(f"index {index} was committed as {known} and now as {(term, command)}")
            if known is not None and known.under <= under:
                return
            self.committed[index] = Committed(term, command, under)
            for leader_term, leader in self.leaders.items():
                if leader_term > under:
                    self._has(leader, leader_term, index)
            index, term = index - 1, prev_term

    def _has(self, leader: Elected, term: int, index: int) -> None:
        known = self.committed[index]
        if index >= leader.first and leader.term_at(index) != known.term:
            raise Violation(
                f"{leader.node} leads in term {term} without entry {index} of term {known.term}, "
                f"committed under term {known.under}"
            )

    def commit(self, node: str, index: int, term: int, command: bytes) -> None:
        """A node holds an entry for committed."""
        known = self.committed.get(index)
        if known is None:
            raise Violation(f"{node} takes entry {index} of term {term} for committed; no majority has stored it")
        if (known.term, known.command) != (term, command):
            raise Violation(f"{node}: index {index} was committed as {known} and now as {(term, command)}")

    def leader(self, node: str, term: int, first: int, terms: list[int]) -> None:
        """A node leads: alone in its term, and with everything in its log that is committed under lower terms."""
        known = self.leaders.setdefault(term, Elected(node, first, terms))
        if known.node != node:
            raise Violation(f"{known.node} and {node} both lead in term {term}")
        for index in range(max(first, 2), self.committed_to + 1):
            if self.committed[index].under < term:
                self._has(known, term, index)

    def apply(self, node: str, index: int, term: int, command: bytes) -> None:
        """A node applied a command."""
        known = self.applied.setdefault(index, (term, command))
        if known != (term, command):
            raise Violation(f"{node} applied {(term, command)} at index {index}, another applied {known}")

    def ack(self, command: bytes, index: int) -> None:
        """A proposer was told that its command is applied at `index`."""
        if command in self.acked:
            raise Violation(f"{command!r} was acknowledged twice")
        if self.applied.get(index, (0, b""))[1] != command:
            raise Violation(f"{command!r} was acknowledged at index {index}, where {self.applied.get(index)} is")
        self.acked[command] = index
        self.acked_to = max(self.acked_to, index)


class Peer(Protocol):
    """One node of the simulation, from start to crash."""

    @property
    def leads(self) -> bool:
        """Whether the node thinks that it leads."""

    def boot(self) -> None:
        """Start on the disk as it is."""

    def connected(self, peer: str) -> None:
        """A connection is open."""

    def disconnected(self, peer: str) -> None:
        """A connection ended."""

    def received(self, peer: str, payload: Any) -> None:
        """A message came."""

    def tick(self) -> None:
        """Act on messages and time."""

    def due(self) -> float | None:
        """Simulated time of the next tick needed."""

    def observe(self) -> None:
        """Show the oracle what changed."""

    def propose(self, command: bytes) -> None:
        """A client asks."""

    def read(self) -> None:
        """A client asks for a read that must be current."""

    def crash(self, hard: bool) -> None:
        """Lose memory; hard: also what the disk did not sync."""

    def arm(self, steps: int) -> None:
        """Crash in the middle of things: after that many more disk steps or sends."""

    def transfer(self) -> None:
        """Ask the leader to hand over."""

    def state(self) -> list[tuple[int, bytes]]:
        """What was applied, in order."""


@dataclass(eq=False)
class Connection:
    """Both directions between two nodes; after it broke, what arrives before the cutoff still counts."""

    ends: tuple[str, str]
    cutoff: dict[str, float] = field(default_factory=dict)  # receiver -> time
    last_arrival: dict[str, float] = field(default_factory=dict)
    queue: dict[str, deque[Any]] = field(default_factory=dict)  # receiver -> messages in order

    @property
    def alive(self) -> bool:
        """Not broken yet."""
        return not self.cutoff


@dataclass(eq=False)
class Host:
    """A machine with one node on it."""

    name: str
    peer: Peer
    up: bool = False
    paused: bool = False
    life: int = 0
    wake: int = 0
    backlog: list[Callable[[], None]] = field(default_factory=list)
    links: dict[str, Connection] = field(default_factory=dict)


class World:
    """Time, network and faults. `log` digests every event, so that two runs can be compared."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.oracle = Oracle(len(names) // 2 + 1)
        self.names = names
        self.hosts: dict[str, Host] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._conns: dict[tuple[str, str], Connection | None] = {}
        self._held: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._trace = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.failure: Violation | None = None  # found where raising does not reach us, e.g. in a future's callback
        self.power_loss = 0.5  # share of crashes that lose what was not synced

    # time

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, act))

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while self._heap and self._heap[0][0] <= until and not stop():
            self.now, _, act = heapq.heappop(self._heap)
            act()
        self.now = max(self.now, until) if not stop() else self.now

    def note(self, *what: object) -> None:
        """Add to the trace."""
        self._trace.update(repr((round(self.now, 9), *what)).encode())

    def digest(self) -> str:
        """Digest of everything noted."""
        return self._trace.hexdigest()

    # nodes

    def add(self, name: str, peer: Peer) -> None:
        """Put a node on the network, not yet started."""
        self.hosts[name] = Host(name, peer)

    def start(self, name: str) -> None:
        """Boot a node and connect it to whoever is up."""
        host = self.hosts[name]
        if host.up:
            return
        host.up, host.paused, host.life = True, False, host.life + 1
        self.note("start", name)
        self._guarded(host, host.peer.boot)
        for other in self.names:
            if other != name:
                self._reconnect(name, other)

    def act(self, name: str, what: Callable[[], None], life: int | None = None) -> None:
        """An event on a node: now, later if it is paused, never if it is down or was restarted since."""
        host = self.hosts[name]
        if not host.up or (life is not None and life != host.life):
            return
        if host.paused:
            host.backlog.append(what)
            return

        def work() -> None:
            what()
            host.peer.tick()

        self._guarded(host, work)

    def _guarded(self, host: Host, what: Callable[[], None]) -> None:
        self.events += 1
        try:
            what()
        except Crash:
            host.peer.observe()  # what it decided in its last moment may have been sent
            self.crash(host.name, hard=self.rng.random() < self.power_loss)
            self.at(self.now + self.rng.uniform(0.05, 1.5), lambda: self.start(host.name))
            return
        host.peer.observe()
        if self.failure is not None:
            raise self.failure
        self._schedule(host)

    def _schedule(self, host: Host) -> None:
        due = host.peer.due()
        host.wake += 1
        if due is not None:
            self.at(due + 1e-6, lambda wake=host.wake: self._wake(host, wake))  # type: ignore[misc]

    def _wake(self, host: Host, wake: int) -> None:
        if host.wake == wake:
            self.act(host.name, lambda: None)

    def crash(self, name: str, hard: bool) -> None:
        """Kill a node."""
        host = self.hosts[name]
        if not host.up:
            return
        self.note("crash", name, hard)
        host.up, host.paused, host.backlog = False, False, []
        host.wake += 1
        host.peer.crash(hard)
        for other in list(host.links):
            self.cut(name, other, sudden=self.rng.random() < 0.5)
        host.links.clear()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a node for a while; what happens to it meanwhile waits."""
        host = self.hosts[name]
        if host.up and not host.paused:
            host.paused = True
            life = host.life
            self.at(self.now + seconds, lambda: self._resume(host, life))

    def _resume(self, host: Host, life: int) -> None:
        if not self._lives(host, life):
            return
        host.paused = False
        backlog, host.backlog = host.backlog, []
        if self.rng.random() < 0.5:  # it was stopped between reading its sockets and looking at the clock
            self.act(host.name, lambda: None, life)
        for what in backlog:
            if self.rng.random() < 0.5:
                self.act(host.name, what, life)
            elif self._lives(host, life):  # several messages before one tick
                self._guarded(host, what)
        self.act(host.name, lambda: None, life)

    @staticmethod
    def _lives(host: Host, life: int) -> bool:
        return host.up and host.life == life

    # network

    def _pair(self, a: str, b: str) -> tuple[str, str]:
        return (a, b) if a < b else (b, a)

    def _reconnect(self, a: str, b: str) -> None:
        pair = self._pair(a, b)
        self.at(self.now + self.rng.uniform(0.005, 0.3), lambda: self._connect(*pair))

    def _connect(self, a: str, b: str) -> None:
        one, two = self.hosts[a], self.hosts[b]
        if not one.up or not two.up or b in one.links or a in two.links:
            return
        if one.paused or two.paused or self.held(a, b) or self.held(b, a):
            self._reconnect(a, b)
            return
        connection = Connection((a, b))
        one.links[b] = two.links[a] = connection
        self._conns[(a, b)] = connection
        self.note("connect", a, b)
        self.act(a, lambda: one.peer.connected(b))
        self.act(b, lambda: two.peer.connected(a))

    def send(self, sender: str, receiver: str, payload: Any) -> bool:
        """Called by nodes."""
        connection = self.hosts[sender].links.get(receiver)
        if connection is None or not connection.alive:
            return False
        delay = self.rng.uniform(0.0002, 0.004)
        low, high = self._slow.get((sender, receiver), (0.0, 0.0))
        arrival = max(self.now + delay + self.rng.uniform(low, high), connection.last_arrival.get(receiver, 0.0))
        connection.last_arrival[receiver] = arrival
        connection.queue.setdefault(receiver, deque()).append(payload)
        self.at(arrival, lambda: self._arrive(connection, sender, receiver))
        return True

    def _arrive(self, connection: Connection, sender: str, receiver: str) -> None:
        """One message of the direction comes, the oldest: a stream keeps its order."""
        if self.now > connection.cutoff.get(receiver, self.now):
            return
        held = self._held.get((sender, receiver), 0.0)
        if held > self.now:
            self.at(held, lambda: self._arrive(connection, sender, receiver))
            return
        host, payload = self.hosts[receiver], connection.queue[receiver].popleft()
        if host.links.get(sender) is connection:
            self.note("arrive", sender, receiver, payload)
            self.act(receiver, lambda: self._hand_over(host, connection, sender, payload))

    def _hand_over(self, host: Host, connection: Connection, sender: str, payload: Any) -> None:
        if host.links.get(sender) is connection:  # it may have ended while the node was paused
            host.peer.received(sender, payload)

    def held(self, a: str, b: str) -> bool:
        """Whether this direction is cut now."""
        return self._held.get((a, b), 0.0) > self.now

    def hold(self, a: str, b: str, seconds: float) -> None:
        """One-way cut: what is sent waits until it ends, or is lost with the connection."""
        self._held[(a, b)] = self.now + seconds

    def slow(self, a: str, b: str, delay: tuple[float, float], seconds: float) -> None:
        """Delays of one direction for a while."""
        self._slow[(a, b)] = delay
        self.at(self.now + seconds, lambda: self._end_slow(a, b))

    def _end_slow(self, a: str, b: str) -> None:
        self._slow.pop((a, b), None)

    def cut(self, a: str, b: str, sudden: bool = True) -> None:
        """Break the connection of two nodes; unless sudden, some of what is on its way still arrives."""
        connection = self._conns.get(self._pair(a, b))
        if connection is None or not connection.alive:
            return
        self.note("cut", a, b)
        for name in connection.ends:
            connection.cutoff[name] = self.now + (0.0 if sudden else self.rng.uniform(0.0, 0.05))
        for name, other in (connection.ends, connection.ends[::-1]):
            life = self.hosts[name].life
            self.at(connection.cutoff[name], lambda n=name, o=other, li=life: self._ended(n, o, connection, li))  # type: ignore[misc]
        self.at(self.now + 0.05, lambda: self._reconnect(a, b))

    def _ended(self, name: str, other: str, connection: Connection, life: int) -> None:
        host = self.hosts[name]
        if host.links.get(other) is connection and host.life == life:
            self.act(name, lambda: self._end(host, other, connection))

    def _end(self, host: Host, other: str, connection: Connection) -> None:
        if host.links.get(other) is connection:
            del host.links[other]
            host.peer.disconnected(other)
            self._reconnect(host.name, other)

    def heal(self) -> None:
        """End all faults."""
        self._held.clear()
        self._slow.clear()
