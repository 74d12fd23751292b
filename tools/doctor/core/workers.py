"""Judges the workers of this host together: what they need in sum, what two of them share, and what none uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from holdfast.common.sizes import counted, in_bytes
from holdfast.tools.doctor.core.facts import Host, WorkerHere
from holdfast.tools.doctor.core.findings import Symptom, advice, problem
from holdfast.tools.doctor.core.host import MEMORY_SHARE

#: A worker uses one core; its disks, the network and what else the host does need some, too. The playbooks reckon so.
CORES_EACH = 4
_REMEDY = (
    "set holdfast_workers_per_host and run playbooks/change_workers.yml (docs/operate/operations.md), or start further "
    "workers with files, ports and directories of their own"
)


def check_workers_here(host: Host, workers: Sequence[WorkerHere]) -> Iterator[Symptom]:
    """`workers` are those of the files given, and those that the masters list for this host."""
    if not workers:
        return
    yield from _memory(host, [each for each in workers if each.memory_bytes])
    yield from _shared(workers)
    yield from _left_over(host, workers)


def _memory(host: Host, workers: Sequence[WorkerHere]) -> Iterator[Symptom]:
    """Of several; of a single one its own file was judged."""
    wanted = sum(each.memory_bytes for each in workers)
    if len(workers) < 2 or wanted <= host.memory_bytes * MEMORY_SHARE:
        return
    level = problem if wanted > host.memory_bytes else advice
    what = f"may hold {in_bytes(wanted)} together, and {host.memory_of} {in_bytes(host.memory_bytes)} in all"
    remedy = "lower worker.memory of each or the capacity of MEMORY directories, or have fewer workers"
    yield level("memory", f"worker {', '.join(each.name for each in workers)}", what, remedy)


def _shared(workers: Sequence[WorkerHere]) -> Iterator[Symptom]:
    for first, second in combinations(workers, 2):
        common = first.devices & second.devices
        pairs = ((path, device) for path, device in second.disks if device in common)
        for path, device in pairs:
            other = next(each for each, at in first.disks if at == device)
            what = f"is on the device of {other} of worker {first.name}: two workers wait for one disk"
            remedy = "give each disk to one worker, where there are as many disks as workers"
            yield advice("one-device", f"worker {second.name} {path}", what, remedy)


def _left_over(host: Host, workers: Sequence[WorkerHere]) -> Iterator[Symptom]:
    used = frozenset[int]().union(*(each.devices for each in workers))
    fit = min(host.cores // CORES_EACH, len(used))
    if fit > len(workers):
        what = (
            f"has {counted(host.cores, 'core')} and {counted(len(used), 'disk')} with directories of "
            f"{counted(len(workers), 'worker')}, each of which uses one core: {fit} would use them"
        )
        yield advice("cores-left", "this host", what, _REMEDY)
    for mount in host.mounts:
        if mount.device not in used:
            what = f"has {in_bytes(mount.size_bytes)}, and no worker of this host has a directory there"
            yield advice("disk-left", mount.path, what, "give a worker a directory there, if it is meant for shuffles")
