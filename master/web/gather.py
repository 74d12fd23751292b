"""Answers for the status page: takes what it needs on the loop, and has sums and HTML made in a thread.

Rules
* Under the state lock only tables are copied and one page of shuffles is looked up; never a loop over all shuffles.
* The thread pauses in between, so that the loop and Raft's thread get the interpreter; one page at a time is made, and
  further requests are refused.
* It shows the state of a leader that has confirmed its leadership; another master shows its own state and no more.

Called by master/api/http.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.ids import Generation, ShuffleId, shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import goes_away
from holdfast.common.statuses import Status
from holdfast.common.version import VERSION
from holdfast.master.api.registry import Registry
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.events import KEPT, LEVELS
from holdfast.master.core.history import Trend
from holdfast.master.core.readers import HostReader
from holdfast.master.core.retention import Retention, in_time
from holdfast.master.core.shuffle_sums import ShuffleSums
from holdfast.master.core.state.records import Application, Shuffle, Worker
from holdfast.master.core.state.state import Below, State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader, WorkerReport
from holdfast.master.leader.turns import turn
from holdfast.master.observe.adherence import AdherenceCount
from holdfast.master.observe.describing import Describer
from holdfast.master.observe.masters import Masters
from holdfast.master.raft.node import RaftStatus
from holdfast.master.web.about import EventNames, curves_of, detail_of, history_of, instance_of, naming
from holdfast.master.web.pace import HISTORY_SECONDS, PaceKeeper
from holdfast.master.web.page import write
from holdfast.master.web.picture import ApplicationDetail, MasterRow, Own, Pace, Picture, ShuffleCounts, ShuffleRow
from holdfast.master.web.summary import fleet_of
from holdfast.master.web.view import Cut, View

#: A request for a page while so many wait is refused.
WAITING_MAX = 16
_PROOF_SECONDS = 1.0
#: Counting all shuffles again is for later where there are many.
_COUNT_AT_ONCE = 5_000
_COUNT_AGAIN_SECONDS = 10.0
_REST_SECONDS = 0.001
#: Events among which those of one thing are looked for: all that are kept.
_LOOKED_THROUGH = KEPT * len(LEVELS)
#: Workers whose drain is shown.
_DRAINS_MAX = 200


@dataclass(slots=True)
class _Look:
    """What was copied under the state lock, and from the leader's memory."""

    workers: list[Worker] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    shuffles: list[Shuffle] = field(default_factory=list)
    cut: Cut = Cut(1, 1, 0, 0, 0)
    reports: dict[int, WorkerReport] = field(default_factory=dict)
    places: Mapping[int, str] = field(default_factory=dict)
    drains: dict[int, str] = field(default_factory=dict)
    rows: list[ShuffleRow] = field(default_factory=list)
    application: str = ""
    now_ns: int = 0
    pace: Pace = Pace(5)
    trend: Trend = Trend()
    readers: Sequence[HostReader] = ()
    #: of a page about one thing
    missing: str = ""
    names: EventNames = EventNames()
    sums: ShuffleSums | None = None
    detail: ApplicationDetail | None = None


class Pages:
    """Makes the page of this master."""

    def __init__(
        self,
        leader: Leader,
        masters: Masters,
        registry: Registry,
        fleet: Fleet,
        sealing: Sealing,
        adherence: AdherenceCount,
        retention: Callable[[Application], Retention],
        describer: Describer,
    ) -> None:
        """`retention` says what keeps an application."""
        self._leader = leader
        self._masters = masters
        self._registry = registry
        self._fleet = fleet
        self._sealing = sealing
        self._adherence = adherence
        self._retention = retention
        self._describer = describer
        self._pace = PaceKeeper(leader)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._counted = ShuffleCounts()
        self._counted_at = 0.0

    def close(self) -> None:
        """End what runs."""
        self._pace.close()

    async def page(self, view: View) -> tuple[bool, bytes]:
        """Return whether there is what the page is about, and the page as HTML. Raises RetryError (BUSY) where too many
        wait for one."""
        if self._waiting >= WAITING_MAX:
            raise RetryError(f"{WAITING_MAX} requests wait for this page; try again", status=Status.BUSY)
        self._waiting += 1
        try:
            async with turn(self._turn, "this page"):
                look = await self._look(view)
                status = self._leader.node.status()
                own = self._own(status, look is not None)
                make = self._make_detail if view.subject.kind else self._make
                html = await asyncio.get_running_loop().run_in_executor(None, make, view, own, look)
                return look is None or not look.missing, html
        finally:
            self._waiting -= 1

    # On the loop.

    async def _look(self, view: View) -> _Look | None:
        """Copy what the page shows; None if this master cannot prove that it leads."""
        if not self._leader.serving:
            return None
        try:
            async with asyncio.timeout(_PROOF_SECONDS):
                look = await self._leader.confirmed(lambda state: _copy(state, view))
            look.places = self._fleet.places_now()
        except (HoldfastError, TimeoutError):
            return None
        look.reports = {each.id: report for each in look.workers if (report := self._leader.report(each)) is not None}
        look.now_ns = self._leader.now_ns()
        look.pace = self._pace.pace()
        if view.subject.kind in ("hosts", "workers"):
            look.trend = self._pace.trend(each.id for each in look.workers)
        draining = (each for each in look.workers if each.draining_ms and each.alive)
        for worker in islice(draining, _DRAINS_MAX):
            progress = self._registry.draining.progress(worker)
            look.drains[worker.id] = _drain_text(progress) if progress is not None else ""
        by_instance = {each.instance: each for each in look.applications}
        look.rows = [self._row(each, by_instance[each.key.instance]) for each in look.shuffles]
        if view.subject.kind == "applications" and look.applications:
            (application,) = look.applications
            held = self._leader.usage.of(application.instance)
            look.detail = ApplicationDetail(application, self._retention(application), held.size_bytes, held.files)
        if view.subject.kind == "shuffles" and look.shuffles:
            look.readers = self._leader.readers.of(look.shuffles[0].key)
            look.sums = await self._describer.sums(look.shuffles[0])
        if view.application:
            shown = by_instance.get(bytes.fromhex(view.application))
            look.application = shown.name if shown is not None else view.application
        return look

    def _row(self, shuffle: Shuffle, application: Application) -> ShuffleRow:
        key = shuffle.key
        progress = None if shuffle.committed_ms else self._sealing.progress(key)
        waits_for = progress.unanswered[:5] if progress is not None else ()
        held = self._leader.usage.shuffles(key.instance).get(key.shuffle)
        return ShuffleRow(
            application=application,
            shuffle=shuffle,
            held=held.size_bytes if held is not None else 0,
            sealing=(progress.settled, progress.copies) if progress is not None else None,
            waits_for=self._leader.node.local(
                lambda machine: tuple([machine.state.workers[each].name for each in waits_for])
            ),
            retention=self._retention(application),
            tags=self._fleet.tags_of(key),
        )

    def _own(self, status: RaftStatus, proved: bool) -> Own:
        leader, config = self._leader, self._leader.config
        counts = leader.node.local(lambda machine: _counts(machine.state))
        faults = config.faults
        return Own(
            name=config.master.name,
            cluster=config.cluster.id,
            version=VERSION,
            status=status,
            serving=leader.serving and proved,
            leader_http=leader.http_of(status.leader),
            masters=tuple(self._master_rows(status)),
            faults=("disk_delay", "clock_offset") if faults.enabled else (),
            workers=counts[0],
            workers_alive=counts[1],
            applications=counts[2],
            shuffles=counts[3],
            now_ms=leader.now_ms(),
        )

    def _master_rows(self, status: RaftStatus) -> Iterator[MasterRow]:
        for info in self._masters.infos(status, self._leader.serving):
            peer = status.peers.get(info.name)
            yield MasterRow(
                name=info.name,
                http=info.http,
                own=peer is None,
                leads=info.leader,
                connected=info.reachable,
                lag=peer.lag if peer is not None and status.role == "leader" else None,
                error=(peer.error or "") if peer is not None else "",
            )

    # In a thread.

    def _make(self, view: View, own: Own, look: _Look | None) -> bytes:
        events = tuple(self._leader.events.latest(view.events))
        if look is None:
            return write(Picture(view, own, events))
        fleet = fleet_of(look.workers, look.reports, look.places, look.drains, view, look.now_ns, _rest)
        return write(
            Picture(
                view=view,
                own=own,
                events=events,
                fleet=fleet,
                shuffles=tuple(look.rows),
                shuffle_cut=look.cut,
                counts=self._count([each.instance for each in look.applications], own.shuffles),
                adhering=self._adherence.found,
                open_short=self._adherence.short,
                silent=sum(each.silent for each in look.applications),
                application=look.application,
                pace=look.pace,
                short=self._leader.short.sentence(self._leader.now_ms()),
            )
        )

    def _make_detail(self, view: View, own: Own, look: _Look | None) -> bytes:
        """The page about one shuffle, application, host or worker."""
        if look is None or look.missing:
            return write(Picture(view, own, (), missing=look.missing if look is not None else ""))
        events = naming(self._leader.events.latest(_LOOKED_THROUGH), look.names, view.events)
        picture = Picture(view, own, events, shuffles=tuple(look.rows), shuffle_cut=look.cut)
        if look.sums is not None:
            return write(replace(picture, detail=detail_of(look.rows[0], look.sums, look.workers, look.readers)))
        if look.detail is not None:
            history = history_of(self._leader.config.master.spark_history_url, look.detail.application.spark_id)
            return write(replace(picture, detail=look.detail, history_url=history))
        whole = replace(view, rack="")
        fleet = fleet_of(look.workers, look.reports, look.places, look.drains, whole, look.now_ns, _rest)
        return write(replace(picture, fleet=fleet, trend=curves_of(look.trend, HISTORY_SECONDS)))

    def _count(self, instances: Sequence[bytes], shuffles: int) -> ShuffleCounts:
        """Count all shuffles, some applications at a time; where they are many, every few seconds."""
        now = time.monotonic()
        if self._counted_at and shuffles > _COUNT_AT_ONCE and now - self._counted_at < _COUNT_AGAIN_SECONDS:
            return self._counted
        open_ = committed = lost = fewer = awaited = size = 0
        for instance in instances:
            found = self._leader.node.local(
                lambda machine, each=instance: list(machine.state.below.get(each, Below()).shuffles.values())  # type: ignore[misc]
            )
            for shuffle in found:
                open_ += not shuffle.committed_ms
                committed += bool(shuffle.committed_ms)
                lost += bool(shuffle.lost)
                fewer += bool(shuffle.under_replicated)
                awaited += bool(shuffle.awaited)
                size += shuffle.data_bytes
            if len(found) > 1_000:
                _rest()
        self._counted, self._counted_at = ShuffleCounts(open_, committed, lost, fewer, awaited, size), now
        return self._counted


def _copy(state: State, view: View) -> _Look:
    """Copy tables; runs under the state lock."""
    if view.subject.kind:
        return _COPIES[view.subject.kind](state, view)
    look = _Look(list(state.workers.values()), list(state.applications.values()))
    if view.application:
        below = state.below.get(bytes.fromhex(view.application), Below())
        look.cut = Cut.of(len(below.shuffles), view.shuffles)
        look.shuffles = _slice([below], look.cut)
    else:
        look.cut = Cut.of(state.shuffle_count, view.shuffles)
        look.shuffles = _slice([state.below[each] for each in reversed(state.below)], look.cut)
    return look


def _copy_workers(state: State, view: View) -> _Look:
    (name,) = view.subject.names
    worker = state.workers.get(state.worker_by_name.get(name, 0))
    if worker is None:
        return _Look(missing=f"There is no worker {name}. It never registered, or has another name now.")
    return _Look([worker], names=EventNames(frozenset({name})))


def _copy_host(state: State, view: View) -> _Look:
    (host,) = view.subject.names
    workers = [state.workers[number] for number in sorted(state.workers_of_host.get(host, ()))]
    if not workers:
        return _Look(missing=f"There is no host {host}: no worker has registered from it.")
    return _Look(workers, names=EventNames(frozenset({host, *(each.name for each in workers)})))


def _copy_application(state: State, view: View) -> _Look:
    (instance,) = view.subject.names
    application = state.applications.get(instance_of(instance))
    if application is None:
        return _Look(missing=f"There is no application {instance}. It has ended, or never was.")
    below = state.below[application.instance]
    cut = Cut.of(len(below.shuffles), view.shuffles)
    names = EventNames(frozenset({application.name, instance, instance[:8]}), f"{application.name}/")
    return _Look([], [application], _slice([below], cut), cut, names=names)


def _copy_shuffle(state: State, view: View) -> _Look:
    instance, *numbers = view.subject.names
    application = state.applications.get(instance_of(instance))
    key = [int(each) for each in numbers if each.isascii() and each.isdigit() and len(each) <= 10]
    shuffle = None
    if application is not None and len(key) == 2:
        shuffle = state.below[application.instance].shuffles.get((ShuffleId(key[0]), Generation(key[1])))
    if application is None or shuffle is None:
        name = "/".join((instance[:8], *numbers))
        return _Look(missing=f"There is no shuffle {name}. It was dropped, or its application has ended.")
    called = shuffle_name(application.name, *shuffle.key.number)
    names = EventNames(frozenset({called, str(shuffle.key)}))
    return _Look(list(state.workers.values()), [application], [shuffle], names=names)


_COPIES: dict[str, Callable[[State, View], _Look]] = {
    "workers": _copy_workers,
    "hosts": _copy_host,
    "applications": _copy_application,
    "shuffles": _copy_shuffle,
}


def _slice(below: Sequence[Below], cut: Cut) -> list[Shuffle]:
    """One page of shuffles, the newest of the newest application first."""
    found: list[Shuffle] = []
    skip = cut.first
    for each in below:
        if skip >= len(each.shuffles):
            skip -= len(each.shuffles)
            continue
        keys = islice(reversed(each.shuffles), skip, skip + cut.end - cut.first - len(found))
        found += [each.shuffles[key] for key in keys]
        skip = 0
        if len(found) >= cut.end - cut.first:
            break
    return found


def _counts(state: State) -> tuple[int, int, int, int]:
    alive = len(state.workers) - len(state.not_alive)
    return state.workers_total, alive, len(state.applications), state.shuffle_count


def _drain_text(progress: pb.Drain) -> str:
    waits = progress.waits or "it may be removed"
    if not progress.HasField("left_ms"):
        return waits
    left = in_time(progress.left_ms) if progress.left_ms > 0 else ""
    return f"{waits}; {goes_away(left, progress.reach)}"


def _rest() -> None:
    time.sleep(_REST_SECONDS)
