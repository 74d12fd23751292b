"""The health of a directory, mean times over windows, and the room of a device: pure, with time passed in."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.worker.core.health import ERRORS_KEPT_MAX, DirectoryHealth, Health, HealthLimits, Outcome, WindowMean
from holdfast.worker.core.write.space import divide

S = 1_000_000_000
LIMITS = HealthLimits(probe_timeout_ns=30 * S, errors_max=3, error_window_ns=60 * S, probes_to_return=3)


def good(health: Health, *seconds: int) -> None:
    """Good probes that took a second each."""
    for second in seconds:
        health.probe_ended(second * S, S, Outcome.GOOD)


def state(health: Health) -> DirectoryHealth:
    """What it is now."""
    return health.state


def may_return(health: Health) -> bool:
    """Whether it may return now."""
    return health.may_return


# One story a test.


def test_one_error_is_suspect_and_returns_after_good_probes() -> None:
    """After one error nothing new goes there until three probes in a row were good."""
    health = Health(LIMITS)
    health.failed(100 * S)
    assert (state(health), health.errors(100 * S)) == (DirectoryHealth.SUSPECT, 1)
    good(health, 110, 120)
    assert not may_return(health)
    good(health, 130)
    assert may_return(health)
    health.returned()
    assert state(health) is DirectoryHealth.WELL


def test_row_33_errors_within_the_window_are_promoted_once() -> None:
    """The third error within a minute makes it critical, whatever probes say; a minute without one ends that."""
    health = Health(LIMITS)
    for second in (100, 110, 120):
        assert state(health) is not DirectoryHealth.CRITICAL
        health.failed(second * S)
    assert state(health) is DirectoryHealth.CRITICAL
    good(health, 130, 140, 150)
    health.tick(179 * S)
    assert (state(health), may_return(health)) == (DirectoryHealth.CRITICAL, False)
    health.tick(180 * S)
    assert (state(health), may_return(health)) == (DirectoryHealth.SUSPECT, True)


def test_errors_far_apart_are_not_promoted() -> None:
    """Two errors in a window are no reason; those before it are forgotten."""
    health = Health(LIMITS)
    for second in (0, 59, 61, 119, 121):
        health.failed(second * S)
        assert state(health) is DirectoryHealth.SUSPECT


def test_a_disk_that_fails_again_after_each_return_is_promoted() -> None:
    """Errors count over returns."""
    health = Health(HealthLimits(probes_to_return=1))
    for second in (0, 10):
        health.failed(second * S)
        good(health, second + 2)
        health.returned()
    health.failed(20 * S)
    assert state(health) is DirectoryHealth.CRITICAL


def test_row_33_a_probe_that_does_not_end_hangs_until_it_ends() -> None:
    """After its time the directory hangs; when the probe ends it is suspect, and returns like any other."""
    health = Health(LIMITS)
    health.probe_runs(29 * S, 0)
    assert state(health) is DirectoryHealth.WELL
    health.probe_runs(30 * S, 0)
    assert state(health) is DirectoryHealth.HANGING
    health.probe_ended(45 * S, 45 * S, Outcome.GOOD)
    assert (state(health), health.errors(45 * S)) == (DirectoryHealth.SUSPECT, 0)
    good(health, 50, 60)
    assert not may_return(health)
    good(health, 70)
    assert may_return(health)


def test_a_probe_that_ended_late_counts_though_nobody_saw_it_run() -> None:
    """What took too long isolates also if it was only seen when it had ended."""
    health = Health(LIMITS)
    health.probe_ended(40 * S, 31 * S, Outcome.GOOD)
    assert state(health) is DirectoryHealth.SUSPECT


def test_a_full_disk_is_no_error_and_no_proof() -> None:
    """No room: a directory that is well stays so, one that is isolated does not return by it, nor loses what it has."""
    health = Health(LIMITS)
    health.probe_ended(10 * S, S, Outcome.FULL)
    assert state(health) is DirectoryHealth.WELL
    health.failed(20 * S)
    good(health, 30, 40)
    health.probe_ended(50 * S, S, Outcome.FULL)
    assert not may_return(health)
    good(health, 60)
    assert may_return(health)


def test_other_bytes_are_critical_at_once() -> None:
    """A disk that gives back what was not written is not to be trusted, once is enough."""
    health = Health(LIMITS)
    health.probe_ended(10 * S, S, Outcome.WRONG)
    assert state(health) is DirectoryHealth.CRITICAL


def test_a_directory_that_went_says_nothing_against_the_disk() -> None:
    """Gone for a minute: suspect, no errors, and back after good probes."""
    health = Health(LIMITS)
    for second in range(10, 70, 10):
        health.probe_ended(second * S, S, Outcome.GONE)
    assert (state(health), health.errors(70 * S)) == (DirectoryHealth.SUSPECT, 0)
    good(health, 70, 80, 90)
    assert may_return(health)


def test_a_probe_that_began_before_the_error_proves_nothing() -> None:
    """The error came while the probe was under way: that one does not count, though it ended well."""
    health = Health(HealthLimits(probes_to_return=1))
    health.failed(10 * S)
    health.probe_ended(11 * S, 2 * S, Outcome.GOOD)
    assert not may_return(health)
    health.probe_ended(13 * S, 2 * S, Outcome.GOOD, thorough=False)
    assert not may_return(health)
    health.probe_ended(15 * S, 2 * S, Outcome.GOOD)
    assert may_return(health)


def test_errors_are_bounded() -> None:
    """However many writes fail at once, a bounded number is remembered, and they are forgotten after the window."""
    health = Health(LIMITS)
    for _ in range(3 * ERRORS_KEPT_MAX):
        health.failed(S)
    assert health.errors(S) == ERRORS_KEPT_MAX
    assert health.errors(61 * S) == 0


class HealthStories(RuleBasedStateMachine):
    """Any sequence of errors, probes and time, beside a list of all that happened."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = HealthLimits(probe_timeout_ns=30 * S, errors_max=2, error_window_ns=60 * S, probes_to_return=2)
        self.health = Health(self.limits)
        self.now = S
        #: (began, ended, "good", "bad" or "none") since the last return
        self.events: list[tuple[int, int, str]] = []
        self.errors: list[int] = []

    @rule(seconds=st.integers(0, 70))
    def time_passes(self, seconds: int) -> None:
        """The clock goes on."""
        self.now += seconds * S
        self.health.tick(self.now)

    @rule(counts=st.booleans())
    def fails(self, counts: bool) -> None:
        """A write fails."""
        self.health.failed(self.now, counts=counts)
        self.events.append((self.now, self.now, "bad"))
        if counts:
            self.errors.append(self.now)

    @rule(took=st.integers(0, 40), outcome=st.sampled_from(Outcome), thorough=st.booleans())
    def probe_ends(self, took: int, outcome: Outcome, thorough: bool) -> None:
        """A probe ends."""
        began, self.now = self.now, self.now + took * S
        self.health.probe_ended(self.now, took * S, outcome, thorough=thorough)
        bad = outcome in (Outcome.FAILED, Outcome.WRONG, Outcome.GONE) or took >= 30
        counted = outcome is Outcome.GOOD and thorough
        self.events.append((began, self.now, "bad" if bad else "good" if counted else "none"))
        if outcome in (Outcome.FAILED, Outcome.WRONG):
            self.errors.append(self.now)

    @rule(seconds=st.integers(0, 60))
    def probe_runs(self, seconds: int) -> None:
        """A probe is under way for so long."""
        self.health.probe_runs(self.now, self.now - seconds * S)
        if seconds >= 30:
            assert state(self.health) is DirectoryHealth.HANGING
            self.events.append((self.now, self.now, "bad"))

    @precondition(lambda self: self.health.may_return)
    @rule()
    def returns(self) -> None:
        """It may return only after enough good probes that began after all that was bad, and a window without an error
        if it was critical."""
        bad = max(ended for _, ended, kind in self.events if kind == "bad")
        proofs = [began for began, _, kind in self.events if kind == "good" and began >= bad]
        assert len(proofs) >= self.limits.probes_to_return
        self.health.returned()
        self.events.clear()
        assert state(self.health) is DirectoryHealth.WELL

    @invariant()
    def holds(self) -> None:
        """It is well exactly as long as nothing was bad since the last return; errors are those of the window."""
        self.health.check()
        assert (self.health.state is DirectoryHealth.WELL) == all(kind != "bad" for _, _, kind in self.events)
        recent = [at for at in self.errors if at > self.now - self.limits.error_window_ns]
        assert self.health.errors(self.now) == len(recent)
        if len(recent) >= self.limits.errors_max:
            assert self.health.state in (DirectoryHealth.CRITICAL, DirectoryHealth.HANGING)


TestHealthStories = HealthStories.TestCase


# Mean times.


def test_the_mean_is_that_of_the_last_whole_window() -> None:
    """Until a window has ended the running one counts; then the last one, for one window; then nothing is known."""
    mean = WindowMean(10 * S)
    assert mean.mean_ns(0) == 0
    mean.add(1 * S, 100)
    mean.add(2 * S, 300)
    assert mean.mean_ns(3 * S) == 200
    mean.add(11 * S, 1_000)
    assert mean.mean_ns(12 * S) == 200
    assert mean.mean_ns(21 * S) == 1_000
    assert mean.mean_ns(31 * S) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 1_000)), max_size=60), st.integers(0, 120))
def test_means_are_those_of_all_that_was_added(steps: list[tuple[int, int]], more: int) -> None:
    """Against a list of everything: the window before the one of the moment, or else the running one."""
    mean, now, all_of = WindowMean(10 * S), 0, []
    for seconds, took in steps:
        now += seconds * S
        mean.add(now, took)
        all_of.append((now // (10 * S), took))
    now += more * S
    number = now // (10 * S)

    def of(window: int) -> int:
        some = [took for one, took in all_of if one == window]
        return sum(some) // len(some) if some else 0

    assert mean.mean_ns(now) == (of(number - 1) or of(number))


# The room of a device.


@pytest.mark.parametrize(
    ("free", "limits", "shares"),
    [
        (100, [1_000, 1_000], [50, 50]),
        (100, [10, 1_000], [10, 90]),
        (100, [1_000, 0, 30], [70, 0, 30]),
        (100, [10, 20], [10, 20]),
        (101, [500, 500], [50, 51]),
        (-5, [10, 10], [0, 0]),
        (100, [-7, 40], [0, 40]),
        (100, [], []),
        (100, [1_000], [100]),
    ],
)
def test_room_is_divided(free: int, limits: Sequence[int], shares: list[int]) -> None:
    """Equal shares, of which those who may take less leave the rest."""
    assert divide(free, limits) == shares


@given(st.integers(-10, 1 << 50), st.lists(st.integers(-10, 1 << 50), max_size=8))
def test_nothing_is_promised_twice_and_nothing_left_over(free: int, limits: list[int]) -> None:
    """Nobody gets more than its limit, all together what there is or all limits, and nobody less than another one while
    it could take more."""
    shares = divide(free, limits)
    wanted = [max(0, limit) for limit in limits]
    assert all(0 <= share <= limit for share, limit in zip(shares, wanted, strict=True))
    assert sum(shares) == min(max(0, free), sum(wanted))
    short = [share for share, limit in zip(shares, wanted, strict=True) if share < limit]
    assert max(shares, default=0) <= min(short, default=1 << 60) + 1
