"""What primaries may repeat to one replica: equal shares, which may lie idle, and turns that never wait for those."""

import random

from holdfast.common.limits import MIB
from holdfast.worker.core.credits import CREDIT_LIFE_NS, Credits

#: the replica part of a worker with the default 256 MiB
BUDGET = 41 * MIB
LARGEST = 16 * MIB


def shares(budget: int = BUDGET) -> Credits:
    """The windows of one replica."""
    return Credits(budget, LARGEST, budget - LARGEST)


def send(all_of: Credits, primary: int, size: int) -> None:
    """Ask for what is sent at once, if it is beyond the window; send it and have it answered."""
    if all_of.window(primary) < size:
        assert primary in dict(all_of.ask(primary, size, 0)), f"{primary} has to wait"
    assert all_of.window(primary) >= size
    assert all_of.take(primary, size, 0)
    all_of.check()
    all_of.answered(primary, size, 0)
    all_of.check()


def test_idle_primaries_keep_nobody_waiting() -> None:
    """However many sent as much as they may and are idle now, the next one sends the largest push at once."""
    for budget in (LARGEST, LARGEST + 1, 20 * MIB, BUDGET, 300 * MIB):
        all_of = shares(budget)
        for primary in range(100):
            send(all_of, primary, LARGEST)
        assert all_of.waiting == 0


def test_shares_become_equal_and_grow_again() -> None:
    """Who is alone keeps the largest window; of five each keeps a fifth after a few pushes; those who go leave it."""
    all_of = shares()
    send(all_of, 0, 1 * MIB)
    assert all_of.window(0) == LARGEST
    for _ in range(3):
        for primary in range(5):
            for _ in range(LARGEST // MIB):
                send(all_of, primary, 1 * MIB)
    assert [all_of.window(primary) for primary in range(5)] == [5 * MIB] * 5
    for primary in range(1, 5):
        all_of.lost(primary, 0)
    send(all_of, 0, 1 * MIB)
    assert all_of.window(0) == LARGEST
    all_of.tick(CREDIT_LIFE_NS)
    assert all_of.held_bytes == 0
    all_of.check()


def test_what_is_on_its_way_stays_within_the_window() -> None:
    """A window shrinks by no more than is answered, so pushes that were sent before another primary came are taken."""
    all_of = shares()
    send(all_of, 1, MIB)
    sent, window = 0, all_of.window(1)
    assert all_of.take(1, MIB, 0)
    for primary in range(2, 9):
        send(all_of, primary, LARGEST)
    while sent + 2 * MIB <= window:
        all_of.answered(1, MIB, 0)
        sent += MIB
        assert all_of.take(1, MIB, 0)
        all_of.check()


class Primaries:
    """Primaries that send all that they asked for; each has one burst at a time."""

    def __init__(self, budget: int) -> None:
        self.all_of = shares(budget)
        #: what each asked for and was not granted; was granted and has not sent
        self.asked: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.flying: list[tuple[int, int]] = []

    def ask(self, primary: int, size: int) -> None:
        """A burst comes, if its last one is over."""
        if primary not in self.asked and primary not in self.left and all(primary != one for one, _ in self.flying):
            self.asked[primary] = size
            self.granted(self.all_of.ask(primary, size, 0))

    def granted(self, granted: list[tuple[int, int]]) -> None:
        """Those that were in line may send."""
        for primary, window in granted:
            assert window >= self.asked[primary]
            self.left[primary] = self.asked.pop(primary)

    def send(self, primary: int, size: int) -> None:
        """A part of a burst arrives: never beyond the window."""
        size = min(self.left[primary], size)
        assert self.all_of.take(primary, size, 0)
        self.flying.append((primary, size))
        self.left[primary] -= size
        if not self.left[primary]:
            del self.left[primary]

    def answer(self, index: int) -> None:
        """A part is answered."""
        self.granted(self.all_of.answered(*self.flying.pop(index), 0))

    def lose(self, primary: int) -> None:
        """A primary goes; another comes under its number when what it sent is answered."""
        self.asked.pop(primary, None)
        self.left.pop(primary, None)
        self.granted(self.all_of.lost(primary, 0))
        for one in [one for one in self.flying if one[0] == primary]:
            self.answer(self.flying.index(one))


def test_nobody_waits_for_a_timer_whatever_comes() -> None:
    """Primaries burst, come and go at random; all get their turns by answers alone, within the budget at every step."""
    rng = random.Random(7)
    for budget in (LARGEST, 18 * MIB, BUDGET):
        world = Primaries(budget)
        for _ in range(300):
            for _ in range(rng.randrange(60)):
                step, primary = rng.random(), rng.randrange(12)
                if step < 0.02:
                    world.lose(primary)
                elif step < 0.5:
                    world.ask(primary, rng.choice([1, MIB, LARGEST, rng.randint(1, LARGEST)]))
                elif step < 0.8 and primary in world.left:
                    world.send(primary, rng.randint(1, LARGEST))
                elif world.flying:
                    world.answer(rng.randrange(len(world.flying)))
                world.all_of.check()
            while world.left or world.flying:
                for primary in list(world.left):
                    world.send(primary, LARGEST)
                if world.flying:
                    world.answer(rng.randrange(len(world.flying)))
                world.all_of.check()
            assert world.all_of.waiting == len(world.asked) == 0
