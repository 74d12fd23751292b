"""`holdfast placement --simulate FILE`: what a policy would do on a cluster that is only described.

The file is TOML: what is placed, [placement] as in the configuration, and the workers. An entry of workers may be
for `count` of them: in `host` and `place` {n} is its number from 0, {rack} that number modulo `racks`.

    [shuffle]
    partitions = 100000
    copies = 2

    [placement]
    order = "weighted"

    [[cluster.workers]]
    count = 1500
    host = "h{n}"
    racks = 30
    place = "/dc1/r{rack}"
    free = ["4TiB", "8TiB"]      # taken in turn
    fetch = ["5ms"]

One JSON document is written to standard output. Called by the CLI as a process: it needs no cluster.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.common.config import settings
from holdfast.common.config.placement import PlacementSection
from holdfast.common.config.settings import Duration, Size, setting
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.formats.reduce_layouts import ReduceLocations
from holdfast.common.limits import COPIES_MAX, PARTITIONS_MAX
from holdfast.master.core.state.bounds import WORKERS_MAX
from holdfast.master.fleet.fleet import policy_of
from holdfast.master.placement.groups import place, taking
from holdfast.master.placement.members import Member
from holdfast.master.placement.policy import Candidates, DirectoryLoad, Policy, shares
from holdfast.master.placement.topology import check_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Workers that are described together."""

    count: int = setting(1, "So many.")
    host: str = setting("", "Their hosts, with {n} and {rack} filled in. Empty: each a host of its own.")
    place: str = setting("", "Where they are, /region/rack, filled in likewise. Empty: not known.")
    racks: int = setting(1, "{rack} counts up to so many.")
    free: tuple[Size, ...] = setting((Size(1 << 40),), "Free bytes; several are taken in turn.")
    flush: tuple[Duration, ...] = setting((Duration(0),), "Time of a write, likewise.")
    fetch: tuple[Duration, ...] = setting((Duration(0),), "Time of a read, likewise.")
    spared: bool = setting(False, "They flap, or are in quarantine.")

    def __post_init__(self) -> None:
        if not 1 <= self.count <= WORKERS_MAX or self.racks < 1:
            raise ConfigError(f"count is 1 to {WORKERS_MAX}, racks at least 1")
        if not (self.free and self.flush and self.fetch):
            raise ConfigError("free, flush and fetch are not empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSection:
    """What is placed."""

    partitions: int = setting(1_000, "Partitions of the shuffle.")
    copies: int = setting(2, "Copies of each.")
    seed: int = setting(1, "Of what is drawn by lot.")

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= PARTITIONS_MAX or not 1 <= self.copies <= COPIES_MAX:
            raise ConfigError(f"partitions are 1 to {PARTITIONS_MAX}, copies 1 to {COPIES_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """Where it is placed."""

    workers: tuple[Workers, ...] = setting((), "Who is there.")

    def __post_init__(self) -> None:
        if not 1 <= sum(each.count for each in self.workers) <= WORKERS_MAX:
            raise ConfigError(f"describe 1 to {WORKERS_MAX} workers, each kind as [[cluster.workers]]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A shuffle, a policy, and a cluster."""

    cluster: SimulatedCluster
    shuffle: ShuffleSection = field(default_factory=ShuffleSection)
    placement: PlacementSection = field(default_factory=PlacementSection)


def main(arguments: list[str] | None = None) -> int:
    """Read the file, place, print what came out. Exit 2 for a file that says nothing sensible."""
    parser = argparse.ArgumentParser(prog="holdfast placement --simulate")
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        text = options.file.read_text("utf-8")
        document = simulate(settings.parse(Described, text, {}, "", str(options.file)))
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"cannot read {options.file}: {error}\n")
        return 2
    except HoldfastError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    json.dump(document, sys.stdout)
    sys.stdout.write("\n")
    return 0


def simulate(described: Described) -> dict[str, Any]:
    """Return how the partitions come to lie. Raises ConfigError, NotEnoughError."""
    if described.placement.resolver != "static":
        raise ConfigError("a simulation asks no resolver: take it out, and give each of [[cluster.workers]] its place")
    count, copies = described.shuffle.partitions, described.shuffle.copies
    policy = policy_of(described.placement)
    candidates = _candidates(described.cluster.workers, policy)
    draw = random.Random(described.shuffle.seed)
    begun = time.perf_counter()
    found = place(policy, candidates, count, copies, draw)
    seconds = time.perf_counter() - begun
    members = [*candidates.members, *candidates.spared]
    takers = taking(policy, candidates, copies, draw)
    parts = shares(policy, takers, candidates.disks)
    wanted = {one.worker: part for one, part in zip(takers, parts, strict=True)}
    held = Counter(one for group in found.groups for one in group)
    places = {one.worker: one.place for one in members}
    racks = Counter(places[one] for group in found.groups for one in group)
    total = sum(held.values())
    counts = [held[one.worker] for one in members]
    same = sum(len({places[one] for one in group}) == 1 for group in found.groups)
    return {
        "partitions": count,
        "copies": found.copies,
        "policy": policy.constraint,
        "order": policy.order,
        "workers": len(members),
        "racks": len(set(places.values())),
        "seconds": round(seconds, 4),
        "encoded_bytes": len(ReduceLocations.encode_first(found.groups)),
        "not_adhering": found.adhering.not_strict,
        "soft": found.adhering.soft,
        "on_one_rack": same if found.copies > 1 else 0,
        "least": min(counts),
        "mean": round(statistics.fmean(counts), 2),
        "most": max(counts),
        "fullest_to_mean": round(max(counts) / statistics.fmean(counts), 4),
        "farthest_from_share": round(max(abs(held[one] / total - share) / share for one, share in wanted.items()), 4),
        "by_rack": dict(sorted(racks.items())),
        "by_worker": [
            {
                "host": one.host,
                "place": one.place,
                "partitions": held[one.worker],
                "share": round(wanted.get(one.worker, 0.0), 6),
            }
            for one in members
        ],
    }


def _candidates(entries: Sequence[Workers], policy: Policy) -> Candidates:
    first: list[Member] = []
    second: list[Member] = []
    disks: dict[int, list[DirectoryLoad]] = {}
    for entry in entries:
        for number in range(entry.count):
            names = {"n": number, "rack": number % entry.racks}
            worker = len(disks) + 1
            host = _filled(entry.host or f"host{worker}", names)
            place = check_place(_filled(entry.place or policy.racks.default, names))
            if place.count("/") != policy.racks.default.count("/"):
                raise ConfigError(f"{place} has another depth than {policy.racks.default}")
            (second if entry.spared else first).append(Member(worker, host, place))
            flush, fetch = entry.flush[number % len(entry.flush)], entry.fetch[number % len(entry.fetch)]
            disks[worker] = [DirectoryLoad(entry.free[number % len(entry.free)], flush.ns // 1_000, fetch.ns // 1_000)]
    return Candidates(first, second, disks)


def _filled(pattern: str, names: dict[str, int]) -> str:
    try:
        return pattern.format(**names)
    except (KeyError, IndexError, ValueError):
        raise ConfigError(f"{pattern!r} may hold {{n}} and {{rack}}, and nothing else in braces") from None


if __name__ == "__main__":
    sys.exit(main())
