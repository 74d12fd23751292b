"""When a worker takes nothing new, and when it ends: the state table, and sequences of events through it."""

import itertools
import random

import pytest

from holdfast.worker.core.drain_rules import LEGAL, DrainRules, Stay

SECOND = 10**9
PATIENCE, SILENCE = 60 * SECOND, 3 * SECOND


def event(core: DrainRules, now: int, what: str) -> None:
    """Play one event by its name in the table."""
    match what:
        case "told to drain":
            core.heartbeat_answered(now, draining=True, clear=False, as_decommissioning=False)
        case "told not to":
            core.heartbeat_answered(now, draining=False, clear=False, as_decommissioning=False)
        case "answered: drain":
            core.heartbeat_answered(now, draining=True, clear=False, as_decommissioning=True)
        case "answered: drain, clear":
            core.heartbeat_answered(now, draining=True, clear=True, as_decommissioning=True)
        case "answered: alone":
            core.heartbeat_answered(now, draining=False, clear=False, as_decommissioning=True)
        case "SIGTERM":
            core.asked(now, registered=True)
        case "SIGTERM, unregistered":
            core.asked(now, registered=False)
        case "SIGINT":
            core.hurried()
        case "nothing written":
            core.looked(now, 0)
        case "still written":
            core.looked(now, 3)
        case _:
            raise AssertionError(what)


#: state → event → state
TABLE: dict[Stay, dict[str, Stay]] = {
    Stay.TAKING: {
        "told to drain": Stay.DRAINING,
        "told not to": Stay.TAKING,
        "SIGTERM": Stay.DECOMMISSIONING,
        "SIGTERM, unregistered": Stay.ENDING,
        "SIGINT": Stay.ENDING,
        "nothing written": Stay.TAKING,
        "still written": Stay.TAKING,
    },
    Stay.DRAINING: {
        "told to drain": Stay.DRAINING,
        "told not to": Stay.TAKING,
        "SIGTERM": Stay.DECOMMISSIONING,
        "SIGTERM, unregistered": Stay.ENDING,
        "SIGINT": Stay.ENDING,
        "nothing written": Stay.DRAINING,
        "still written": Stay.DRAINING,
    },
    Stay.DECOMMISSIONING: {
        "told to drain": Stay.DECOMMISSIONING,
        "told not to": Stay.DECOMMISSIONING,
        "answered: drain": Stay.DECOMMISSIONING,
        "answered: drain, clear": Stay.DECOMMISSIONING,
        "answered: alone": Stay.ENDING,
        "SIGTERM": Stay.ENDING,
        "SIGINT": Stay.ENDING,
        "nothing written": Stay.DECOMMISSIONING,
        "still written": Stay.DECOMMISSIONING,
    },
    Stay.ENDING: dict.fromkeys(
        ["told to drain", "told not to", "answered: drain", "answered: alone", "SIGTERM", "SIGINT", "nothing written"],
        Stay.ENDING,
    ),
}
WAYS = {Stay.TAKING: [], Stay.DRAINING: ["told to drain"], Stay.DECOMMISSIONING: ["SIGTERM"], Stay.ENDING: ["SIGINT"]}


@pytest.mark.parametrize(
    ("state", "what", "then"),
    [(state, what, then) for state, row in TABLE.items() for what, then in row.items()],
    ids=lambda value: value.name if isinstance(value, Stay) else None,
)
def test_row_36_the_state_table(state: Stay, what: str, then: Stay) -> None:
    """Each event takes each state to the one that the table says."""
    core = DrainRules(PATIENCE, SILENCE)
    for step in WAYS[state]:
        event(core, 0, step)
    assert core.stay is state
    event(core, 1, what)
    assert core.stay is then


@pytest.mark.parametrize(
    ("events", "then", "because"),
    [
        (
            ["SIGTERM", "answered: drain", "still written", "answered: drain, clear", "nothing written"],
            "ENDING",
            "open",
        ),
        (["SIGTERM", "answered: drain, clear", "still written"], "DECOMMISSIONING", ""),
        (["SIGTERM", "answered: drain", "nothing written"], "DECOMMISSIONING", ""),
        (["SIGTERM", "nothing written"], "DECOMMISSIONING", ""),
        (["SIGTERM", "told not to", "nothing written"], "DECOMMISSIONING", ""),
        (["told to drain", "SIGTERM", "answered: drain, clear", "nothing written"], "ENDING", "open"),
        (["told to drain", "told not to", "SIGTERM", "answered: alone"], "ENDING", "no other worker"),
        (["SIGTERM", "answered: drain, clear", "answered: drain", "nothing written"], "DECOMMISSIONING", ""),
        (["SIGTERM", "answered: drain", "SIGTERM"], "ENDING", "twice"),
    ],
)
def test_row_36_sequences_of_events(events: list[str], then: str, because: str) -> None:
    """A worker ends when masters and its own writing say that nothing is open, when it is alone, or when asked again;
    what was answered before it left says nothing."""
    core = DrainRules(PATIENCE, SILENCE)
    for now, what in enumerate(events):
        event(core, now, what)
    assert core.stay.name == then
    assert because in core.because


def test_row_36_an_end_is_put_off_for_so_long_and_no_longer() -> None:
    """With masters that answer it waits for its patience, with masters that do not for their silence; never by default
    0."""
    core = DrainRules(PATIENCE, SILENCE)
    core.asked(0, registered=True)
    for now in range(0, PATIENCE, SECOND):
        core.heartbeat_answered(now, draining=True, clear=False, as_decommissioning=True)
        core.looked(now, 3)
        assert core.stay is Stay.DECOMMISSIONING
    core.looked(PATIENCE, 3)
    assert core.stay is Stay.ENDING
    assert "drain_timeout" in core.because
    core = DrainRules(PATIENCE, SILENCE)
    core.asked(0, registered=True)
    core.looked(SILENCE - 1, 0)
    assert core.stay is Stay.DECOMMISSIONING
    core.looked(SILENCE, 0)
    assert (core.stay, core.because) == (Stay.ENDING, "the masters do not answer")
    core = DrainRules(0, SILENCE)
    core.asked(0, registered=True)
    assert core.stay is Stay.ENDING


def test_row_36_it_drains_when_asked_whatever_it_is_about() -> None:
    """New data is refused exactly while the last answer says so, leaving or not; what it is about moves only as it may,
    and an end is final."""
    names = sorted({name for row in TABLE.values() for name in row})
    for seed in range(300):
        rng = random.Random(seed)
        core, before, drains = DrainRules(5, 5), Stay.TAKING, False
        for now, what in zip(itertools.count(), rng.choices(names, k=30), strict=False):
            event(core, now, what)
            if before is not Stay.ENDING and what.startswith(("told", "answered")):
                drains = "drain" in what
            assert core.drains == drains, (seed, now, what)
            assert core.stay is before or core.stay in LEGAL[before], (seed, now, what)
            assert bool(core.because) == (core.stay is Stay.ENDING)
            before = core.stay
