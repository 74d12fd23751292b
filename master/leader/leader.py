"""The base of every service of a master: commands, confirmed reads, leases, and the timer of the leader.

Rules
* "Unknown", "not committed" and the like are only said after `confirmed`; what `peek` finds on a serving leader was
  committed and is true, but it may not be all.
* Liveness is only kept while this master is the leader; its decisions are proposed like any command.
* Everything here runs in the event loop; Raft's thread is only met through futures and call_soon_threadsafe.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message

from holdfast.common.config.config import Config
from holdfast.common.errors import (
    ApplicationGoneError,
    HoldfastError,
    IncarnationTooLowError,
    NotLeaderError,
    error_for,
)
from holdfast.common.ids import INSTANCE_BYTES, NO_STATE, StateId
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.server import ServerSecurity
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background
from holdfast.master.api.access import CALLER, user_of
from holdfast.master.api.callers import Callers
from holdfast.master.api.statuses import bad_request
from holdfast.master.core.conditions import Conditions, Spot
from holdfast.master.core.drains import Drains, Kept, judge, ref_of
from holdfast.master.core.liveness import Liveness, Timing
from holdfast.master.core.rates import Rates, Totals, rates_between, totals_in
from holdfast.master.core.readers import Readers
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.apply import gone_text
from holdfast.master.core.state.records import Answer, Application, Worker
from holdfast.master.core.state.state import State
from holdfast.master.core.usage import Owned, Usage
from holdfast.master.leader.proposer import Proposer, of_the_log, translate
from holdfast.master.leader.waiters import Waiters
from holdfast.master.observe.counts import MasterCounts, ShortOfCopies, no_fallbacks
from holdfast.master.observe.events import Events
from holdfast.master.placement.policy import DirectoryLoad
from holdfast.master.raft.node import RaftNode
from holdfast.master.state_machine.state_machine import StateMachine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The last heartbeat of a worker, when it came, what it had counted, and what the one before says of its pace."""

    incarnation: int
    heartbeat: pb.HeartbeatRequest
    at_ns: int = 0
    totals: Totals | None = None
    rates: Rates = Rates()
    #: by kind of shuffle and level, the disks that take its data; worked out when first asked for
    loads: dict[tuple[int, int], Sequence[DirectoryLoad]] = field(default_factory=dict)


class Leader:
    """The leading side of this master, and the refusal to lead while it does not."""

    def __init__(
        self,
        config: Config,
        node: RaftNode[StateMachine],
        fail: Callable[[BaseException], None],
        security: ServerSecurity | None = None,
        restored: int = 0,
    ) -> None:
        """`fail` ends the process: what was not foreseen is not lived with. `restored`: up to which place of the log
        all comes from a backup, see master/backup.py."""
        self._restored = restored
        #: what names a state; the simulator draws from its seed
        self.draw: Callable[[], int] = lambda: secrets.randbits(64) or 1
        self.fail = fail
        #: None where everybody may call everything
        self.security = security
        self.config = config
        self.node = node
        self.waiters = Waiters()
        self._offset_ns = config.faults.clock_offset.ns if config.faults.enabled else 0
        self._began_ns = time.monotonic_ns()
        self.liveness = Liveness(
            Timing(config.lease.tick.ns, config.lease.worker.ns, config.lease.deletion_grace.ns),
        )
        self._addresses: dict[str, str] = {peer.name: str(peer.http) for peer in config.master.peers}
        #: what happened, for people
        self.events = Events(config.master.name, self.now_ms)
        self.counts = MasterCounts()
        self.fallbacks = no_fallbacks()
        self.short = ShortOfCopies()
        self.proposer = Proposer(node, self.now_ms, self.http_of)
        self._callers = Callers()
        #: last heartbeats by worker number in this leadership; only of workers that are in the state
        self.reports: dict[int, WorkerReport] = {}
        #: from those heartbeats: the usage of applications, and failing directories
        self.usage = Usage()
        self.conditions = Conditions()
        #: what is placed on draining workers, as this leadership last looked
        self.drains = Drains()
        #: who asked this leadership where data is
        self.readers = Readers()
        #: called whenever this master becomes the leader, or stops being it; in the event loop
        self.listeners: list[Callable[[bool], None]] = []
        #: set when a worker was lost, is back, or registered
        self.workers_changed = asyncio.Event()
        #: grows whenever workers were lost or are back
        self.lives_changed = 0
        self.serving = False
        #: Raft's term of the latest leadership of this master
        self.term = 0
        #: set while this master does not lead
        self.followed = asyncio.Event()
        self.followed.set()
        self._tick: asyncio.Task[None] | None = None

    # Clocks: the wall clock stamps commands, the monotonic one measures silence.

    def now_ms(self) -> int:
        """Milliseconds since 1970, as this master's clock says."""
        jumped_ns = self.config.faults.jumped_ns(time.monotonic_ns() - self._began_ns)
        return (time.time_ns() + self._offset_ns + jumped_ns) // 1_000_000

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns() + self._offset_ns

    def http_of(self, name: str | None) -> str:
        """Return the HTTP address of a master by name; "" for one that is not known."""
        return self._addresses.get(name or "", "")

    def index(self) -> int:
        """Return the index of the last command applied here, for replies."""
        return self.node.local(lambda machine: machine.state.index)

    # Leadership.

    def leadership(self, leads: bool, term: int) -> None:
        """Hear from Raft, through the loop, that this master serves as leader from now on or does not any more."""
        if leads == self.serving:
            return
        self.serving = leads
        changed = LogEvent.LEADER_ELECTED if leads else LogEvent.LEADER_STEPPED_DOWN
        self.events.tell(changed, master=self.config.master.name, term=term)
        if leads:
            self.term = term
            self.followed.clear()
            self.liveness.lead(self.now_ns())
            self.reports.clear()
            self.usage = Usage()
            self.conditions = Conditions()
            self.drains = Drains()
            self.readers = Readers()
            self._tick = background(self._run(), self.fail)
        else:
            self.followed.set()
            if self._tick is not None:
                self._tick.cancel()
                self._tick = None
            self.waiters.wake((b"",))
        for listener in self.listeners:
            listener(leads)

    async def _run(self) -> None:
        """The leader's timer: name the state, find silent workers and leases, propose changes."""
        while True:
            await asyncio.sleep(self.config.lease.tick.seconds)
            try:
                await self.state_id()
                await self._judge()
            except HoldfastError as error:
                # Nothing is lost: what was decided is decided again at the next tick, here or by the next leader.
                log_event(LogEvent.LEADER_TICK_FAILED, status=error.status.name, reason=error)

    async def _judge(self) -> None:
        workers, applications = self.node.local(
            lambda machine: (list(machine.state.workers.values()), list(machine.state.applications.values()))
        )
        decisions = self.liveness.tick(self.now_ns(), workers, applications)
        if decisions.late:
            self.events.tell(LogEvent.MASTER_STALLED, master=self.config.master.name)
        bodies: tuple[tuple[object, cmd.Body], ...] = (
            (decisions.lost, cmd.SetWorkersAlive(False, decisions.lost, self._gone(workers, decisions.lost))),
            (decisions.back, cmd.SetWorkersAlive(True, decisions.back)),
            (decisions.revoke, cmd.MarkLeases(False, decisions.revoke)),
            (decisions.mark, cmd.MarkLeases(True, decisions.mark)),
            (decisions.end, cmd.EndLeases(decisions.end)),
        )
        for body in [body for changed, body in bodies if changed]:
            await self.proposer.submit(cmd.Command(body))
            if isinstance(body, cmd.SetWorkersAlive):
                self.lives_changed += 1
                self.workers_changed.set()

    def _gone(self, workers: Sequence[Worker], lost: Sequence[cmd.WorkerRef]) -> tuple[cmd.WorkerRef, ...]:
        """Of workers that are lost, those that had drained until they might be removed: nobody needs them. Those whose
        host goes away at a time rely on copies that others have: not while one of these may be lost, too."""
        if not lost:
            return ()
        refs, now = set(lost), self.now_ns()
        found = [
            each
            for each in workers
            if ref_of(each) in refs and judge(self.drains.placed(each), self.kept(each), others=True).removal
        ]
        if any(each.leaves_ms for each in found) and any(self._is_silent(each, now) for each in workers):
            found = [each for each in found if not each.leaves_ms]
        return tuple(map(ref_of, found))

    def _is_silent(self, worker: Worker, now: int) -> bool:
        """Whether one that is called alive, and stays, was not heard of when it should have been."""
        silent = self.liveness.worker_silence(now, worker.id, worker.incarnation)
        return worker.alive and not worker.leaves_ms and 2 * silent > self.config.lease.worker.ns

    def kept(self, worker: Worker) -> Kept | None:
        """What a draining worker said last that would be lost with it; None if it has not said."""
        report = self.report(worker)
        if report is None or not report.heartbeat.HasField("emptying"):
            return None
        kept = Kept(report.heartbeat.emptying.writing, report.heartbeat.emptying.shuffles)
        return self.drains.needed(worker, kept, self.lives_changed)

    def unsay_kept(self, worker: Worker) -> None:
        """What it said of what it keeps counts no more, until it says it again."""
        if (report := self.reports.get(worker.id)) is not None:
            report.heartbeat.ClearField("emptying")

    def heard(self, worker: str, beat: pb.HeartbeatRequest) -> None:
        """Keep a heartbeat of a worker of that name."""
        number, incarnation, totals, now = beat.worker, beat.incarnation, totals_in(beat.counters), self.now_ns()
        before, rates = self.reports.get(number), Rates()
        if before is not None and before.incarnation == incarnation:
            rates = rates_between(before.totals, totals, now - before.at_ns, before.rates)
        self.reports[number] = WorkerReport(incarnation, beat, now, totals, rates)
        if changed := self.conditions.heard(number, worker, _spots(beat)):
            self.events.tell_all(changed)

    def report(self, worker: Worker) -> WorkerReport | None:
        """The last heartbeat of this start of a worker, None if this leadership has none."""
        report = self.reports.get(worker.id)
        return report if report is not None and report.incarnation == worker.incarnation else None

    # Commands and reads.

    async def command(self, name: str, request: Message, body: cmd.Body) -> Answer:
        """Have `body` applied once for the call that `request` names; return its answer, or raise it if not OK."""
        return self.expect(await self.proposer.submit(self.numbered(name, request, body)))

    @staticmethod
    def expect(answer: Answer) -> Answer:
        """Return an answer that is OK; raise any other as its error."""
        if answer.ok:
            return answer
        error = error_for(answer.status, answer.detail)
        if isinstance(error, IncarnationTooLowError):
            error.lowest = answer.value
        raise error

    def numbered(self, name: str, request: Message, body: cmd.Body) -> cmd.Command:
        """Return the command for a call: with the client's number, and a digest of what it asks for."""
        call: pb.CallId = request.call  # type: ignore[attr-defined]
        if not call.client:
            return cmd.Command(body)
        if len(call.client) != INSTANCE_BYTES or not call.number:
            raise bad_request(f"a call id has a client of {INSTANCE_BYTES} bytes and a number from 1")
        user = user_of(CALLER.get(), self.owner)
        if user is not None:
            self._callers.heard(call.client, user, self.now_ns())
        client, number, drawn, open_from = call.client, call.number, call.raft_index, call.open_from
        request.ClearField("call")
        digest = hashlib.blake2b(name.encode() + request.SerializeToString(deterministic=True), digest_size=16)
        return cmd.Command(body, client, number, drawn, digest.digest(), open_from)

    def owner(self, instance: bytes) -> str | None:
        """The user of an application, None if this master has none."""
        application = self.node.local(lambda machine: machine.state.applications.get(instance))
        return application.user if application is not None else None

    async def confirmed(self, read: Callable[[State], T]) -> T:
        """Return read(state) after this master confirmed its leadership. Raises NotLeaderError."""
        try:
            return await of_the_log(asyncio.wrap_future(self.node.read(lambda machine: read(machine.state))))
        except Exception as error:
            raise translate(error, self.http_of) from error

    def peek(self, read: Callable[[State], T]) -> T:
        """Return read(state) as this serving leader has it, unproved. Raises NotLeaderError elsewhere."""
        self.require()
        return self.node.local(lambda machine: read(machine.state))

    def require(self, term: int = 0) -> None:
        """Raise NotLeaderError unless this master serves as leader, in just that term if one is given."""
        if not self.serving or term not in (0, self.term):
            raise NotLeaderError(leader=self.http_of(self.node.status().leader))

    async def find(self, read: Callable[[State], T | None]) -> T | None:
        """Return read(state), asking a second time with proof if the first time finds nothing."""
        found = self.peek(read)
        return found if found is not None else await self.confirmed(read)

    async def state_id(self) -> StateId:
        """Return the id of this state, sent with every number that it gives; a state without an id gets one first
        since it began, or was restored. Raises NotLeaderError."""
        while True:
            named, at = self.peek(lambda state: (state.state_id, state.state_index))
            if named != NO_STATE and at > self._restored:
                return named
            await self.proposer.submit(cmd.Command(cmd.BeginState(StateId(self.draw()), after=at)))

    # Leases.

    async def renew(self, instance: bytes, holder: bytes) -> Application:
        """Renew the lease of a call that names an application; return it. Raises ApplicationGoneError."""
        application = await self.find(lambda state: state.applications.get(instance))
        if application is None:
            raise gone(instance)
        self.liveness.heard_lease(self.now_ns(), application, holder)
        self.usage.called(application.user, Owned(instance, application.name))
        return application


class WhileLeading:
    """A task that runs while this master is the leader: `_run` starts with each leadership, and ends with it."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._task: asyncio.Task[None] | None = None
        leader.listeners.append(self._led)

    def close(self) -> None:
        """End it."""
        self._led(False)

    def _led(self, leads: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._reset()
        if leads:
            self._task = background(self._run(), self._leader.fail)

    def _reset(self) -> None:
        """Forget what is of one leadership."""

    async def _run(self) -> None:
        raise NotImplementedError


def _spots(beat: pb.HeartbeatRequest) -> Iterator[Spot]:
    """Yield what a heartbeat says is not well."""
    for each in beat.directories:
        if each.problem or each.full:
            yield Spot(each.path, each.problem, each.full)
    if beat.HasField("dfs") and beat.dfs.problem:
        yield Spot(beat.dfs.url, beat.dfs.problem, is_dfs=True)


def gone(instance: bytes) -> ApplicationGoneError:
    """The error for an instance that is unknown to a confirmed leader."""
    return ApplicationGoneError(gone_text(instance))
