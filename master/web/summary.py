"""Sums and rows from the reports of workers: racks, usage, problems. Pure; run in a thread.

It looks at every directory of every worker, which is a few milliseconds of a thousand workers, and rests between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, not_adhering, open_short_of_copies
from holdfast.master.core.rates import Rates, rates_of
from holdfast.master.core.retention import in_time
from holdfast.master.core.state.records import Worker
from holdfast.master.leader.leader import WorkerReport
from holdfast.master.web.picture import (
    DiskRow,
    FleetPicture,
    GroupRow,
    Picture,
    Problem,
    ShuffleCounts,
    TierUsage,
    WorkerRow,
)
from holdfast.master.web.view import Cut, View

#: Workers between two rests.
_SLICE = 1_000
#: Of one sort of problem so many are named.
_NAMED = 5
#: Tiers as people go down them; others come behind, by name.
_TIERS = {"MEMORY": 0, "SSD": 1, "HDD": 2, "DFS": 9}


def fleet_of(
    workers: Sequence[Worker],
    reports: Mapping[int, WorkerReport],
    places: Mapping[int, str],
    drains: Mapping[int, str],
    view: View,
    now_ns: int,
    rest: Callable[[], None],
) -> FleetPicture:
    """Sum up the workers, and make rows of those that are asked for. `reports`: the last heartbeats of their latest
    starts, as far as they reported; `drains`: what drains wait for."""
    racks: dict[str, GroupRow] = {}
    problems = _Problems()
    shown = []
    for number, worker in enumerate(workers):
        if number % _SLICE == _SLICE - 1:
            rest()
        place = places[worker.id]
        rack = racks.get(place)
        if rack is None:
            rack = racks[place] = GroupRow(place)
        _count(worker, reports.get(worker.id), rack, problems)
        if not view.rack or view.rack == place:
            shown.append(worker)
    rest()
    cut = Cut.of(len(shown), view.workers)
    shown = nsmallest(cut.end, shown, lambda worker: (places[worker.id], worker.host, worker.name))[cut.first :]
    rows = [
        _row(worker, reports.get(worker.id), places[worker.id], drains.get(worker.id, ""), now_ns) for worker in shown
    ]
    ordered = tuple(racks[name] for name in sorted(racks))
    tiers = _all_of(ordered)
    return FleetPicture(
        racks=ordered,
        hosts=_hosts(workers, reports, {worker.host for worker in shown}),
        rows=tuple(rows),
        cut=cut,
        tiers=dict(sorted(tiers.items(), key=lambda each: (_TIERS.get(each[0], 5), each[0]))),
        rates=rates_of(each.rates for each in ordered),
        alive=sum(each.alive for each in ordered),
        draining=sum(each.draining for each in ordered),
        lost=sum(each.lost for each in ordered),
        problems=tuple(problems.listed()),
    )


def _hosts(workers: Sequence[Worker], reports: Mapping[int, WorkerReport], names: set[str]) -> dict[str, GroupRow]:
    """Sum up those of these hosts that have several workers."""
    hosts: dict[str, GroupRow] = {}
    for worker in workers:
        if worker.host in names:
            row = hosts.setdefault(worker.host, GroupRow(worker.host))
            _count(worker, reports.get(worker.id), row, _Problems())
    return {name: row for name, row in hosts.items() if row.workers > 1}


def problems_of(picture: Picture) -> list[Problem]:
    """The problems in all that is shown."""
    own, fleet, counts = picture.own, picture.fleet, picture.counts
    found = []
    if not own.status.leader:
        found.append(Problem("this master has no leader: no registration or commit is possible now"))
    found += [
        Problem(f"master {each.name} is not connected{f': {each.error}' if each.error else ''}")
        for each in own.masters
        if not each.connected
    ]
    found += [Problem(f"a fault is switched on: {each}", grave=False) for each in own.faults]
    if fleet is not None:
        found += fleet.problems
        if not fleet.racks:
            found.append(Problem("no worker has registered yet", grave=False))
        elif not fleet.alive:
            found.append(Problem("no worker is alive: applications fall back to Spark's own shuffle, or fail"))
    if counts.lost:
        found.append(Problem(f"{counted(counts.lost, 'shuffle')} committed without all data"))
    if counts.under_replicated:
        found.append(Problem(_fewer(counts), grave=False))
    if picture.adhering.failed:
        found.append(Problem(not_adhering(*picture.adhering), grave=False))
    if picture.open_short:
        found.append(Problem(open_short_of_copies(picture.open_short), grave=False))
    if picture.short:
        found.append(Problem(picture.short, grave=False))
    if picture.silent:
        silent = counted(picture.silent, "application")
        found.append(Problem(f"{silent} silent: every lease has expired; after the grace its data is deleted", False))
    return found


def _fewer(counts: ShuffleCounts) -> str:
    shuffles = counted(counts.under_replicated, "shuffle")
    text = f"{shuffles} committed with fewer copies than asked for: one more lost worker may take data with it"
    if not counts.awaited:
        return f"{text}. That stays so"
    if counts.awaited == counts.under_replicated:
        return f"{text}. Missing copies are sealed once their workers can"
    return f"{text}. Missing copies of {counts.awaited} of them are sealed once their workers can; the others stay so"


def _row(worker: Worker, report: WorkerReport | None, rack: str, drain: str, now_ns: int) -> WorkerRow:
    beat = report.heartbeat if report is not None else None
    return WorkerRow(
        worker=worker,
        rack=rack,
        seen_ms=max(now_ns - report.at_ns, 0) // 1_000_000 if report is not None else -1,
        memory=beat.memory_bytes if beat is not None else 0,
        files=beat.files if beat is not None else 0,
        rates=report.rates if report is not None and worker.alive else Rates(),
        disks=tuple(_disks(worker, beat)),
        drain=drain,
    )


def _count(worker: Worker, report: WorkerReport | None, row: GroupRow, problems: _Problems) -> None:
    """Add one worker to the sums of its rack or host."""
    state = worker.state
    row.workers += 1
    row.alive += worker.alive
    row.draining += state == "draining"
    row.lost += state == "lost"
    if state == "lost":
        problems.lost.append(worker.name)
    if report is None or not worker.alive:
        return
    row.rates = Rates(row.rates.push + report.rates.push, row.rates.fetch + report.rates.fetch)
    ill = False
    for disk in report.heartbeat.directories:
        row.tiers[disk.tier].add(disk.used_bytes, disk.free_bytes)
        if disk.problem:
            ill = True
            problems.ill.append(f"{worker.name} cannot use {disk.path}: {disk.problem}")
        elif disk.full:
            problems.full.append(f"{worker.name} {disk.path}: {disk.full}")
    if report.heartbeat.HasField("dfs"):
        dfs = report.heartbeat.dfs
        row.tiers["DFS"].add(dfs.bytes)
        if dfs.problem:
            ill = True
            problems.ill.append(f"{worker.name} cannot use {dfs.url} since {in_time(dfs.problem_ms)}: {dfs.problem}")
    row.ill += ill


def _all_of(rows: Sequence[GroupRow]) -> dict[str, TierUsage]:
    """Add up the tiers of all racks."""
    tiers: dict[str, TierUsage] = defaultdict(TierUsage)
    for row in rows:
        for tier, usage in row.tiers.items():
            tiers[tier].add(usage.used, usage.free, usage.spots)
    return tiers


def _disks(worker: Worker, beat: pb.HeartbeatRequest | None) -> Iterator[DiskRow]:
    if beat is None:
        for known in worker.directories:
            yield DiskRow(known.path, known.tier, "", 0, 0, "", "", known=False)
        return
    for each in beat.directories:
        yield DiskRow(each.path, each.tier, each.state, each.used_bytes, each.free_bytes, each.problem, each.full)
    if beat.HasField("dfs"):
        yield DiskRow(beat.dfs.url, "DFS", beat.dfs.state, beat.dfs.bytes, 0, beat.dfs.problem, "")


class _Problems:
    """What is not well with workers, by sort; the first of each are named."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.ill: list[str] = []
        self.full: list[str] = []

    def listed(self) -> Iterator[Problem]:
        """One problem for all lost workers, one for each of the first directories."""
        if self.lost:
            more = f" and {len(self.lost) - _NAMED} more" if len(self.lost) > _NAMED else ""
            yield Problem(f"{counted(len(self.lost), 'worker')} lost: {', '.join(self.lost[:_NAMED])}{more}")
        for sort, grave in ((self.ill, True), (self.full, False)):
            yield from (Problem(each, grave) for each in sort[:_NAMED])
            if len(sort) > _NAMED:
                yield Problem(f"and {len(sort) - _NAMED} more directories like that", grave)
