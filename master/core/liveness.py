"""Decides on the leader which workers are lost and which leases have expired; in memory; the caller passes the time.

Rules
* Heartbeats and renewals are only recorded here; the log gets the changes that `tick` decides.
* A new leader has no heartbeats, so all start with a full lease. The same after a late tick: then this
  process was stopped, and messages sent to it meanwhile may not have been read yet.
* A lease without a renewal for its length is marked; one that is marked and stays silent for the grace beyond is ended;
  a renewal before that takes the mark back.
* A call that names an instance but no holder of it renews every lease of that instance.
* A tick looks at every worker, of which there may be tens of thousands: one that was heard of costs a look into a
  table.

Called by master/leader: `lead` once per leadership, `tick` in a fixed rhythm, `heard_*` with each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.master.core.state.commands import LeaseRef, WorkerRef
from holdfast.master.core.state.records import Application, Lease, Worker

_NS_PER_MS = 1_000_000
#: A tick this many times its length after the one before is late.
_LATE_TICKS = 3
#: Incarnation and time of a worker that was not heard of.
_NEVER = (0, 0)


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths in nanoseconds."""

    tick_ns: int
    worker_ns: int
    grace_ns: int


@dataclass(frozen=True, slots=True)
class LivenessDecisions:
    """What is to be proposed. `late` says that everybody got a full lease instead."""

    lost: tuple[WorkerRef, ...] = ()
    back: tuple[WorkerRef, ...] = ()
    mark: tuple[LeaseRef, ...] = ()
    revoke: tuple[LeaseRef, ...] = ()
    end: tuple[LeaseRef, ...] = ()
    late: bool = False


class Liveness:
    """When each was last heard from, on one leader during one leadership. Times are monotonic nanoseconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._since = 0
        self._ticked = 0
        #: by number the start that was heard of last, and when
        self._workers: dict[int, tuple[int, int]] = {}
        self._leases: dict[LeaseRef, int] = {}
        self._instances: dict[bytes, int] = {}
        #: since when this leadership has leases, and workers without a heartbeat
        self._known: dict[WorkerRef | LeaseRef, int] = {}
        self._looked = False

    def lead(self, now: int) -> None:
        """Begin a leadership: no heartbeats yet, all have a full lease."""
        self._workers.clear()
        self._leases.clear()
        self._instances.clear()
        self._known.clear()
        self._looked = False
        self._since = self._ticked = now

    def heard_worker(self, now: int, worker: int, incarnation: int) -> None:
        """Record a heartbeat or registration of a worker that is in the state."""
        self._workers[worker] = incarnation, now

    def heard_lease(self, now: int, application: Application, holder: bytes) -> None:
        """Take note of a call that named this application."""
        if holder and application.lease(holder) is not None:
            self._leases[LeaseRef(application.instance, holder)] = now
        else:
            self._instances[application.instance] = now

    def worker_silence(self, now: int, worker: int, incarnation: int) -> int:
        """Nanoseconds since this worker's heartbeat, or since this leadership has this start of it."""
        if heard := self._heard(worker, incarnation):
            return now - max(heard, self._since)
        return self._silence(now, WorkerRef(worker, incarnation), 0)

    def _heard(self, worker: int, incarnation: int) -> int:
        """When this start of a worker was heard of; 0: never."""
        start, heard = self._workers.get(worker, _NEVER)
        return heard if start == incarnation else 0

    def lease_silence(self, now: int, instance: bytes, holder: bytes) -> int:
        """Nanoseconds since this lease was renewed, or since this leadership has it."""
        ref = LeaseRef(instance, holder)
        return self._silence(now, ref, self._renewed(ref))

    def _silence(self, now: int, ref: WorkerRef | LeaseRef, heard: int) -> int:
        """A worker or lease of this leadership is in the state a moment before its heartbeat is recorded here: it is
        known from the first look at it. Those whom it found are known since it began."""
        known = self._known.setdefault(ref, now if self._looked else self._since)
        return now - max(heard, known, self._since)

    def tick(self, now: int, workers: Iterable[Worker], applications: Iterable[Application]) -> LivenessDecisions:
        """Decide what changed. The caller has handled every call that came in before."""
        late = now - self._ticked > _LATE_TICKS * self._timing.tick_ns
        self._ticked = now
        if late:
            self._since = now
            return LivenessDecisions(late=True)
        workers = list(workers)
        known_leases = {
            LeaseRef(application.instance, lease.holder): lease
            for application in applications
            for lease in application.leases
        }
        self._prune(workers, known_leases)
        lost, back = self._judge_workers(now, workers)
        mark, revoke, end = self._judge_leases(now, known_leases)
        self._looked = True
        return LivenessDecisions(lost, back, mark, revoke, end)

    def _renewed(self, ref: LeaseRef) -> int:
        return max(self._leases.get(ref, 0), self._instances.get(ref.instance, 0))

    def _judge_workers(
        self, now: int, workers: Sequence[Worker]
    ) -> tuple[tuple[WorkerRef, ...], tuple[WorkerRef, ...]]:
        lost, back = [], []
        lately, last_heard = now - self._timing.worker_ns, self._workers.get
        for worker in workers:
            start, heard = last_heard(worker.id, _NEVER)
            recent = heard >= lately and heard > 0 and start == worker.incarnation
            if recent is worker.alive:
                continue
            ref = WorkerRef(worker.id, worker.incarnation)
            if recent:
                back.append(ref)
            elif self.worker_silence(now, worker.id, worker.incarnation) > self._timing.worker_ns:
                lost.append(ref)
        return tuple(lost), tuple(back)

    def _judge_leases(
        self, now: int, leases: dict[LeaseRef, Lease]
    ) -> tuple[tuple[LeaseRef, ...], tuple[LeaseRef, ...], tuple[LeaseRef, ...]]:
        mark, revoke, end = [], [], []
        for ref, lease in leases.items():
            renewed = self._renewed(ref)
            silent_ns = self._silence(now, ref, renewed)
            lease_ns = lease.lease_ms * _NS_PER_MS
            if not lease.marked_ms:
                if silent_ns > lease_ns:
                    mark.append(ref)
            elif silent_ns > lease_ns + self._timing.grace_ns:
                end.append(ref)
            elif renewed and now - renewed <= lease_ns:
                revoke.append(ref)
        return tuple(mark), tuple(revoke), tuple(end)

    def _prune(self, workers: Sequence[Worker], leases: dict[LeaseRef, Lease]) -> None:
        """Forget those that are not in the state any more, so that memory is bounded by the state."""
        there = {}
        if self._known or len(self._workers) > len(workers):
            there = {worker.id: worker.incarnation for worker in workers}
        if len(self._workers) > len(workers):
            self._workers = {worker: heard for worker, heard in self._workers.items() if worker in there}
        self._leases = {ref: heard for ref, heard in self._leases.items() if ref in leases}
        self._known = {ref: since for ref, since in self._known.items() if ref in leases or self._unheard(ref, there)}
        instances = {ref.instance for ref in leases}
        self._instances = {each: heard for each, heard in self._instances.items() if each in instances}

    def _unheard(self, ref: WorkerRef | LeaseRef, there: dict[int, int]) -> bool:
        """Whether it is a worker that is there and was not heard of."""
        if not isinstance(ref, WorkerRef) or there.get(ref.worker) != ref.incarnation:
            return False
        return not self._heard(ref.worker, ref.incarnation)
