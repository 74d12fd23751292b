"""What --json prints of a worker, a shuffle and an application, the same in all commands. Pure.

Rules: one class for each thing; its fields are the keys, and their comments are the documentation: docs/cli.md is made
of them (tests/docs/records.py). Screens draw from the same records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.worker_states import AWAY

_DISK_KEYS = (
    *("path", "tier", "capacity_bytes", "used_bytes", "free_bytes", "healthy", "problem", "full"),
    *("device", "state", "errors", "flush_us", "fetch_us"),
)
_DRAIN_KEYS = ("since_ms", "epochs", "epoch_shuffles", "writing", "shuffles", "restart", "removal", "waits")
_DRAIN_NUMBERS = ("epochs", "epoch_shuffles", "writing", "shuffles", "left_ms")
_DFS_KEYS = ("url", "state", "problem", "problem_ms", "bytes", "files", "put_us", "read_us")


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker, in `workers`, `top`, `drain` and `undrain`."""

    worker: Annotated[int, "its number"]
    name: Annotated[str, "`worker.name`"]
    host: Annotated[str, "`worker.host`"]
    rack: Annotated[str, "as it says itself"]
    place: Annotated[str, "`/region/rack`, as the masters resolved it"]
    data_address: Annotated[str, "of the data plane"]
    http_address: Annotated[str, "of metrics and `/status`"]
    state: Annotated[str, "`alive`, `draining`, `lost`, `gone`"]
    version: Annotated[str, "of Holdfast"]
    machine_id: Annotated[str, "as it registered"]
    incarnation: Annotated[int, "grows at each start"]
    last_seen_ms: Annotated[int, "since its last heartbeat"]
    memory_bytes: Annotated[int, "that it uses for data"]
    files: Annotated[int, "that it keeps"]
    push_rate: Annotated[int, "bytes a second between its last two heartbeats; 0 of one that is away"]
    fetch_rate: Annotated[int, "the same of what is read"]
    used_bytes: Annotated[int, "sum of its directories; 0 of one that is away"]
    free_bytes: Annotated[int, "sum of its directories; 0 of one that is away"]
    tags: Annotated[list[str], "`worker.tags`"]
    problems: Annotated[list[str], "directories and the DFS that it cannot use, as sentences"]
    directories: Annotated[list[dict[str, Any]], f"of each: {', '.join(f'`{key}`' for key in _DISK_KEYS)}"]
    drain: Annotated[
        dict[str, Any] | None,
        f"{', '.join(f'`{key}`' for key in (*_DRAIN_KEYS, 'left_ms', 'reach'))}; null where it does not drain, and "
        "numbers that are not known yet",
    ]
    dfs: Annotated[dict[str, Any] | None, f"{', '.join(f'`{key}`' for key in _DFS_KEYS)}; null without a DFS tier"]
    counters: Annotated[dict[str, int], "its counters, by name"]


@dataclass(frozen=True, slots=True)
class ShuffleRecord:
    """One generation of a shuffle, in `shuffles` and `top`."""

    instance: Annotated[str, "of its application, 32 hex digits"]
    shuffle: Annotated[int, "its number in the application"]
    generation: Annotated[int, "which try at it this is"]
    kind: Annotated[str, "`map` or `reduce`"]
    application: Annotated[str, "its name"]
    user: Annotated[str, "whose it is"]
    partitions: Annotated[int, ""]
    maps: Annotated[int, "0 where that is not known yet"]
    copies: Annotated[int, "that could be placed"]
    copies_wanted: Annotated[int, "that were asked for"]
    ack_copies: Annotated[int, "of these, which hold a push before it is acknowledged"]
    epochs: Annotated[int, "of REDUCE partitions: all that there ever were"]
    moves: Annotated[int, "of these, above a partition's first"]
    lost: Annotated[int, "epochs that the commit found lost"]
    sealing: Annotated[int, "epochs that a pending commit asked to be sealed"]
    sealed: Annotated[int, "of these, answered for"]
    incomplete: Annotated[int, "copies that lack something that was acknowledged, and count for nothing"]
    under_replicated: Annotated[int, "epochs that have fewer copies than were asked for"]
    awaited: Annotated[int, "of these, for which a worker is awaited"]
    bytes: Annotated[int, "once it is committed"]
    created_ms: Annotated[int, "since 1970"]
    state: Annotated[str, "`open` or `committed`"]
    why: Annotated[str, "what keeps it alive, and what will delete it"]
    application_bytes: Annotated[int, "that its application holds, all copies counted"]
    application_bytes_limit: Annotated[int, "that it may hold; 0: no bound"]
    application_files: Annotated[int, "the same in files"]
    application_files_limit: Annotated[int, "the same in files"]
    user_bytes: Annotated[int, "that its user holds; 0 where users have no quota"]
    user_bytes_limit: Annotated[int, "that the user may hold; 0: no bound"]
    user_files: Annotated[int, "the same in files"]
    user_files_limit: Annotated[int, "the same in files"]


@dataclass(frozen=True, slots=True)
class ApplicationRecord:
    """An application, in `apps` and `forget --dry-run`."""

    instance: Annotated[str, "32 hex digits"]
    name: Annotated[str, "several may have it"]
    user: Annotated[str, "whose it is"]
    spark_id: Annotated[str, "its id in Spark; empty without Spark"]
    created_ms: Annotated[int, "since 1970"]
    shuffles: Annotated[int, "that it has"]
    bytes: Annotated[int, "that living workers hold of it, all copies counted"]
    why: Annotated[str, "what keeps it alive, and what will delete it"]


def _same(record: type[Any], message: Any, *others: str) -> dict[str, Any]:
    """The fields that the masters' message has by the same name, without `others`."""
    return {key: getattr(message, key) for key in record.__dataclass_fields__ if key not in others}


def worker_record(worker: pb.WorkerInfo) -> dict[str, Any]:
    """The keys of WorkerRecord."""
    living = worker.state not in AWAY
    disks = worker.directories if living else []
    problems = [f"{disk.path}: {disk.problem}" for disk in disks if disk.problem]
    if living and worker.HasField("dfs") and worker.dfs.problem:
        problems.append(f"{worker.dfs.url}: {worker.dfs.problem}")
    own: dict[str, Any] = {
        **{key: getattr(worker, key) if living else 0 for key in ("push_rate", "fetch_rate")},
        **{key: sum(getattr(disk, key) for disk in disks) for key in ("used_bytes", "free_bytes")},
        "tags": list(worker.tags),
        "problems": problems,
        "directories": [{key: getattr(disk, key) for key in _DISK_KEYS} for disk in worker.directories],
        "drain": _drain(worker),
        "dfs": {key: getattr(worker.dfs, key) for key in _DFS_KEYS} if worker.HasField("dfs") else None,
        "counters": dict(worker.counters),
    }
    return asdict(WorkerRecord(**_same(WorkerRecord, worker, *own), **own))


def _drain(worker: pb.WorkerInfo) -> dict[str, Any] | None:
    """How far its drain is; None if it does not drain, or for a number that is not known yet."""
    if not worker.HasField("drain"):
        return None
    found = {key: getattr(worker.drain, key) for key in (*_DRAIN_KEYS, "left_ms", "reach")}
    return found | {key: None for key in _DRAIN_NUMBERS if not worker.drain.HasField(key)}


def shuffle_record(shuffle: pb.ShuffleInfo) -> dict[str, Any]:
    """The keys of ShuffleRecord."""
    own: dict[str, Any] = {
        "instance": shuffle.key.instance.hex(),
        "shuffle": shuffle.key.shuffle,
        "generation": shuffle.key.generation,
        "kind": kind_name(shuffle.kind),
    }
    return asdict(ShuffleRecord(**_same(ShuffleRecord, shuffle, *own), **own))


def kind_name(kind: pb.PartitionKind) -> str:
    """`map` or `reduce`."""
    return pb.PartitionKind.Name(kind).removeprefix("PARTITION_KIND_").lower()


def application_record(application: pb.ApplicationInfo) -> dict[str, Any]:
    """The keys of ApplicationRecord."""
    own: dict[str, Any] = {"instance": application.instance.hex()}
    return asdict(ApplicationRecord(**_same(ApplicationRecord, application, *own), **own))
