"""Pre-votes: a master that comes back takes nothing away from a leader that works."""

from collections.abc import Callable

import pytest

from holdfast.master.raft.member import Member
from tests.raft.hardened import HardenedPeer
from tests.raft.world import World

SEEDS = range(25)
#: Several election timeouts.
AWAY_SECONDS = 6.0


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


KINDS = (isolated, deaf, without_the_leader, stopped, killed)


def deposed(seed: int, leave: Callable[[World, str, list[str]], None]) -> bool:
    """Whether a leader that works all the time loses its place to a follower that is away and comes back."""
    world = World(seed, ["m1", "m2", "m3"])
    peers = {name: HardenedPeer(name, world) for name in world.names}
    for name, peer in peers.items():
        world.add(name, peer)
        world.start(name)
    world.run(20.0, stop=lambda: any(peer.member is not None and peer.member.serving for peer in peers.values()))
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
    monkeypatch.setattr(Member, "_ask_first", lambda member: None)
    assert [
        leave.__name__ for leave in (isolated, deaf, stopped) if not any(deposed(seed, leave) for seed in SEEDS)
    ] == []
