"""`holdfast status` and `workers`: the state of the cluster and of its workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import HoldfastError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, fewer_copies, in_bytes, not_adhering, open_short_of_copies, short_of_copies
from holdfast.common.worker_states import AWAY, LOST
from holdfast.tools.cli.asking import MASTER_SECONDS_MAX, ask, each_master, refused, with_masters
from holdfast.tools.cli.filters import chosen, hosts_option, names_argument, racks_option, states_option
from holdfast.tools.cli.hosts import dfs_problem, hosts_of, hosts_table, leaving_of, leaving_text, lost_hosts, several
from holdfast.tools.cli.output import (
    Document,
    Fitted,
    draw_problem,
    escape,
    in_seconds,
    json_option,
    masters_option,
    show,
    watched,
)
from holdfast.tools.cli.records import worker_record

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.net.control import ControlClient

#: Directories that `status` names.
_PROBLEMS_MAX = 10


@click.command()
@watched
@masters_option
@json_option
def status(masters: str, as_json: bool) -> int:
    """Show the state of the cluster. Exit 1 if a master is not reachable, none is the leader, a worker is lost, one has
    a directory or a DFS that it cannot use, or all are full."""
    document = with_masters(masters, _status)
    show(document, as_json, lambda screen: _draw_status(document, screen))
    return 0 if document["healthy"] else 1


#: What the leader counts.
_SUMS = (
    *("workers", "workers_alive", "applications", "shuffles", "under_replicated", "awaited"),
    *("epochs_short", "copies_coming", "restore_at_ms", "open_epochs_short"),
)
#: How open partitions stand to what placement wishes.
_ADHERING = ("strict", "soft", "failed")


async def _status(client: ControlClient) -> dict[str, Any]:
    answers = await each_master(client, client.endpoints, "Admin/Status", lambda _: pb.StatusRequest())
    masters = [_master(address, reply) for address, reply in answers.items()]
    leading = [reply for reply in answers.values() if isinstance(reply, pb.StatusReply) and reply.role == "leader"]
    problems = [
        f"master at {address} refuses this token: {reply}" if refused(reply) else f"no answer from master {reply}"
        for address, reply in answers.items()
        if isinstance(reply, HoldfastError)
    ]
    document: dict[str, Any] = {"cluster_id": "", "leader": "", "masters": masters}
    document |= {"warnings": [], "hosts": [], "leaving": []}
    if leading:
        # A deposed leader that does not know it yet has the lower term.
        first = max(leading, key=lambda answer: answer.term)
        document |= {"cluster_id": first.cluster_id, "leader": first.leader_http}
        names = {each.http: each.name for each in first.masters}
        for each in masters:  # one that is away is known by the leader
            each.setdefault("name", names.get(each["address"], ""))
        document |= {name: getattr(first, name) for name in _SUMS}
        adhering = {how: getattr(first, f"adhering_{how}") for how in _ADHERING}
        document["adhering"] = adhering
        if first.under_replicated:
            document["warnings"] += [f"{fewer_copies(first.under_replicated, first.awaited)}; see `holdfast shuffles`"]
        if first.epochs_short:
            in_s = max(0, first.restore_at_ms - first.clock_ms) // 1000
            document["warnings"] += [short_of_copies(first.epochs_short, first.copies_coming, in_s)]
        if first.open_epochs_short:
            document["warnings"] += [open_short_of_copies(first.open_epochs_short)]
        if adhering["failed"]:
            document["warnings"].append(f"{not_adhering(**adhering)}; see `holdfast placement APP/SHUFFLE`")
        try:
            request = pb.ListWorkersRequest()
            reply: pb.ListWorkersReply = await client.call("Admin/ListWorkers", request, deadline_s=MASTER_SECONDS_MAX)
        except HoldfastError as error:
            problems.append(f"the masters do not list the workers: {error}")
        else:
            document["hosts"] = hosts_of(reply.workers)
            document["leaving"] = leaving_of(reply.workers)
            document["warnings"] += [
                f"{each['host']}: worker {each['worker']}: {each['waits']}{leaving_text(each)}"
                for each in document["leaving"]
                if each["reach"] == "late"
            ]
            problems += _worker_problems(list(reply.workers), document["hosts"], masters)
            warnings, nowhere = _full(reply.workers)
            document["warnings"] += warnings
            problems += nowhere
    elif not any(map(refused, answers.values())):
        problems.append("there is no leader")
    problems += _differences(masters)
    return document | {"problems": problems, "healthy": not problems}


def _full(workers: Iterable[pb.WorkerInfo]) -> tuple[list[str], list[str]]:
    """Sentences for full directories of living workers, and one more if no worker has another one."""
    disks = [(worker.name, disk) for worker in workers if worker.state not in AWAY for disk in worker.directories]
    full = [f"{name} {disk.path}: {disk.full}" for name, disk in disks if disk.full and not disk.problem]
    more = [f"and {len(full) - _PROBLEMS_MAX} more directories are full: see `holdfast workers`"]
    nowhere = ["no worker takes new data: every directory is full or cannot be used; make room or add workers"]
    none_left = bool(full) and all(disk.full or disk.problem for _, disk in disks)
    return full[:_PROBLEMS_MAX] + (more if len(full) > _PROBLEMS_MAX else []), nowhere if none_left else []


def _worker_problems(
    workers: list[pb.WorkerInfo], hosts: list[dict[str, Any]], masters: list[dict[str, Any]]
) -> list[str]:
    """Sentences for lost hosts and workers, for directories and for each DFS that living workers cannot use, and for
    masters that would clean another one, or none."""
    living = [worker for worker in workers if worker.state not in AWAY]
    whole = lost_hosts(hosts)
    lost = [worker.name for worker in workers if worker.state == LOST and worker.host not in whole]
    found = []
    if whole:
        found.append(f"{counted(len(whole), 'host')} lost with all workers: {_first(whole)}")
    if lost:
        found.append(f"{counted(len(lost), 'worker')} lost: {_first(lost)}")
    failing_disks = [
        f"{worker.name} {disk.path}: {disk.problem}" for worker in living for disk in worker.directories if disk.problem
    ]
    found += failing_disks[:_PROBLEMS_MAX]
    if len(failing_disks) > _PROBLEMS_MAX:
        found.append(f"and {len(failing_disks) - _PROBLEMS_MAX} more directories with problems: see `holdfast workers`")
    failing: dict[str, list[pb.WorkerInfo]] = {}
    for worker in living:
        if worker.HasField("dfs") and worker.dfs.problem:
            failing.setdefault(worker.dfs.url, []).append(worker)
    found += [_dfs_failing(url, those, len(living)) for url, those in failing.items()]
    used = {worker.dfs.url for worker in living if worker.HasField("dfs")}
    return found + _uncleaned(used, [one for one in masters if one["reachable"]])


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _PROBLEMS_MAX} more" if len(names) > _PROBLEMS_MAX else ""
    return f"{', '.join(names[:_PROBLEMS_MAX])}{more}"


def _uncleaned(used: set[str], masters: list[dict[str, Any]]) -> list[str]:
    """A sentence if masters have another `[dfs] url` than workers, or none: the leader has to remove what dead
    workers left, and cannot there."""
    wrong = [f"{one['name']} has {one['dfs_url'] or 'none'}" for one in masters if used - {one["dfs_url"]}]
    text = (
        f"workers have the [dfs] url {', '.join(sorted(used))}, of the masters {', '.join(wrong)}: what dead workers"
        " leave there is not removed; set the same [dfs] on all masters"
    )
    return [text] if wrong else []


def _dfs_failing(url: str, failing: list[pb.WorkerInfo], living: int) -> str:
    first = max(failing, key=lambda worker: worker.dfs.problem_ms)
    who = f"{first.name} cannot" if len(failing) == 1 else f"{len(failing)} of {living} workers cannot"
    return dfs_problem(who, url, first.dfs.problem_ms, first.dfs.problem)


def _differences(masters: list[dict[str, Any]]) -> list[str]:
    """A sentence if masters that have applied the same do not hold the same."""
    hashes: dict[int, set[str]] = {}
    for master in masters:
        if master["reachable"]:
            hashes.setdefault(master["applied_index"], set()).add(master["state_hash"])
    return [f"masters differ in state at applied index {index}" for index, seen in hashes.items() if len(seen) > 1]


def _master(address: str, answer: pb.StatusReply | HoldfastError) -> dict[str, Any]:
    if isinstance(answer, HoldfastError):
        return {"address": address, "reachable": False}
    numbers = ("term", "commit_index", "applied_index", "snapshot_index", "log_entries")
    return {
        "address": address,
        "reachable": True,
        "name": answer.name,
        "role": answer.role,
        **{name: getattr(answer, name) for name in numbers},
        "state_hash": answer.state_hash.hex(),
        "faults": list(answer.faults),
        "version": answer.version,
        "dfs_url": answer.dfs_url,
    }


def _draw_status(document: Document, screen: Console) -> None:
    if document["leader"]:
        screen.print(f"cluster {document['cluster_id']}, led by {document['leader']}")
        on = f" on {counted(len(document['hosts']), 'host')}" if several(document["hosts"]) else ""
        draining = sum(each["draining"] for each in document["hosts"])
        screen.print(
            f"{document['workers_alive']} of {counted(document['workers'], 'worker')} alive{on}, "
            f"{f'{draining} draining, ' if draining else ''}"
            f"{counted(document['applications'], 'application')}, {counted(document['shuffles'], 'shuffle')}"
        )
        adhering = ", ".join(f"{count} {how}" for how, count in document["adhering"].items())
        if any(document["adhering"].values()):
            screen.print(f"open partitions as placement wishes: {adhering}")
    for each in (each for each in document["leaving"] if each["reach"] != "late"):  # of the others there are warnings
        waits = escape(each["waits"] or "it may be removed")
        screen.print(f"{escape(each['host'])}: {waits}{leaving_text(each)}", soft_wrap=True)
    keys = ("name", "address", "role", "#term", "?#applied_index", "?#log_entries", "?state_hash")
    rows = [[str(master.get(key.lstrip("?#"), "-"))[:24] for key in keys] for master in document["masters"]]
    screen.print(Fitted(keys, rows))
    for master in document["masters"]:
        for fault in master.get("faults", []):
            screen.print(f"fault on {master['name']}: {fault}")
    for problem in document["problems"]:
        draw_problem(problem, screen)
    for warning in document["warnings"]:
        screen.print(f"[yellow]warning[/]: {escape(warning)}", soft_wrap=True)
    if document["healthy"]:
        screen.print("nothing is broken" if document["warnings"] else "all is well")


@click.command()
@names_argument
@hosts_option
@racks_option
@states_option
@watched
@masters_option
@json_option
def workers(
    names: tuple[str, ...],
    hosts: tuple[str, ...],
    racks: tuple[str, ...],
    states: tuple[str, ...],
    masters: str,
    as_json: bool,
) -> int:
    """List the workers: all, those of hosts, or those named. Exit 1 if one of them is lost, or has a directory or a DFS
    that is not healthy."""
    reply: pb.ListWorkersReply = ask(masters, "Admin/ListWorkers", pb.ListWorkersRequest())
    listed = chosen(reply.workers, names, hosts, states, racks)
    found, of_hosts = [worker_record(worker) for worker in listed], hosts_of(listed)
    show({"workers": found, "hosts": of_hosts}, as_json, lambda screen: _draw_workers(found, of_hosts, screen))
    return 0 if all(map(_is_whole, found)) else 1


def _is_whole(worker: dict[str, Any]) -> bool:
    disks = all(disk["healthy"] for disk in worker["directories"])
    return worker["state"] != LOST and disks and not (worker["dfs"] and worker["dfs"]["problem"])


def _draw_workers(found: list[dict[str, Any]], hosts: list[dict[str, Any]], screen: Console) -> None:
    if several(hosts):
        screen.print(hosts_table(hosts))
        order = {each["host"]: number for number, each in enumerate(hosts)}
        found = sorted(found, key=lambda one: (order.get(one["host"], len(order)), one["name"]))
    tags = ("tags",) if any(one["tags"] for one in found) else ()
    columns = (
        *("#id", "name", "host", "?place", *(f"?{key}" for key in tags), "?address", "state"),
        *("?#starts", "?#seen", "?#files", "#used", "#free"),
    )
    rows = [
        (
            *(one[key] for key in ("worker", "name", "host", "place")),
            *(", ".join(one[key]) for key in tags),
            *(one[key] for key in ("data_address", "state", "incarnation")),
            f"{in_seconds(one['last_seen_ms'] / 1000)} ago",
            one["files"],
            *("-" if one["state"] in AWAY else in_bytes(one[key]) for key in ("used_bytes", "free_bytes")),
        )
        for one in found
    ]
    screen.print(Fitted(columns, rows))
    disks = ("worker", "directory", "?tier", "state", "#used", "?#capacity", "#free", "?#errors")
    screen.print(Fitted((*disks, "?#mean write", "?#mean read"), [row for one in found for row in _storage_rows(one)]))
    screen.print("mean write, mean read: of the last seconds, - if there was none; of a DFS: of whole files, of parts")
    for one in found:
        if one["drain"]:
            waits = escape(one["drain"]["waits"] or "it may be removed")
            screen.print(f"draining: {one['name']}: {waits}{leaving_text(one['drain'])}", soft_wrap=True)
        dfs = one["dfs"]
        if dfs and dfs["problem"]:
            draw_problem(dfs_problem(f"{one['name']} cannot", dfs["url"], dfs["problem_ms"], dfs["problem"]), screen)
        elif dfs and dfs["files"]:
            screen.print(f"DFS: {one['name']} has {counted(dfs['files'], 'file')} on {escape(dfs['url'])}")
        for disk in one["directories"] if one["state"] not in AWAY else ():
            if not disk["healthy"]:
                draw_problem(f"{one['name']} {disk['path']}: {disk['problem']}", screen)
            elif disk["full"]:
                screen.print(f"full: {one['name']} {escape(disk['path'])}: {escape(disk['full'])}", soft_wrap=True)


def _storage_rows(worker: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for disk in worker["directories"]:
        if worker["state"] in AWAY:  # what it said last is old, or this leader never heard it
            rows.append((worker["name"], disk["path"], disk["tier"], *["-"] * 7))
            continue
        sizes = [in_bytes(disk[key]) for key in ("used_bytes", "capacity_bytes", "free_bytes")]
        times = [_mean(disk[key]) for key in ("flush_us", "fetch_us")]
        rows.append((worker["name"], disk["path"], disk["tier"], disk["state"], *sizes, disk["errors"], *times))
    dfs = worker["dfs"]
    if dfs:
        times = [_mean(dfs[key]) for key in ("put_us", "read_us")]
        rows.append((worker["name"], dfs["url"], "DFS", dfs["state"], in_bytes(dfs["bytes"]), "", "", "", *times))
    return rows


def _mean(micros: int) -> str:
    return in_seconds(micros / 1e6) if micros else "-"
