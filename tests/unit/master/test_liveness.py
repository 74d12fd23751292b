"""Who is lost and which leases end, told by a clock that the test moves."""

from dataclasses import replace

import pytest

from holdfast.master.core.liveness import Liveness, LivenessDecisions, Timing
from holdfast.master.core.state.commands import LeaseRef, WorkerRef
from tests.unit.master.build import H1, H2, I1, Log, application, worker

MS = 1_000_000
TICK, WORKER, GRACE, LEASE = 100, 1_000, 500, 2_000
W, L1 = WorkerRef(1, 1), LeaseRef(I1, H1)


class Watch:
    """A leader's liveness over one worker and one application, ticking every 100 ms."""

    def __init__(self) -> None:
        self.now = 5_000 * MS
        self.liveness = Liveness(Timing(TICK * MS, WORKER * MS, GRACE * MS))
        log = Log()
        log.do(worker())
        log.do(application(lease_ms=LEASE))
        self.worker = log.state.workers[1]
        self.application = log.state.applications[I1]
        self.liveness.lead(self.now)

    def pass_ms(self, ms: int, hear: str = "") -> list[LivenessDecisions]:
        """Tick for `ms` and apply what is decided; `hear` is who speaks before each tick. Return what was decided."""
        found = []
        for _ in range(ms // TICK):
            self.now += TICK * MS
            if "worker" in hear:
                self.liveness.heard_worker(self.now, 1, 1)
            if "holder" in hear:
                self.liveness.heard_lease(self.now, self.application, H1)
            if "somebody" in hear:
                self.liveness.heard_lease(self.now, self.application, b"")
            decided = self.liveness.tick(self.now, [self.worker], [self.application])
            if decided != LivenessDecisions():
                found.append(decided)
                self.apply(decided)
        return found

    def apply(self, decided: LivenessDecisions) -> None:
        self.worker = replace(self.worker, alive=(self.worker.alive or bool(decided.back)) and not decided.lost)
        for refs, moment in ((decided.mark, 7), (decided.revoke, 0)):
            if refs:
                leases = tuple(replace(lease, marked_ms=moment) for lease in self.application.leases)
                self.application = replace(self.application, leases=leases)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a36_a_start_that_is_known_and_not_heard_yet_is_not_silent_since_the_leadership_began(watch: Watch):
    """Between the registration of a worker's start, or of a lease, and its note here a long leadership has not heard of
    it: that is no silence of hours, by which a commit would call all its data lost, and the leader the worker."""
    watch.pass_ms(60_000, hear="worker holder")
    assert watch.liveness.worker_silence(watch.now, 1, 2) == 0
    assert watch.liveness.lease_silence(watch.now, I1, H2) == 0
    watch.worker = replace(watch.worker, incarnation=2)
    watch.application = replace(watch.application, leases=(replace(watch.application.leases[0], holder=H2),))
    assert watch.pass_ms(TICK) == []
    assert watch.liveness.worker_silence(watch.now, 1, 2) == TICK * MS
    assert watch.pass_ms(WORKER - 2 * TICK) == []
    assert watch.pass_ms(3 * TICK) == [LivenessDecisions(lost=(WorkerRef(1, 2),))]


def test_silent_worker_is_lost_after_its_lease_and_back_when_heard(watch: Watch):
    """Lost once, after the lease and not before; back with its next heartbeat."""
    assert watch.pass_ms(WORKER) == []
    assert watch.pass_ms(500) == [LivenessDecisions(lost=(W,))]
    assert watch.pass_ms(200, hear="worker") == [LivenessDecisions(back=(W,))]
    assert watch.pass_ms(1_500, hear="worker holder") == []


def test_silent_lease_is_marked_then_ended_after_the_grace(watch: Watch):
    """Marked after the lease, ended after the grace beyond it."""
    assert watch.pass_ms(LEASE, hear="worker") == []
    assert watch.pass_ms(GRACE, hear="worker") == [LivenessDecisions(mark=(L1,))]
    assert watch.pass_ms(TICK, hear="worker") == [LivenessDecisions(end=(L1,))]


def test_renewal_takes_the_mark_back(watch: Watch):
    """A renewal within the grace revokes the mark, and a full lease follows."""
    watch.pass_ms(LEASE + 200, hear="worker")
    assert watch.pass_ms(TICK, hear="worker holder") == [LivenessDecisions(revoke=(L1,))]
    assert watch.pass_ms(LEASE, hear="worker") == []


def test_call_without_a_holder_renews_every_lease(watch: Watch):
    """Whoever names the instance keeps it, also with a holder that has no lease here."""
    assert watch.pass_ms(3 * LEASE, hear="worker somebody") == []
    watch.liveness.heard_lease(watch.now, watch.application, H2)
    assert watch.pass_ms(LEASE, hear="worker") == []


def test_new_leader_gives_everybody_one_full_lease(watch: Watch):
    """A leadership begins with silence: nobody is lost, marked or ended before a full lease of it."""
    watch.pass_ms(LEASE + 200, hear="worker")  # marked
    watch.now += 60_000 * MS
    watch.liveness.lead(watch.now)
    assert watch.pass_ms(WORKER, hear="") == []
    assert watch.pass_ms(LEASE - WORKER, hear="worker") == []
    assert watch.pass_ms(GRACE, hear="worker") == []
    assert watch.pass_ms(TICK, hear="worker") == [LivenessDecisions(end=(L1,))]


def test_late_tick_gives_everybody_one_full_lease(watch: Watch):
    """A leader that stood still expires nobody at its next tick, however long it was away."""
    watch.pass_ms(500, hear="worker holder")
    watch.now += 3_600_000 * MS
    assert watch.pass_ms(WORKER) == [LivenessDecisions(late=True)]
    assert watch.pass_ms(300) == [LivenessDecisions(lost=(W,))]


def test_last_incarnation_counts(watch: Watch):
    """Heartbeats of an earlier start keep nobody alive."""
    watch.worker = replace(watch.worker, incarnation=2)
    assert watch.pass_ms(WORKER + TICK, hear="worker") == [LivenessDecisions(lost=(WorkerRef(1, 2),))]


def test_memory_is_bounded_by_the_state(watch: Watch):
    """Who is not in the state any more is forgotten at the next tick."""
    watch.pass_ms(TICK, hear="worker holder somebody")
    watch.now += TICK * MS
    watch.liveness.tick(watch.now, [], [])
    assert not any(vars(watch.liveness)[name] for name in ("_workers", "_leases", "_instances"))
