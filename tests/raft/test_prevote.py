"""Pre-votes: a master that comes back deposes no leader that works, and a dead one costs one election."""

from collections.abc import Callable

import pytest

from holdfast.master.raft.member import MemberSettings, RaftMember
from holdfast.master.raft.prevote import PreVotes
from tests.raft.hardened import HardenedPeer
from tests.raft.world import World

SEEDS = range(25)
#: Several election timeouts.
AWAY_SECONDS = 6.0
#: One way between two masters on busy hosts: the pre-votes of two that ask at once often cross.
BUSY_SECONDS = (0.02, 0.06)


def isolated(world: World, away: str, others: list[str]) -> None:
    """Nothing reaches it and nothing leaves it; its connections stand."""
    for other in others:
        world.hold(away, other, AWAY_SECONDS)
        world.hold(other, away, AWAY_SECONDS)


def deaf(world: World, away: str, others: list[str]) -> None:
    """Nothing reaches it, and what it says is heard."""
    for other in others:
        world.hold(other, away, AWAY_SECONDS)


def without_the_leader(world: World, away: str, others: list[str]) -> None:
    """It hears the other follower, and nothing of the leader."""
    leader = next(name for name in others if world.hosts[name].peer.leads)
    world.hold(leader, away, AWAY_SECONDS)


def stopped(world: World, away: str, others: list[str]) -> None:
    """SIGSTOP, and SIGCONT later."""
    world.pause(away, AWAY_SECONDS)


def killed(world: World, away: str, others: list[str]) -> None:
    """kill -9, and a start later."""
    world.crash(away, hard=True)
    world.at(world.now + AWAY_SECONDS, lambda: world.start(away))


def cut_off(world: World, away: str, others: list[str]) -> None:
    """Its connections end, and it connects again."""
    for other in others:
        world.cut(away, other)


KINDS = (isolated, deaf, without_the_leader, stopped, killed, cut_off)


def with_leader(seed: int, members: int) -> tuple[World, dict[str, HardenedPeer]]:
    """A cluster whose leader serves."""
    world = World(seed, [f"m{number}" for number in range(1, members + 1)])
    peers = {name: HardenedPeer(name, world) for name in world.names}
    for name, peer in peers.items():
        world.add(name, peer)
        world.start(name)
    world.run(20.0, stop=lambda: served(peers))
    return world, peers


def served(peers: dict[str, HardenedPeer]) -> bool:
    """Whether one of them is a leader that takes commands."""
    return any(peer.member is not None and peer.member.serving for peer in peers.values())


def deposed(seed: int, leave: Callable[[World, str, list[str]], None]) -> bool:
    """Whether a leader that works all the time loses its place to a follower that is away and comes back."""
    world, peers = with_leader(seed, 3)
    world.run(world.now + 1.0)
    leader = next(name for name, peer in peers.items() if peer.leads)
    term = peers[leader].live().raft.term
    away = world.rng.choice([name for name in world.names if name != leader])
    leave(world, away, [name for name in world.names if name != away])
    end = world.now + AWAY_SECONDS + 4.0
    while world.now < end:
        world.run(world.now + 0.1)
        peers[leader].propose(b"%d" % seed + repr(world.now).encode())
        if not peers[leader].leads or peers[leader].live().raft.term != term:
            return True
    assert peers[away].live().raft.leader_id == leader, "it follows again"
    return False


@pytest.mark.parametrize("leave", KINDS)
def test_a15_who_comes_back_deposes_no_leader(leave: Callable[[World, str, list[str]], None]) -> None:
    """A follower that was cut off, deaf, stopped or killed comes back: the leader leads on, in its term."""
    assert [seed for seed in SEEDS if deposed(seed, leave)] == []


def test_a15_without_pre_votes_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stories without the question: leaders fall, or the test above would show nothing."""
    monkeypatch.setattr(RaftMember, "_ask_first", lambda member: None)
    assert [
        leave.__name__ for leave in (isolated, deaf, stopped) if not any(deposed(seed, leave) for seed in SEEDS)
    ] == []


def replaced(seed: int, members: int, slow: tuple[float, float] = BUSY_SECONDS) -> tuple[int, float]:
    """How many terms begin from the kill of a busy leader until another one serves, and how many seconds that takes."""
    world, peers = with_leader(seed, members)
    for sender in world.names:
        for receiver in world.names:
            world.slow(sender, receiver, slow, 60.0)
    end = world.now + 1.0 + world.rng.random()
    while world.now < end:
        world.run(world.now + 0.03)
        for peer in peers.values():
            if peer.leads:
                peer.propose(b"%d" % seed + repr(world.now).encode())
    leader = next(name for name, peer in peers.items() if peer.leads)
    before = peers[leader].live().raft.term
    world.crash(leader, hard=True)
    crashed = world.now
    left = {name: peer for name, peer in peers.items() if name != leader}
    world.run(world.now + 20.0, stop=lambda: served(left))
    return max(peer.live().raft.term for peer in left.values()) - before, world.now - crashed


def test_a15_a_killed_leader_costs_one_election() -> None:
    """Two masters whose time-outs end together do not split the votes, and none deposes whom it has just voted for."""
    assert {seed: count for seed in range(100) if (count := replaced(seed, 3)[0]) != 1} == {}


def test_a_killed_leader_is_replaced_before_its_silence_would_show() -> None:
    """The connections of a process that ends do, too: its followers wait for no election timeout (simulated time)."""
    shortest = MemberSettings("m1", []).election_min
    assert {seed: seconds for seed in range(100) if (seconds := replaced(seed, 3, (0.0, 0.0))[1]) >= shortest} == {}
    assert {seed: seconds for seed in range(100) if (seconds := replaced(seed, 5, (0.0, 0.0))[1]) >= shortest} == {}


def test_a15_if_none_gives_way_it_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kills, and all who ask go on: votes are split, or the test above would show nothing."""
    monkeypatch.setattr(PreVotes, "gives_way", lambda votes, peer, longer: False)
    assert sum(replaced(seed, 3)[0] for seed in range(100)) > 110


def test_a15_who_asks_in_vain_keeps_nobody_waiting() -> None:
    """A member that only one other can hear asks again and again: the other gives way once, then stands itself."""
    votes = PreVotes("m2", 5, 0.3, lambda: 0.0)
    assert votes.gives_way("m1", longer=False)
    assert not votes.gives_way("m1", longer=False), "it waits once"
    number = votes.begin()
    assert not votes.gives_way("m3", longer=False), "of two that ask, the first by name goes on"
    assert votes.gives_way("m3", longer=True), "or the one with the longer log"
    assert not votes.granted("m4", number, 1), "a round that gave way is over"
