"""Filters of the role holdfast_worker: how many workers a host has, which directories each of them has, and which of
them have to be drained.

Rules: pure, and of Python alone, since Ansible loads it on the control host. A directory stays with the worker that it
was given to, for that worker's identity is in it; it moves only where the number of workers changes or the inventory
names another worker, and is then among `moved`: it has to be empty before the other one starts. A worker that keeps
none of its directories is a new one, so it gets a name that none had before. Called by defaults/main.yml, and by
tasks/drain.yml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: A worker uses one core; its disks, the network and what else the host does need some, too. The doctor reckons so.
CORES_EACH = 4
_UNITS = {"": 1, "B": 1, **{unit + end: 1024**power for power, unit in enumerate("KMGTP", 1) for end in ("", "iB")}}
_SIZE = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*\Z")

Directory = dict[str, Any]
Plan = dict[str, Any]


def workers_plan(
    directories: Sequence[Mapping[str, Any]],
    name: str,
    before: Mapping[str, Any],
    asked: int,
    cores: int,
    share: bool = False,
) -> Plan:
    """Say what workers a host has: `workers`, each with `number` from 1, `name` and `directories`; `moved`, paths of
    directories that another worker had; `changed`, whether there are more or fewer of them than `before`.

    `before` is such a plan, as it was carried out, or empty; `asked` is the number of workers that the inventory wants,
    0 for the number of before, or as many as `cores` and directories make use of; `share` lets workers share disks
    where there are more of them. Raises ValueError with what is wrong.
    """
    known = before.get("workers", [])
    number = asked or len(known) or _number(directories, cores)
    given = _split(directories, number) if share else [dict(each) for each in directories]
    owners = {str(path): owner for owner, each in enumerate(known, 1) for path in _paths(each["directories"])}
    parts = _divide(given, number, owners, rebalance=bool(known) and number != len(known))
    if missing := [str(owner) for owner, part in enumerate(parts, 1) if not any(map(_is_disk, part))]:
        raise ValueError(
            f"worker {', '.join(missing)} of {number} would have no directory on a disk: give the host as many "
            "directories as workers, have fewer workers, or set holdfast_worker_share_directories"
        )
    now = {str(path): owner for owner, part in enumerate(parts, 1) for path in _paths(part)}
    names, made = _names(name, parts, before, owners)
    return {
        "name": name,
        "made": made,
        "workers": [
            {"number": owner, "name": names[owner - 1], "directories": part} for owner, part in enumerate(parts, 1)
        ],
        "moved": sorted(path for path, owner in now.items() if owners.get(path, owner) != owner),
        "changed": bool(known) and number != len(known),
    }


def size_share(size: str, parts: int) -> str:
    """Divide a size such as 4G or 1GiB; of one part it is the same text."""
    if parts == 1 or not size:
        return size
    found = _SIZE.match(str(size))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{size} is no size that can be divided among workers: write it as 4G or 4GiB")
    return f"{int(found[1]) * _UNITS[found[2]] // parts}{'B' if found[2].endswith('B') else ''}"


def workers_to_drain(names: Sequence[str], listed: Sequence[Mapping[str, Any]], purpose: str) -> list[str]:
    """Say which of these workers have to be drained, by their numbers, since a name may be that of their host, too.

    `listed` is what the masters know: a worker that they never saw has nothing that is needed, and nobody needs one
    that is gone. One that is lost may have what is needed. For a restart there is nothing to wait for; for a removal it
    is drained, too, which the masters refuse and say why.
    """
    meant, done = set(names), ("gone",) if purpose == "removal" else ("gone", "lost")
    return [str(each["worker"]) for each in listed if each["name"] in meant and each["state"] not in done]


def _number(directories: Sequence[Mapping[str, Any]], cores: int) -> int:
    return max(1, min(cores // CORES_EACH, sum(map(_is_disk, directories))))


def _is_disk(directory: Mapping[str, Any]) -> bool:
    return directory.get("tier") != "MEMORY"


def _paths(directories: Sequence[Any]) -> list[str]:
    return [str(each["path"]) for each in directories]


def _split(directories: Sequence[Mapping[str, Any]], number: int) -> list[Directory]:
    """Where there are more workers than disks: a directory for each worker below those of the inventory, in turn."""
    disks = [each for each in directories if _is_disk(each)]
    if not disks or len(disks) >= number:
        return [dict(each) for each in directories]
    made: list[Directory] = [dict(each) for each in directories if not _is_disk(each)]
    for owner in range(1, number + 1):
        position = (owner - 1) % len(disks)
        shared = len(range(position, number, len(disks)))
        own = {**disks[position], "worker": owner}
        if shared > 1:
            own["path"] = f"{own['path']}/worker-{owner}"
            if own.get("capacity"):
                own["capacity"] = size_share(own["capacity"], shared)
        made.append(own)
    return made


def _divide(
    directories: Sequence[Mapping[str, Any]], number: int, owners: Mapping[str, int], rebalance: bool
) -> list[list[Directory]]:
    """Give each directory a worker: the one that it names, or that has it and has not too many, or the one that has
    the fewest. Disks and memory are divided each for itself."""
    found: dict[int, int] = {}
    for kind in (True, False):
        some = {at: each for at, each in enumerate(directories) if _is_disk(each) is kind}
        counts = [0] * (number + 1)
        left = []
        for at, each in some.items():
            owner = int(each.get("worker", 0))
            if not 0 <= owner <= number:
                raise ValueError(f"{each['path']} is for worker {owner}, and the host has {number}")
            if owner:
                found[at] = owner
                counts[owner] += 1
        for at, each in some.items():
            owner = owners.get(str(each["path"]), 0)
            most = len(some) // number + (owner <= len(some) % number) if rebalance else len(some)
            if at in found:
                continue
            if 1 <= owner <= number and counts[owner] < most:
                found[at] = owner
                counts[owner] += 1
            else:
                left.append(at)
        for at in left:
            fewest = min(range(1, number + 1), key=lambda owner: (counts[owner], owner))
            found[at] = fewest
            counts[fewest] += 1
    parts: list[list[Directory]] = [[] for _ in range(number)]
    for at, each in enumerate(directories):
        parts[found[at] - 1].append({key: value for key, value in each.items() if key != "worker"})
    return parts


def _names(
    name: str, parts: Sequence[Sequence[Directory]], before: Mapping[str, Any], owners: Mapping[str, int]
) -> tuple[list[str], int]:
    """Names of the workers, and how many names were ever made: w1, w1-2, w1-3."""
    same = before.get("name") == name
    made = int(before.get("made", 0)) if same else 0
    names = []
    for owner, part in enumerate(parts, 1):
        kept = any(owners.get(path) == owner for path in _paths(part))
        if same and kept:
            names.append(str(before["workers"][owner - 1]["name"]))
            continue
        made += 1
        names.append(name if made == 1 else f"{name}-{made}")
    return names, made


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by their names."""
        return {
            "holdfast_workers_plan": workers_plan,
            "holdfast_size_share": size_share,
            "holdfast_workers_to_drain": workers_to_drain,
        }
