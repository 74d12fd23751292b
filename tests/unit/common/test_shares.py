"""A bound that is divided among owners."""

import random

from holdfast.common.shares import Shares


def test_one_alone_has_most_and_leaves_room_for_the_next() -> None:
    """Four fifths for who is alone; the next one has four fifths of the rest, and what is given back is there again."""
    shares = Shares(1_000)
    assert shares.take(b"a", 800)
    assert not shares.take(b"a", 1)
    assert shares.take(b"b", 160)
    assert not shares.take(b"b", 1)
    assert shares.take(b"c", 32)
    shares.give(b"a", 800)
    assert shares.take(b"b", 1)
    shares.check()


def test_random_use_never_goes_beyond_the_bound() -> None:
    """Whatever is taken and given back, the sums are right, and somebody new gets something while a fifth is free."""
    chance = random.Random(1)
    shares = Shares(500)
    held = dict.fromkeys((b"a", b"b", b"c"), 0)
    for _ in range(2_000):
        owner, size = chance.choice(sorted(held)), chance.randrange(100)
        if chance.random() < 0.5:
            held[owner] += size if shares.take(owner, size) else 0
        elif held[owner] >= size:
            shares.give(owner, size)
            held[owner] -= size
        shares.check()
        assert shares.total == sum(held.values())
        assert shares.total == 500 or shares.fits(b"new", 1) or shares.total > 495
