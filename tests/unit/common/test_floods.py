"""What a log leaves out (common/system/log.py)."""

import logging
import sys

from holdfast.common.system.log import ALL_MAX, INFO_SAME_MAX, SAME_MAX, WINDOW_SECONDS, Floods, TextFormatter


def record(message: str, level: int = logging.WARNING, *, trace: bool = False, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("a", level, "f", 1, message, (), None)
    vars(made).update(facts)
    if trace:
        try:
            raise ValueError("x")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_the_same_again_and_again_is_left_out_for_a_while() -> None:
    """Of one sentence a few are written, whatever its facts, the last of them says that more are left out, and after a
    while it is written again. Of what is no warning there may be more, and what is for debugging is never left out."""
    now = [0.0]
    floods = Floods(lambda: now[0])
    told = [one for number in range(50) if floods.filter(one := record("no", n=number))]
    assert len(told) == SAME_MAX
    assert "more like this" in TextFormatter().format(told[-1])
    assert floods.left_out == 50 - SAME_MAX
    assert floods.filter(record("other"))
    assert sum(floods.filter(record("fine", logging.INFO)) for _ in range(1_000)) == INFO_SAME_MAX
    assert all(floods.filter(record("seen", logging.DEBUG)) for _ in range(1_000))
    now[0] = WINDOW_SECONDS
    assert floods.filter(record("no"))


def test_a_flood_of_tracebacks_is_one() -> None:
    """The first has its trace, the next are lines."""
    floods = Floods(lambda: 0.0)
    written = [TextFormatter().format(one) for _ in range(5) if floods.filter(one := record("bad", trace=True))]
    assert [("Traceback" in text) for text in written] == [True, False, False, False, False]


def test_sentences_that_are_new_each_time_are_bounded_too() -> None:
    """Whoever writes what came in into a sentence gets around one bound, and meets the other."""
    floods = Floods(lambda: 0.0)
    assert sum(floods.filter(record(f"no {number}")) for number in range(3 * ALL_MAX)) == ALL_MAX


def test_a_fact_is_cut() -> None:
    """No name that somebody chose makes a line of megabytes."""
    assert len(TextFormatter().format(record("no", name_of="x" * 1_000_000))) < 3_000
