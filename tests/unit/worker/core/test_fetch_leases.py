"""Who may fetch from the DFS: room is taken at once or not at all, and nobody keeps it from those who wait."""

import random

import pytest

from holdfast.worker.core.read.fetch_leases import (
    HOLD_NS,
    IDLE_NS,
    LEASES_MAX,
    LOOK_NS,
    TURN_NS,
    FetchLease,
    FetchLeases,
)


class World:
    """FetchLeases of 100 bytes, and a clock."""

    def __init__(self, size: int = 100) -> None:
        self.now = 0
        self.leases = FetchLeases(size, lambda: self.now)
        self.revoked: list[str] = []

    def lease(self, name: str, size: int = 40) -> FetchLease:
        """What a stream has to begin with: nothing."""
        return FetchLease(self.leases, lambda: self.revoked.append(name), size)


@pytest.fixture
def world() -> World:
    """A new one."""
    return World()


def test_room_is_taken_at_once_or_not_at_all(world: World) -> None:
    """Past the bound a stream waits and holds nothing; when a lease is given back it is let in."""
    one, two, three = world.lease("one"), world.lease("two"), world.lease("three")
    assert (one.take(), two.take(), three.take()) == (True, True, False)
    assert (world.leases.held_bytes, world.leases.crowded) == (80, True)
    one.leave()
    assert (three.take(), world.leases.held_bytes, world.leases.crowded) == (True, 80, False)
    world.leases.check()


def test_who_came_first_is_let_in_first(world: World) -> None:
    """A small one that comes later does not pass by a large one, which so is let in some day."""
    one, large, small = world.lease("one"), world.lease("large", 90), world.lease("small", 10)
    assert (one.take(), large.take(), small.take()) == (True, False, False)
    one.leave()
    assert (small.take(), large.take()) == (True, True)


def test_what_is_larger_than_everything_sits_alone(world: World) -> None:
    """It is let in when nobody else sits."""
    one, huge, two = world.lease("one"), world.lease("huge", 1_000), world.lease("two")
    assert (one.take(), huge.take(), two.take()) == (True, False, False)
    one.leave()
    assert (huge.take(), two.take()) == (True, False)
    world.leases.check()


def test_leases_are_bounded_in_number() -> None:
    """However small they are."""
    world = World(10 * LEASES_MAX)
    leases = [world.lease(str(number), 1) for number in range(LEASES_MAX + 1)]
    assert [lease.take() for lease in leases] == [True] * LEASES_MAX + [False]


def test_an_idle_lease_goes_to_who_waits(world: World) -> None:
    """Its stream is told; while nobody waits it is kept."""
    one, two, three = world.lease("one"), world.lease("two"), world.lease("three")
    one.take()
    two.take()
    world.now += IDLE_NS + 1
    assert two.take()
    assert world.revoked == []
    assert three.take()
    assert world.revoked == ["one"]
    world.leases.check()


def test_nobody_sits_over_one_chunk_for_ever(world: World) -> None:
    """A reader that takes a byte now and then loses its lease to who waits; time that the DFS takes does not count."""
    slow, fetching, third = world.lease("slow"), world.lease("fetching"), world.lease("third")
    slow.take()
    fetching.take()
    for _ in range(0, HOLD_NS, IDLE_NS // 2):
        assert (slow.take(), fetching.take(), third.take()) == (True, True, False)
        fetching.renew()
        world.now += IDLE_NS // 2
    world.now += LOOK_NS
    fetching.take()
    slow.take()
    assert (third.take(), world.revoked) == (True, ["slow"])


def test_who_waits_no_more_holds_nobody_up(world: World) -> None:
    """A place in the queue that is not asked for is passed by, and can be taken again."""
    one, gone, two = world.lease("one", 100), world.lease("gone"), world.lease("two")
    assert (one.take(), gone.take()) == (True, False)
    world.now += IDLE_NS + 1
    assert (one.take(), two.take()) == (True, False)
    one.leave()
    assert (two.take(), gone.take()) == (True, True)


def test_a_turn_ends_when_others_wait(world: World) -> None:
    """Not before its time, and not while nobody waits."""
    one, two = world.lease("one", 100), world.lease("two")
    one.take()
    world.now += TURN_NS + 1
    before = one.turn_over
    one.take()
    two.take()
    assert (before, one.turn_over) == (False, True)
    one.leave()
    assert (two.take(), two.turn_over, one.take()) == (True, False, False)


@pytest.mark.parametrize("seed", range(20))
def test_everybody_is_let_in_some_day(seed: int) -> None:
    """Streams that need many leases in all, of any size, some of which stop asking: all others get what they need."""
    rng, world = random.Random(seed), World()
    needs = {world.lease(str(number), rng.randint(1, 120)): rng.randint(1, 5) for number in range(30)}
    stopped = set(rng.sample(list(needs), 5))
    for _ in range(20_000):
        lease = rng.choice(list(needs))
        world.now += rng.randrange(LOOK_NS)
        if lease in stopped:
            if rng.random() < 0.01:
                lease.take()
        elif lease.take() and rng.random() < 0.5:
            needs[lease] -= 1
            lease.leave()
            if not needs[lease]:
                del needs[lease]
        world.leases.check()
        if not needs.keys() - stopped:
            return
    pytest.fail(f"{len(needs.keys() - stopped)} still wait")
