"""Workers by host, as `workers`, `status` and `top` tell them: sums of what the workers of each told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import goes_away, in_bytes
from holdfast.common.worker_states import ALIVE, AWAY, DRAINING, GONE, LOST
from holdfast.tools.cli.output import Fitted, in_seconds

_RATES = ("push_rate", "fetch_rate")
_SIZES = ("used_bytes", "free_bytes")


def hosts_of(workers: Iterable[pb.WorkerInfo]) -> list[dict[str, Any]]:
    """The hosts by name, without workers that are gone."""
    found: dict[str, list[pb.WorkerInfo]] = {}
    for worker in workers:
        if worker.state != GONE:
            found.setdefault(worker.host, []).append(worker)
    return [_host(name, each) for name, each in sorted(found.items())]


def several(hosts: Sequence[dict[str, Any]]) -> bool:
    """Whether some host has more than one worker; else its line would repeat its worker's line."""
    return any(each["workers"] > 1 for each in hosts)


def lost_hosts(hosts: Sequence[dict[str, Any]]) -> list[str]:
    """Those with several workers of which none is left."""
    return [each["host"] for each in hosts if each["workers"] == each["lost"] > 1]


#: The worst of a host's workers says how it stands.
_REACHES = ("late", "unknown", "in time", "reached")


def leaving_of(workers: Iterable[pb.WorkerInfo]) -> list[dict[str, Any]]:
    """The hosts that go away at a known time, the next ones first: when, whether their workers will keep nothing by
    then, and the worker that is farthest from that."""
    found: dict[str, dict[str, Any]] = {}
    for worker in workers:
        drain = worker.drain
        if not drain.HasField("left_ms"):
            continue
        own = {"host": worker.host, "worker": worker.name, "left_ms": drain.left_ms}
        own |= {"reach": drain.reach, "waits": drain.waits}
        known = found.setdefault(worker.host, own)
        if _REACHES.index(drain.reach) < _REACHES.index(known["reach"]):
            found[worker.host] = own
    return sorted(found.values(), key=lambda each: (each["left_ms"], each["host"]))


def leaving_text(drain: dict[str, Any]) -> str:
    """When a host goes away, and whether its workers are ready by then; "" where nobody gave a time."""
    left = drain["left_ms"]
    if left is None:
        return ""
    return f"; {goes_away(in_seconds(left / 1000) if left > 0 else '', drain['reach'])}"


def hosts_table(hosts: Sequence[dict[str, Any]]) -> Fitted:
    """A line for each."""
    columns = ("host", "?place", "workers", "#used", "#free", "?#pushed/s", "?#fetched/s")
    rows = [
        (each["host"], each["place"], _states(each), *(in_bytes(each[key]) for key in (*_SIZES, *_RATES)))
        for each in hosts
    ]
    return Fitted(columns, rows)


def _host(name: str, workers: Sequence[pb.WorkerInfo]) -> dict[str, Any]:
    living = [each for each in workers if each.state not in AWAY]
    states = [each.state for each in workers]
    disks = [disk for each in living for disk in each.directories]
    return {
        "host": name,
        "place": workers[0].place,
        "workers": len(workers),
        "alive": len(living),
        **{state: states.count(state) for state in (DRAINING, LOST)},
        **{key: sum(getattr(disk, key) for disk in disks) for key in _SIZES},
        **{key: sum(getattr(each, key) for each in living) for key in _RATES},
        "names": sorted(each.name for each in workers),
    }


def _states(host: dict[str, Any]) -> str:
    counts = [f"{host[key]} {key}" for key in (ALIVE, DRAINING, LOST) if host[key] or key == ALIVE]
    return ", ".join(counts)


def dfs_problem(who: str, url: str, problem_ms: int, problem: str) -> str:
    """Say since when workers fail to use the DFS; `who` ends with "cannot"."""
    return f"{who} use the DFS {url} since {in_seconds(problem_ms / 1000)}: {problem}"
