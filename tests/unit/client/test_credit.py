"""How attempts share the window that a worker gives their connection."""

import random

from holdfast.client.core.write.credit import ASK_BYTES, ASK_BYTES_MIN, AskWorker, CreditLine, Effect, Give


def test_the_worker_is_asked_once_for_all() -> None:
    """Who comes first is served first; the others follow as far as the window reaches, and as answers come."""
    line = CreditLine()
    assert line.want(1, 10, 60) == [AskWorker(ASK_BYTES_MIN)]
    assert line.want(2, 10, 60) == []
    assert line.granted(100) == [Give(1, 60), Give(2, 40)]
    assert line.want(3, 10, 10) == []
    assert line.answered(60, 100) == [Give(3, 10)]
    line.check()


def test_a_window_of_nothing_means_ask_again() -> None:
    """A worker that others wait for says 0, and the next push has to stand in line for room."""
    line = CreditLine()
    line.want(1, 10, 10)
    line.granted(100)
    assert line.answered(10, 0) == []
    assert line.want(1, 10, 10) == [AskWorker(ASK_BYTES_MIN)]


def test_a_batch_larger_than_the_window_asks_for_its_size() -> None:
    """More is asked for than usual if one batch needs it; where that is not granted the push itself gets the answer."""
    line = CreditLine(window=100)
    assert line.want(1, 2 * ASK_BYTES, 2 * ASK_BYTES) == [AskWorker(2 * ASK_BYTES)]
    assert line.granted(50) == [Give(1, 2 * ASK_BYTES)]


def test_a_lapsed_window_is_forgotten() -> None:
    """A push that the worker calls beyond its window takes the window with it."""
    line = CreditLine(window=100)
    assert line.want(1, 10, 10) == [Give(1, 10)]
    assert line.answered(10, 0) == []
    assert line.want(1, 10, 10) == [AskWorker(ASK_BYTES_MIN)]


def test_room_that_is_not_used_goes_to_the_next() -> None:
    """What an attempt gives back, or an attempt that leaves, makes room."""
    line = CreditLine(window=100)
    assert line.want(1, 10, 100) == [Give(1, 100)]
    assert line.want(2, 50, 50) == []
    assert line.want(3, 10, 10) == []
    line.left(2)
    assert line.returned(40) == [Give(3, 10)]


def test_what_is_asked_for_doubles_in_calm_and_halves_where_others_wait() -> None:
    """A worker that lets us have our window is asked for twice as much, up to the most; one that takes it back for
    others is asked for half, down to the least."""
    line = CreditLine()
    size = ASK_BYTES_MIN
    assert line.want(1, size, size) == [AskWorker(size)]
    while size < ASK_BYTES:
        assert line.granted(size)[0] == Give(1, size)
        assert line.answered(size, size) == []
        assert line.want(2, 10, size) == [Give(2, size)]
        size = min(2 * size, ASK_BYTES)
        assert line.want(1, size, size) == [AskWorker(size)], "although some of the window is unanswered"
        assert line.answered(line.given, line.window) == []
    assert line.granted(size) == [Give(1, size)]
    for turn in range(1, 6):
        assert line.answered(line.given, 0) == []
        least = max(ASK_BYTES >> turn, ASK_BYTES_MIN)
        assert line.want(1, 100, ASK_BYTES) == [AskWorker(least)]
        assert line.granted(least) == [Give(1, least)]
    line.check()


def test_the_window_is_never_exceeded() -> None:
    """Whatever comes in whatever order, what is given stays inside the last window said, but for lone large batches."""
    rng = random.Random(5)
    line = CreditLine()
    pushes: list[int] = []
    asked = 0
    for _ in range(20_000):
        effects: list[Effect] = []
        match rng.randrange(4):
            case 0:
                effects = line.want(1, rng.randint(1, 50), rng.randint(50, 200))
            case 1 if pushes:
                effects = line.answered(pushes.pop(), rng.choice([0, 100, 300]))
            case 2 if pushes:
                effects = line.returned(pushes.pop())
            case 3 if asked:
                asked -= 1
                effects = line.granted(300)
        for effect in effects:
            if isinstance(effect, Give):
                pushes.append(effect.size)
                assert line.given <= line.window
            else:
                asked += 1
        assert asked <= 1
        line.check()
        assert line.given == sum(pushes)
