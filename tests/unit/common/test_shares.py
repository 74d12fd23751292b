"""A bound that is divided among owners."""

import random

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.shares import Line, Shares
from holdfast.common.statuses import Status


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


def test_what_an_owner_may_have_is_divided_among_its_own() -> None:
    """However many applications a user makes, together they have what one user may have, and each leaves some of that
    to the next; another user finds room."""
    shares = Shares(1_000)
    assert shares.take((b"a", 1), 640)
    assert not shares.take((b"a", 1), 1)
    taken = [shares.take((b"a", number), 1) for number in range(2, 1_000)]
    assert shares.held((b"a",)) <= 800
    assert all(taken[:100])
    assert not taken[-1]
    assert shares.take((b"b", 1), 100)
    shares.check()
    shares.give((b"a", 1), 640)
    assert shares.take((b"a", 1_001), 300)
    shares.check()


def test_who_has_no_share_only_counts() -> None:
    """Nobody's is bounded by all there is, and others by what it leaves."""
    shares = Shares(1_000)
    assert shares.take((), 900)
    assert not shares.take((), 101)
    assert not shares.take((b"a", 1), 81)
    assert shares.take((), 100)
    shares.check()
    shares.give((), 1_000)
    assert shares.take((b"a",), 800)


def test_a_claim_is_refused_with_what_there_is_and_a_part_is_kept() -> None:
    """Past its most nobody gets more, however much is free, nor of the part that is kept for who is vital: they hear
    BUSY and how much is taken. Whoever claims nothing is never refused."""
    shares = Shares(100, most_each=50, reserved=20)
    shares.claim("a", "bytes", 50)
    with pytest.raises(RetryError, match=r"no room for bytes now \(50 of 100 taken, 50 of them by you\)") as refused:
        shares.claim("a", "bytes")
    assert refused.value.status is Status.BUSY
    shares.claim("b", "bytes", 24)
    with pytest.raises(RetryError):
        shares.claim("c", "bytes", 5)
    shares.claim("c", "bytes", 4)
    shares.claim("c", "bytes", 22, vital=True)
    with pytest.raises(RetryError):
        shares.claim("c", "bytes", vital=True)
    shares.claim("a", "bytes", 0)
    assert (shares.refused, shares.total) == (3, 100)
    with pytest.raises(AssertionError):
        shares.give("nobody", 1)


def test_a_line_serves_owners_in_turns_and_passes_over_who_has_a_share() -> None:
    """Many that one user waits for keep nobody else waiting; who leaves is not served."""
    shares = Shares(100)
    line: Line[str] = Line(shares)
    for number in range(50):
        line.join(f"mine {number}", ("me", number % 3))
    line.join("gone", ("they", 1))
    line.join("theirs", ("they", 1))
    line.leave("gone")
    line.leave("gone")
    served = []
    while (one := line.next(lambda _: 10)) is not None:
        shares.add(("they", 1) if one == "theirs" else ("me", int(one.split()[1]) % 3), 10)
        served.append(one)
    assert served[:4] == ["mine 0", "mine 1", "mine 2", "theirs"]
    assert "mine 3" in served
    assert shares.held(("me",)) == 60
    assert len(line) == 50 - 6
    assert "theirs" not in line
    assert "mine 49" in line


def test_who_has_nothing_gets_what_is_larger_than_a_share_and_is_not_overtaken() -> None:
    """What cannot be had in parts is had by one after the other."""
    shares = Shares(100)
    line: Line[str] = Line(shares)
    sizes = {"large": 100, "small": 1}
    shares.add("other", 10)
    line.join("large", "me")
    line.join("small", "they")
    assert line.next(sizes.__getitem__) is None
    shares.give("other", 10)
    assert line.next(sizes.__getitem__) == "large"
