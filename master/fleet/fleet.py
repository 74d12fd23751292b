"""The workers as placement sees them: which ones may get data, their places, and which ones to spare.

Rules
* Candidates are alive, do not drain, have the tags that the shuffle is confined to, and a directory that takes such
  data. Those that flap, that are in quarantine, that were lost a moment ago, or that the generation avoids are spared:
  used where the rest is not enough.
* Places are resolved in a thread, cached per host, and recorded for all masters; workers of one host are at one place.
* What the policy could not keep to is counted. Everything else here is for this leadership only.

Runs in the event loop, on the leader. Called by registry, shuffles, reviving and moving.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import TypeVar

from holdfast.common.config.config import Config
from holdfast.common.config.placement import POLICIES, PlacementSection
from holdfast.common.errors import HoldfastError, NoRoomError, RetryError
from holdfast.common.ids import Instance, ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background
from holdfast.common.system.waiting import said
from holdfast.common.tags import named
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Application, Shuffle, Worker
from holdfast.master.fleet.capacity import excluded_because, no_room, takes
from holdfast.master.fleet.decisions import LEFT_OUT_MAX, PlacementDecisions
from holdfast.master.fleet.installed import WatchedPolicy
from holdfast.master.fleet.resolvers import RESOLVER_KEYS, Places, make_places
from holdfast.master.leader.daemon import DaemonThread
from holdfast.master.leader.leader import Leader, WhileLeading, WorkerReport
from holdfast.master.leader.turns import turn
from holdfast.master.placement.groups import Adhering, PlacedGroups, place
from holdfast.master.placement.members import Draw, Member
from holdfast.master.placement.policy import Candidates, DirectoryLoad, Policy, Workers
from holdfast.master.placement.replace import Gone, Moving, Repaired, Replaced, repair, replace_all
from holdfast.master.placement.ring import Ring, map_ring
from holdfast.master.placement.stabiliser import Flapping, Quarantine, Stabiliser
from holdfast.master.placement.wishes import Racks, Regions

#: Several workers of one rack that were lost within this time: the rack cannot be reached.
_RACK_LOST_MS = 60_000
_RACK_LOST_WORKERS = 2
#: A registration waits so long for its place.
_RESOLVE_SECONDS = 2.0
#: A reload waits so long for the resolver.
_RELOAD_SECONDS = 30.0
#: No tags are wanted: every worker has them.
ANY: frozenset[str] = frozenset()
T = TypeVar("T")


def policy_of(section: PlacementSection) -> Policy:
    """Return what a configuration wishes. Raises ConfigError for a policy that is not installed."""
    return Policy(
        constraint=section.policy,
        order=section.order,
        racks=Racks(section.min_racks, section.enforce_racks, section.default_place),
        regions=Regions(
            write_to=section.write_regions,
            durable=section.durable_regions,
            refused=frozenset(section.refused_regions),
            local=section.local_region,
            equal=section.equal_regions,
            enforced_in_replace=section.durable_in_replace,
        ),
        multiple=section.max_multiple,
        groups=section.disk_groups,
        gradient=section.gradient,
        flush_weight=section.flush_weight,
        fetch_weight=section.fetch_weight,
        avoid_holds=section.avoid_holds,
        own=WatchedPolicy(section.policy) if section.policy not in POLICIES else None,
    )


def fresh_draw() -> Draw:
    """A source of chance of one's own, for use in a thread."""
    return random.Random(secrets.token_bytes(16))


class Fleet(WhileLeading):
    """Chooses workers while this master is the leader."""

    def __init__(self, leader: Leader) -> None:
        """Raises ConfigError for a resolver that cannot be made."""
        super().__init__(leader)
        #: the settings of now
        self.section = leader.config.placement
        self.policy = policy_of(self.section)
        self.places: Places = make_places(self.section)
        self.decisions = PlacementDecisions()
        self._reloading = asyncio.Lock()
        #: resolvers may hang: they have a thread of their own, and ask for all that waits at once
        self._executor = DaemonThread("holdfast-resolver")
        self._pending: set[str] = set()
        self._asking: asyncio.Task[None] | None = None
        #: set when places are to be looked at before `refresh` is over
        self._hurry = asyncio.Event()
        #: by worker its start that was counted last
        self._starts: dict[int, int] = {}
        self._reset()

    def _adopt(self) -> None:
        """Go on with the settings of now."""
        section = self.section
        self._stabiliser.period_ns = section.stabilise.ns
        self._flapping.starts_max, self._flapping.window_ns = section.flap_starts, section.flap_window.ns
        self._quarantine.errors_max = section.quarantine_errors
        self._quarantine.interval_ns = section.quarantine_interval.ns
        self._quarantine.duration_ns = section.quarantine_duration.ns
        self._quarantine.ratio = float(section.quarantine_ratio)

    def _reset(self) -> None:
        self.decisions.clear()
        self._starts.clear()
        self._stabiliser, self._flapping, self._quarantine = Stabiliser(), Flapping(), Quarantine()
        #: as of which place in the log the stabiliser has the workers, and where they are, by which default
        self._looked = -1
        self._places_then: tuple[int, str, Mapping[int, str]] = -1, "", {}
        self._adopt()

    # Settings.

    async def reload(self, load: Callable[[], Config]) -> list[str]:
        """Go on with the settings that `load` reads, resolving every host anew; return which keys changed. Raises
        ConfigError; nothing has changed then."""

        def read() -> tuple[PlacementSection, Policy, Places]:
            section = load().placement
            if any(getattr(section, key) != getattr(self.section, key) for key in RESOLVER_KEYS):
                return section, policy_of(section), make_places(section)
            self.places.reload()
            return section, policy_of(section), self.places

        async with turn(self._reloading, "a reload"):  # the file that was read last is the one that counts
            section, policy, places = await self._read(read)
            keys = [each.name for each in fields(section)]
            changed = [name for name in keys if getattr(section, name) != getattr(self.section, name)]
            self.section, self.policy, self.places = section, policy, places
            self._adopt()
        self._leader.events.tell(LogEvent.CONFIGURATION_RELOADED, section="placement", changed=changed)
        self._hurry.set()
        return changed

    async def _read(self, read: Callable[[], T]) -> T:
        """Return read(), in the thread of the resolver. Raises RetryError where that is not free in time."""
        try:
            with said("the resolver of places to be free, for a reload"):
                async with asyncio.timeout(_RELOAD_SECONDS):
                    return await asyncio.get_running_loop().run_in_executor(self._executor, read)
        except TimeoutError:
            raise RetryError(
                f"the resolver of places has been looking up hosts for {_RELOAD_SECONDS:g} s; nothing has changed"
            ) from None

    # Places.

    async def resolve(self, host: str) -> str:
        """Return where a host is; "" if it cannot be resolved within a moment: then it is recorded as soon as it is."""
        known = self.places.known(host)
        if known is None:
            await asyncio.wait({self._ask([host])}, timeout=_RESOLVE_SECONDS)
            known = self.places.known(host)
            if known is None:
                self._hurry.set()
        return known or ""

    def check_rack(self, host: str, rack: str) -> None:
        """Tell of a worker whose own place cannot be used, since places have another depth."""
        default = self.policy.racks.default
        if rack.startswith("/") and rack.removesuffix("/").count("/") != default.count("/"):
            reason = f"worker.rack = {rack} has another depth than the default place, {default}"
            log_event(LogEvent.PLACE_INVALID, host=host, reason=reason)

    def _ask(self, hosts: Iterable[str]) -> asyncio.Task[None]:
        """Have these resolved; the task ends when all that wait have been."""
        self._pending.update(hosts)
        if self._asking is None or self._asking.done():
            self._asking = background(self._ask_pending(), self._leader.fail)
        return self._asking

    async def _ask_pending(self) -> None:
        while self._pending:
            batch = sorted(self._pending)
            self._pending.clear()
            await asyncio.get_running_loop().run_in_executor(self._executor, self.places.resolve, batch)

    async def _run(self) -> None:
        """Ask again for hosts that are not resolved, and record new places of workers."""
        while True:
            try:
                await self._place_all()
            except HoldfastError as error:
                log_event(LogEvent.PLACE_RECORD_FAILED, status=error.status.name, reason=error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self.section.refresh.seconds)
            self._hurry.clear()

    async def _place_all(self) -> None:
        workers = self._leader.peek(lambda state: list(state.workers.values()))
        hosts = {each.host for each in workers}
        new = [host for host in hosts if self.places.known(host) is None]
        if new:
            await asyncio.shield(self._ask(new))
        found = {host: known for host in hosts if (known := self.places.known(host)) is not None}
        placed = {each.host for each in workers if each.rack or each.place}
        self._leader.counts.rack_unresolved += sum(host not in found and host not in placed for host in new)
        # A host that cannot be resolved now keeps its recorded place: a script that fails moves no worker.
        moved = [
            cmd.WorkerPlace(each.id, found[each.host])
            for each in workers
            if each.host in found and each.place != found[each.host]
        ]
        if moved:
            self._leader.expect(await self._leader.proposer.submit(cmd.Command(cmd.PlaceWorkers(tuple(moved)))))
            log_event(LogEvent.PLACE_CHANGED, workers=len(moved))
            if self.section.repair:
                self._leader.workers_changed.set()

    def places_now(self) -> Mapping[int, str]:
        """Where every worker is, those that are lost included. What has been found holds until a record changes. Ask
        after the workers were read: one may register between two looks at the state."""
        default = self.policy.racks.default
        known = self._leader.peek(lambda state: state.workers_index), default
        if self._places_then[:2] != known:
            index, workers = self._leader.peek(lambda state: (state.workers_index, list(state.workers.values())))
            self._places_then = index, default, places_of(workers, default)
        return self._places_then[2]

    # Candidates.

    def tags_of(self, key: ShuffleKey) -> frozenset[str]:
        """What workers need to be given anything of a shuffle: the tags of its application, and of its user by now."""
        application = self._leader.peek(lambda state: state.applications.get(key.instance))
        return self._tags(application) if application is not None else ANY

    def tags_by_instance(self, shuffles: Iterable[Shuffle]) -> dict[Instance, frozenset[str]]:
        """The same by the instances of many shuffles."""
        keys = {each.key.instance: each.key for each in shuffles}
        return {instance: self.tags_of(key) for instance, key in keys.items()}

    def _tags(self, application: Application) -> frozenset[str]:
        return frozenset((*application.tags, *self.section.tags_of(application.user)))

    def wanted_tags(self) -> frozenset[str]:
        """All tags that shuffles of now are confined to."""
        applications = self._leader.peek(lambda state: list(state.applications.values()))
        return ANY.union(*map(self._tags, applications))

    def places_with(self, tags: frozenset[str]) -> frozenset[str]:
        """Where the workers with these tags are, those that are lost included."""
        if not tags:
            return frozenset(self.places_now().values())
        workers = self._leader.peek(lambda state: [each.id for each in state.workers.values() if tags <= {*each.tags}])
        places = self.places_now()
        return frozenset(places[each] for each in workers)

    def started(self, worker: int, incarnation: int) -> None:
        """A worker registered a start, or the same one again."""
        if self._starts.get(worker) != incarnation:
            self._starts[worker] = incarnation
            self._flapping.started(worker, self._leader.now_ns())

    def failed(self, workers: Iterable[int]) -> None:
        """Clients could not write there, and it was no lack of room and no restart."""
        self._quarantine.failed(workers)

    def placed(self) -> None:
        """Partitions were placed: if a worker has begun to drain meanwhile, they may have to move at once."""
        if self._leader.peek(lambda state: not state.draining <= state.not_alive):
            self._leader.workers_changed.set()

    def in_grace(self) -> frozenset[int]:
        """Workers that are lost, but may be back in a moment; their epochs stay for now."""
        self._look()
        return self._stabiliser.reserve

    def _look(self) -> None:
        """Record the present workers."""
        now = self._leader.now_ns()
        if self._leader.peek(lambda state: state.workers_index) == self._looked:
            dead = self._stabiliser.expired(now)
        else:
            self._looked, workers, absent, draining = self._leader.peek(
                lambda state: (state.workers_index, dict(state.workers), {*state.not_alive}, {*state.draining})
            )
            changed = self._stabiliser.update(workers.keys() - absent - draining, draining - absent, now)
            dead = changed.dead
            for number in changed.left & absent:
                self.places.forget(workers[number].host)  # it may be elsewhere when it is back
        if self.section.stabilise.ns and dead:
            self._leader.workers_changed.set()

    def candidates(self, shuffle: Shuffle | cmd.RegisterShuffle) -> Candidates:
        """Return the workers that may be given data of a shuffle, now and whenever some of it has to move: those that
        its generation avoids are spared."""
        kind, ack = shuffle.kind, shuffle.ack
        self._look()
        now = self._leader.now_ns()
        spared = self._flapping.look(now) | self._quarantine.tick(now, fresh_draw())
        tags = self.tags_of(shuffle.key)
        first: list[Member] = []
        second: list[Member] = []
        disks: dict[int, Sequence[DirectoryLoad]] = {}
        for one, there in self.taking(kind, ack, tags):
            disks[one.worker] = there
            (second if one.worker in spared else first).append(one)
        lost = self._stabiliser.reserve
        if lost:
            workers = self._leader.peek(lambda state: [each for one in lost if (each := state.workers.get(one))])
            places = self.places_now()
            second += [
                Member(each.id, each.host, places[each.id])
                for each in workers
                if not each.alive
                and tags.issubset(each.tags)
                and not refused_by(self.section.refused, each, places[each.id])
            ]
        found = Candidates(first, second, disks, self.places_with(tags), tags)
        return found.without(shuffle.avoid) if self.policy.avoid_holds else found.sparing(shuffle.avoid)

    def taking(
        self, kind: int, ack: int, tags: frozenset[str] = ANY
    ) -> Iterator[tuple[Member, Sequence[DirectoryLoad]]]:
        """Yield the living workers with these tags that take data of such a shuffle and do not drain, with the disks
        that do."""
        living, refused = list(self._reports(tags)), self.section.refused
        places = self.places_now()
        for worker, report in living:
            place = places[worker.id]
            if worker.draining_ms or (refused and refused_by(refused, worker, place)):
                continue
            disks = () if report is None else _loads(report, kind, ack)
            # A new leader has not got all heartbeats yet; a worker refuses what it cannot take.
            if disks or report is None:
                yield Member(worker.id, worker.host, place), disks

    def _left_out(self, shuffle: Shuffle | cmd.RegisterShuffle, candidates: Candidates) -> Iterator[tuple[Worker, str]]:
        """Yield the workers that are no candidates, or spared, with the reason."""
        now, tags, refused = self._leader.now_ns(), self.tags_of(shuffle.key), self.section.refused
        flapping, held = self._flapping.look(now), self._quarantine.tick(now, fresh_draw())
        living = list(self._reports(without={one.worker for one in candidates.members}))
        places = self.places_now() if refused and living else {}
        for worker in self._leader.peek(lambda state: [state.workers[each] for each in sorted(state.not_alive)]):
            yield worker, "lost"
        for worker, report in living:
            if not tags.issubset(worker.tags):
                yield worker, f"without {named(tags.difference(worker.tags))}"
            elif worker.draining_ms:
                yield worker, "drains"
            elif refused and refused_by(refused, worker, places[worker.id]):
                yield worker, "refused: [placement] refused names it"
            elif report is not None and not _loads(report, shuffle.kind, shuffle.ack):
                yield worker, excluded_because(report.heartbeat.directories)
            elif worker.id in flapping:
                yield worker, "spared: started again and again"
            elif worker.id in held:
                yield worker, "spared: in quarantine after many errors"
            elif worker.id in shuffle.avoid:
                yield worker, "spared: readers of the generation before could not use it"

    def chosen(
        self, what: str, shuffle: Shuffle | cmd.RegisterShuffle, candidates: Candidates, adhering: Adhering
    ) -> None:
        """Count and remember a choice, and how far the partitions are as wished."""
        self._leader.counts.placement_not_adhering += adhering.not_strict
        self._leader.counts.placement_soft += adhering.soft
        left_out = list(self._left_out(shuffle, candidates))
        decision = pb.PlacementDecision(
            time_ms=self._leader.now_ms(),
            what=what,
            partitions=sum(adhering),
            policy=self.policy.constraint,
            order=self.policy.order,
            candidates=len(candidates),
            spared=len(candidates.spared),
            not_adhering=adhering.not_strict,
            soft=adhering.soft,
            left_out=[
                pb.LeftOut(worker=each.id, name=each.name, why=reason) for each, reason in left_out[:LEFT_OUT_MAX]
            ],
            left_out_total=len(left_out),
        )
        self.decisions.remember(shuffle.key, decision)

    # What is chosen.

    def new_ring(self, candidates: Candidates, copies: int) -> Ring:
        """Return the ring of a shuffle of MAP partitions. Raises NoRoomError."""
        ring = map_ring(self.policy, candidates, copies, fresh_draw())
        if not ring.workers:
            raise self._nowhere(candidates.tags)
        return ring

    def placing(self, candidates: Candidates, count: int, copies: int) -> Callable[[], PlacedGroups]:
        """Return what places a new shuffle of REDUCE partitions, in any thread; it raises NotEnoughError. Raises
        NoRoomError."""
        if not len(candidates):
            raise self._nowhere(candidates.tags)
        return partial(place, self.policy, candidates, count, copies, fresh_draw())

    def replacing(self, candidates: Candidates, copies: int) -> Callable[[Sequence[Moving]], Replaced]:
        """Return what finds new places for partitions of one shuffle, in any thread. It raises NotEnoughError, and
        finds nothing if no worker takes data."""
        default = self.policy.racks.default
        workers, time_ms = self._leader.peek(lambda state: (list(state.workers.values()), state.time_ms))
        return partial(
            replace_all,
            self.policy,
            candidates,
            copies=copies,
            draw=fresh_draw(),
            gone=Gone(places=places_of(workers, default), unreachable=unreachable_racks(workers, default, time_ms)),
        )

    def repairing(self, candidates: Candidates, copies: int) -> Callable[[Sequence[Workers]], Repaired]:
        """Return what finds better places for groups that are not as wished, in any thread."""
        places = self.places_now()
        return partial(repair, self.policy, candidates, copies=copies, draw=fresh_draw(), gone=Gone(places=places))

    def _nowhere(self, tags: frozenset[str]) -> NoRoomError:
        """The error of a shuffle that no worker with these tags takes."""
        reason = self.no_room(tags) or "no worker is alive; start one, see `holdfast workers`"
        self._leader.events.tell(LogEvent.PLACEMENT_NO_ROOM, what="shuffles", reason=reason)
        return NoRoomError(reason)

    def no_room(self, tags: frozenset[str]) -> str:
        """Say which limits living workers with these tags met, where none is a candidate; "" if none is alive."""
        living = list(self._reports(tags))
        if tags:
            if not living and any(self._reports()):
                return f"no worker that is alive has {named(tags)}: start one, or see `holdfast workers` for the tags"
            limits_met = self._limits_met(living)
            return limits_met and f"of the workers with {named(tags)}: {limits_met}"
        return self._limits_met(living)

    def _limits_met(self, living: Sequence[tuple[Worker, WorkerReport | None]]) -> str:
        heard = [
            (worker.name, report.heartbeat if report is not None else pb.HeartbeatRequest())
            for worker, report in living
            if not worker.draining_ms
        ]
        if living and not heard:
            return "no worker takes data: all that are alive drain; start one, or end a drain with `holdfast undrain`"
        if living and self.section.refused:
            places = self.places_now()
            if all(refused_by(self.section.refused, worker, places[worker.id]) for worker, _ in living):
                return "no worker takes data: [placement] refused names all that are alive"
        return no_room(heard) if heard else ""

    def _reports(
        self, tags: frozenset[str] = ANY, without: Collection[int] = ()
    ) -> Iterator[tuple[Worker, WorkerReport | None]]:
        """Yield the living workers with these tags, without those of some numbers, each with its last report."""
        for worker in self._leader.peek(
            lambda state: [each for each in state.workers.values() if each.alive and each.id not in without]
        ):
            if tags.issubset(worker.tags):
                yield worker, self._leader.report(worker)

    # What is shown.

    def gauges(self) -> Iterator[tuple[str, float]]:
        """Name and value of each."""
        workers = self._leader.node.local(
            lambda machine: [each for each in machine.state.workers.values() if each.alive]
        )
        default = self.policy.racks.default
        yield "workers_on_default_rack", list(places_of(workers, default).values()).count(default)
        if self._leader.serving:
            now = self._leader.now_ns()
            yield "workers_flapping", len(self._flapping.look(now))
            yield "workers_in_quarantine", len(self._quarantine.tick(now, fresh_draw()))


def places_of(workers: Iterable[Worker], default: str) -> dict[int, str]:
    """Return where workers are: as resolved, else as they say of themselves, else the default place. All of one host
    are where the first of them is: a host has one place."""
    hosts: dict[str, str] = {}
    for worker in workers:
        if worker.host not in hosts:
            hosts[worker.host] = place_of(worker, default)
    return {worker.id: hosts[worker.host] for worker in workers}


def _loads(report: WorkerReport, kind: int, ack: int) -> Sequence[DirectoryLoad]:
    """The disks of a worker that take data of such a shuffle. For thousands of workers that takes as long as to place a
    shuffle, so it is worked out once for each heartbeat."""
    loads = report.loads.get((kind, ack))
    if loads is None:
        here = [each for each in report.heartbeat.directories if takes(each, kind, ack)]
        loads = [DirectoryLoad(each.free_bytes, each.flush_us, each.fetch_us) for each in here]
        report.loads[kind, ack] = loads
    return loads


def place_of(worker: Worker, default: str) -> str:
    """Return where a worker is: worker.rack may be a whole place, or a rack of the default region."""
    if worker.place:
        return worker.place
    if not worker.rack:
        return default
    head, *parts = worker.rack.removesuffix("/").split("/")
    if not parts:
        return f"{default.rpartition('/')[0]}/{head}"
    return f"/{'/'.join(parts)}" if not head and len(parts) == default.count("/") and all(parts) else default


def refused_by(refused: Collection[str], worker: Worker, place: str) -> bool:
    """Whether a worker is among the names of workers and hosts and the places that take nothing."""
    return bool(refused) and any(
        each in (worker.name, worker.host, place) or (each[:1] == "/" and place.startswith(f"{each}/"))
        for each in refused
    )


def unreachable_racks(workers: Sequence[Worker], default: str, time_ms: int) -> frozenset[str]:
    """Return the racks of which several workers were lost lately."""
    lost: dict[str, int] = {}
    places = places_of(workers, default)
    for worker in workers:
        if not worker.alive and time_ms - worker.changed_ms < _RACK_LOST_MS:
            lost[places[worker.id]] = lost.get(places[worker.id], 0) + 1
    return frozenset(rack for rack, count in lost.items() if count >= _RACK_LOST_WORKERS and rack != default)
