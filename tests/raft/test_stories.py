"""Scripted stories of what goes wrong in the library as it is, each told again to the product's member.

A `Stage` is a world whose clock stands and whose messages wait until the script lets them pass, in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.master.raft import codec
from tests.raft.as_is import LibraryPeer
from tests.raft.hardened import HardenedPeer
from tests.raft.world import Violation, World

NEVER = 1e18


class Stage(World):
    """Three connected nodes a, b, c; nothing moves by itself."""

    def __init__(self, make: Callable[[str, World], Any]) -> None:
        super().__init__(1, ["a", "b", "c"])
        self.queues: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        self.peers = {name: make(name, self) for name in self.names}
        for name, peer in self.peers.items():
            self.add(name, peer)
            peer.boot()
        for name, peer in self.peers.items():
            for other in self.names:
                if other != name:
                    peer.connected(other)

    def send(self, sender: str, receiver: str, payload: Any) -> bool:
        """Messages wait."""
        self.queues[(sender, receiver)].append(payload)
        return True

    def raft(self, name: str) -> Any:
        """The library's object of a node."""
        peer = self.peers[name]
        return peer.live().raft if isinstance(peer, HardenedPeer) else peer._so

    def act(self, name: str, what: Callable[[], None], life: int | None = None) -> None:
        """What a node does in the background is done at once when it is due."""
        what()

    def settle(self) -> None:
        """Let work in the background end (at most 0.3 s, and 0.2 s until it is told of), before a leader falls back."""
        self.run(self.now + 0.5)

    def log(self, name: str) -> list[tuple[int, int]]:
        """(index, term) of a node's entries."""
        return [(index, term) for _, index, term in self.raft(name)._SyncObj__raftLog[:]]

    def tick(self, name: str, stand: bool = False) -> None:
        """Let a node act; it stands for election only if told to."""
        raft = self.raft(name)
        raft._SyncObj__raftElectionDeadline = -NEVER if stand else NEVER
        raft._SyncObj__transferInProgress |= stand  # as if the leader had asked it to: nobody is asked before
        self.peers[name].tick()
        self.peers[name].observe()

    def deliver(self, sender: str, receiver: str, until: Callable[[], bool] = lambda: False) -> None:
        """Let what waits in one direction pass."""
        queue = self.queues[(sender, receiver)]
        while queue and not until():
            self.peers[receiver].received(sender, queue.popleft())
            self.tick(receiver)

    def drop(self, *pairs: str) -> None:
        """What waits in these directions ("ab": from a to b) is lost."""
        for pair in pairs:
            self.queues[(pair[0], pair[1])].clear()

    def elect(self, name: str, voter: str) -> None:
        """`name` stands, `voter` hears of it, and its answer is heard."""
        self.tick(name, stand=True)
        self.deliver(name, voter)
        self.deliver(voter, name, until=lambda: self.peers[name].leads)
        assert self.peers[name].leads

    def talk(self, one: str, other: str, rounds: int = 12) -> None:
        """Both directions pass, with heartbeats, until both are quiet."""
        for _ in range(rounds):
            self.now += 0.2
            self.tick(one)
            self.deliver(one, other)
            self.deliver(other, one)


def old_entries(stage: Stage, size: int) -> None:
    """a leads in term 3 and b has its four entries of term 1; c, whose last term is 2, may still replace them.

    b's last answer waits. This is figure 8 of the Raft paper up to (c).
    """
    stage.elect("a", "b")
    stage.talk("a", "b")
    stage.talk("a", "c")
    for number in range(4):
        stage.peers["a"].propose(b"x%d" % number + bytes(size))
    stage.tick("a")
    stage.drop("ab", "ac")
    stage.elect("c", "b")  # term 2: its first entry reaches nobody
    stage.deliver("c", "a", until=lambda: not stage.peers["a"].leads)
    stage.drop("cb", "ca", "ba", "bc", "ac", "ab")
    stage.elect("a", "b")  # term 3: has four entries of term 1 that b and c have not
    stage.deliver("a", "c", until=lambda: not stage.peers["c"].leads)
    for _ in range(3):  # b refuses, a steps back and sends all; the last one, of term 3, stays on the way
        stage.deliver("a", "b", until=lambda: stage.log("b")[-1][0] >= 6)
        if stage.log("b")[-1] == (6, 1):
            break
        stage.deliver("b", "a")
        stage.now += 0.2
        stage.tick("a")
    assert stage.log("b")[-1] == (6, 1)


def late_answer(stage: Stage, size: int) -> None:
    """Row 2: b's answer to an append of a's leadership in term 3 is delivered in a's leadership of term 5.

    In between c, of a higher last term, has rightly replaced the entries that the answer speaks of, on b and on a.
    """
    old_entries(stage, size)
    late = list(stage.queues[("b", "a")])  # "I have up to 6", in term 3: on its way for a long time
    assert late
    stage.drop("ba", "ac", "ab", "ca", "cb", "bc")
    stage.elect("c", "b")  # term 4: its last term is 2, b's is 1
    stage.talk("c", "b")
    stage.deliver("c", "a", until=lambda: not stage.peers["a"].leads)
    stage.talk("c", "a")
    assert stage.log("a") == stage.log("b") == stage.log("c") == [(1, 0), (2, 1), (3, 2), (4, 4)]
    stage.drop("ab", "ac", "ba", "ca", "cb", "bc")
    stage.elect("a", "c")  # term 5
    stage.drop("ab", "ac", "ca")
    stage.queues[("b", "a")].extend(late)
    stage.deliver("b", "a")
    stage.peers["a"].propose(b"y")
    for _ in range(3):
        stage.now += 0.05
        stage.tick("a")
    stage.drop("ab", "ac")
    stage.tick("b", stand=True)  # term 5, in which c has voted already
    stage.drop("bc", "ba")
    stage.elect("b", "c")  # term 6: a is cut off, and what it has alone may be forgotten
    stage.drop("ba")
    stage.talk("b", "c")


def test_row_2_on_the_library_as_it_is() -> None:
    """The late answer makes a commit what it holds alone; the next leader need not have it."""
    stage = Stage(LibraryPeer)
    with pytest.raises(Violation, match="entry 5 of term 5 for committed; no majority has stored it"):
        late_answer(stage, size=20_000)


def test_row_2_on_the_product() -> None:
    """An answer counts in the term of the append that it answers: nothing is committed alone."""
    stage = Stage(HardenedPeer)
    late_answer(stage, size=300_000)
    assert b"y" not in stage.oracle.acked
    assert stage.log("b") == stage.log("c")


def resend(stage: Stage) -> None:
    """Row 3: an append that was overtaken comes once more; behind what it says the follower has acknowledged more."""
    stage.elect("a", "b")
    stage.talk("a", "b")
    stage.talk("a", "c")
    stage.peers["a"].propose(b"one")
    stage.now += 0.05
    stage.tick("a")
    old = list(stage.queues[("a", "b")])
    stage.talk("a", "b")
    stage.peers["a"].propose(b"two")
    stage.now += 0.05
    stage.talk("a", "b")
    assert b"two" in stage.oracle.acked
    stage.drop("ab", "ba", "ac", "ca")
    stage.queues[("a", "b")].extend(old)
    stage.deliver("a", "b")  # delayed on an earlier connection


def test_row_3_on_the_library_as_it_is() -> None:
    """The follower forgets the entry that it acknowledged last, although nothing contradicts it."""
    stage = Stage(LibraryPeer)
    resend(stage)
    assert stage.log("b")[-1][0] == 3
    assert stage.log("a")[-1][0] == 4


def test_row_3_on_the_product() -> None:
    """The follower drops the old append and keeps what it acknowledged."""
    stage = Stage(HardenedPeer)
    resend(stage)
    assert stage.log("b") == stage.log("a")
    assert stage.log("b")[-1][0] == 4


def test_old_terms_are_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper: entries of term 1 reach a majority in term 3, are not committed, and go."""
    stage = Stage(HardenedPeer)
    old_entries(stage, size=300_000)
    stage.deliver("b", "a")
    assert stage.peers["a"].live().match_index("b") == 6
    assert stage.raft("a").commit_index == 2
    stage.drop("ab", "ac", "ba", "ca", "cb", "bc")
    stage.elect("c", "b")  # term 4
    stage.talk("c", "b")
    assert stage.log("b") == stage.log("c") == [(1, 0), (2, 1), (3, 2), (4, 4)]


def test_a_late_vote_makes_a_leader_that_can_do_nothing() -> None:
    """c is elected in term 2 after x was committed under term 3, and lacks x: it commits and answers nothing."""
    stage = Stage(HardenedPeer)
    stage.elect("a", "b")
    stage.talk("a", "b")
    stage.talk("a", "c")
    stage.peers["a"].propose(b"x")
    stage.tick("a")
    stage.drop("ab", "ac")  # x, of term 1, is on a alone
    stage.tick("c", stand=True)
    stage.deliver("c", "b")  # b's vote in term 2 will be long on its way
    stage.deliver("c", "a")
    stage.elect("a", "b")
    stage.talk("a", "b")
    assert stage.log("b") == [(1, 0), (2, 1), (3, 1), (4, 3)]
    assert stage.raft("a").commit_index == stage.raft("b").commit_index == 4
    stage.drop("ac")
    stage.deliver("b", "c")
    assert stage.peers["c"].leads
    assert stage.log("c") == [(1, 0), (2, 1), (3, 2)]
    stage.peers["c"].read()
    stage.talk("c", "b", rounds=3)
    stage.deliver("c", "a")
    assert stage.raft("c").commit_index == 2
    assert stage.oracle.reads == 0
    assert stage.log("a") == stage.log("b") == [(1, 0), (2, 1), (3, 1), (4, 3)]
    stage.talk("a", "c")
    assert stage.log("c") == stage.log("a")


def test_a_follower_has_caught_up_when_it_has_what_was_committed() -> None:
    """Heartbeats behind entries that c lacks do not count, nor those of a leader that has committed nothing in its term
    and may not know what is; nor does a start, until the leader has spoken."""
    stage = Stage(HardenedPeer)
    gate = stage.peers["c"].live().gate
    stage.elect("a", "b")
    for _ in range(3):  # nobody has answered yet
        stage.now += 0.1
        stage.tick("a")
        stage.deliver("a", "c")
    assert stage.log("c") == stage.log("a")
    assert not gate.caught_up
    stage.talk("a", "b")
    for number in range(4):
        stage.peers["a"].propose(b"c%d" % number)
    stage.talk("a", "b")
    stage.drop("ac", "ca")
    stage.now += 0.2
    stage.tick("a")
    stage.deliver("a", "c")
    assert not gate.caught_up
    stage.talk("a", "c")
    assert gate.caught_up
    assert stage.log("c") == stage.log("a")
    stage.peers["c"].crash(hard=True)
    stage.peers["c"].boot()
    assert not stage.peers["c"].live().gate.caught_up


def test_row_16_on_the_product() -> None:
    """A leader that takes b to be far behind sends it a snapshot: b has all of it and more, and keeps its log."""
    stage = Stage(lambda name, world: HardenedPeer(name, world, compact_entries=8))
    stage.elect("a", "b")
    stage.talk("a", "b")
    for number in range(12):
        stage.peers["a"].propose(b"c%d" % number)
    stage.talk("a", "b")
    stage.settle()
    stage.peers["a"].propose(b"acknowledged")
    stage.talk("a", "b")
    assert b"acknowledged" in stage.oracle.acked
    before = stage.log("b")
    assert before[0][0] > 1
    assert before[-1] == stage.log("a")[-1]
    raft = stage.raft("a")
    raft.next_index[next(node for node in raft.next_index if node.id == "b")] = 2
    stage.now += 0.2
    stage.tick("a")
    parts = [codec.decode(payload) for payload in stage.queues[("a", "b")]]
    assert any(isinstance(part, codec.SnapshotPart) and part.data for part in parts)
    stage.deliver("a", "b", until=lambda: len(stage.queues[("a", "b")]) == 0)
    stage.drop("ab", "ac")  # what follows the snapshot is lost
    stage.settle()
    assert stage.log("b") == before
    stage.peers["b"].crash(hard=True)
    stage.peers["b"].boot()
    assert stage.log("b") == before
