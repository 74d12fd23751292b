"""What --json prints of a worker, a shuffle and an application, the same in all commands. Pure.

Rules: one class for each thing; its fields are the keys, and their comments are the documentation, of which
docs/operate/cli.md is made (tests/docs/records.py). Screens draw from the same records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import skew
from holdfast.common.worker_states import AWAY

_DISK_KEYS = (
    *("path", "tier", "capacity_bytes", "used_bytes", "free_bytes", "healthy", "problem", "full"),
    *("device", "state", "errors", "flush_us", "fetch_us"),
)
_DRAIN_KEYS = ("since_ms", "epochs", "epoch_shuffles", "writing", "shuffles", "restart", "removal", "waits")
_DRAIN_NUMBERS = ("epochs", "epoch_shuffles", "writing", "shuffles", "left_ms")
_DFS_KEYS = ("url", "state", "problem", "problem_ms", "bytes", "files", "put_us", "read_us")

_SIZE_KEYS = ("count", "total_bytes", "median_bytes", "p99_bytes", "largest_bytes", "largest")
_BUCKET_KEYS = ("from_bytes", "below_bytes", "count")
_COPY_KEYS = ("placed", "readable", "empty", "incomplete", "unavailable", "restoring", "away", "lost")
_EPOCH_KEYS = ("partitions_moved", "epochs_most", "epochs_most_partition", "partitions_lost")
_SHARE_KEYS = ("worker", "name", "state", "copies", "bytes")
_READER_KEYS = ("host", "asked", "last_ms")


def _keys(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker, in `workers`, `top`, `drain`, `undrain` and `remove`."""

    worker: Annotated[int, ""]
    name: Annotated[str, ""]
    host: Annotated[str, ""]
    rack: Annotated[str, "as `worker.rack`"]
    place: Annotated[str, "resolved: `/region/rack`"]
    data_address: Annotated[str, ""]
    http_address: Annotated[str, ""]
    state: Annotated[str, "`alive`, `draining`, `lost`, `gone`"]
    version: Annotated[str, ""]
    machine_id: Annotated[str, ""]
    incarnation: Annotated[int, "grows at each start"]
    last_seen_ms: Annotated[int, "since its last heartbeat"]
    memory_bytes: Annotated[int, ""]
    files: Annotated[int, ""]
    push_rate: Annotated[int, "bytes a second; 0 if away"]
    fetch_rate: Annotated[int, "bytes a second; 0 if away"]
    used_bytes: Annotated[int, "sum of directories; 0 if away"]
    free_bytes: Annotated[int, "sum of directories; 0 if away"]
    tags: Annotated[list[str], ""]
    problems: Annotated[list[str], "unusable directories or DFS"]
    directories: Annotated[list[dict[str, Any]], f"each: {_keys(_DISK_KEYS)}"]
    drain: Annotated[
        dict[str, Any] | None,
        f"{_keys((*_DRAIN_KEYS, 'left_ms', 'reach'))}; null if not draining",
    ]
    dfs: Annotated[dict[str, Any] | None, f"{_keys(_DFS_KEYS)}; null without a DFS tier"]
    counters: Annotated[dict[str, int], ""]


@dataclass(frozen=True, slots=True)
class ShuffleRecord:
    """One generation of a shuffle, in `shuffles` and `top`."""

    instance: Annotated[str, ""]
    shuffle: Annotated[int, ""]
    generation: Annotated[int, ""]
    kind: Annotated[str, "`map` or `reduce`"]
    application: Annotated[str, ""]
    user: Annotated[str, ""]
    partitions: Annotated[int, ""]
    maps: Annotated[int, "0 if not known yet"]
    copies: Annotated[int, "placed"]
    copies_wanted: Annotated[int, "requested"]
    ack_copies: Annotated[int, ""]
    epochs: Annotated[int, "REDUCE: all ever opened"]
    moves: Annotated[int, "epochs beyond a partition's first"]
    lost: Annotated[int, "epochs lost at the commit"]
    sealing: Annotated[int, "epochs that a pending commit seals"]
    sealed: Annotated[int, "of these, done"]
    incomplete: Annotated[int, "unused copies that lack acknowledged data"]
    under_replicated: Annotated[int, "epochs with too few copies"]
    awaited: Annotated[int, "of these, waiting for a worker"]
    bytes: Annotated[int, "after the commit"]
    created_ms: Annotated[int, ""]
    state: Annotated[str, "`open` or `committed`"]
    why: Annotated[str, "what keeps it and what will delete it"]
    application_bytes: Annotated[int, "all copies"]
    application_bytes_limit: Annotated[int, "0: none"]
    application_files: Annotated[int, ""]
    application_files_limit: Annotated[int, ""]
    user_bytes: Annotated[int, "0 without user quotas"]
    user_bytes_limit: Annotated[int, "0: none"]
    user_files: Annotated[int, ""]
    user_files_limit: Annotated[int, ""]


@dataclass(frozen=True, slots=True)
class ShuffleDescriptionRecord:
    """One generation of a shuffle in sums, in `shuffles show`."""

    shuffle: Annotated[dict[str, Any], "the keys of Shuffle"]
    committed_ms: Annotated[int | None, "null while open"]
    now_ms: Annotated[int, ""]
    sizes: Annotated[
        dict[str, Any] | None,
        f"null while open; `of` (`partitions`, or `maps` if MAP), {_keys(_SIZE_KEYS)} (the number of the largest),"
        f" `skew` (largest to median; null if that is 0), `histogram` (each: {_keys(_BUCKET_KEYS)})",
    ]
    copies: Annotated[dict[str, int], f"{_keys(_COPY_KEYS)}; only `placed` and `incomplete` while open"]
    epochs: Annotated[dict[str, Any], f"{_keys(_EPOCH_KEYS)}, `lost` (the first ten of these partitions)"]
    hosts: Annotated[
        list[dict[str, Any]],
        f"most bytes first, at most 1,000; each: `host`, `copies`, `bytes`, `workers` (each: {_keys(_SHARE_KEYS)})",
    ]
    hosts_total: Annotated[int, ""]
    waits_for: Annotated[list[str], "workers of a pending commit, at most ten"]
    readers: Annotated[
        list[dict[str, Any]], f"hosts that asked this leader for the data, at most 1,000; each: {_keys(_READER_KEYS)}"
    ]


@dataclass(frozen=True, slots=True)
class ApplicationRecord:
    """An application, in `apps` and `forget --dry-run`."""

    instance: Annotated[str, "32 hex digits"]
    name: Annotated[str, "not unique"]
    user: Annotated[str, ""]
    spark_id: Annotated[str, "empty without Spark"]
    ui_url: Annotated[str, "of its own pages; empty if it has none"]
    created_ms: Annotated[int, ""]
    shuffles: Annotated[int, ""]
    bytes: Annotated[int, "on live workers, all copies"]
    why: Annotated[str, "what keeps it and what will delete it"]


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


def shuffle_description(reply: pb.DescribeShuffleReply) -> dict[str, Any]:
    """The keys of ShuffleDescriptionRecord."""
    hosts = [
        {**_picked(each, ("host", "copies", "bytes")), "workers": [_picked(one, _SHARE_KEYS) for one in each.workers]}
        for each in reply.hosts
    ]
    record = ShuffleDescriptionRecord(
        shuffle=shuffle_record(reply.shuffle),
        committed_ms=reply.committed_ms or None,
        now_ms=reply.now_ms,
        sizes=_sizes(reply) if reply.HasField("sizes") else None,
        copies=_picked(reply.copies, _COPY_KEYS),
        epochs={**_picked(reply, _EPOCH_KEYS), "lost": list(reply.lost)},
        hosts=hosts,
        hosts_total=reply.hosts_total,
        waits_for=list(reply.waits_for),
        readers=[_picked(each, _READER_KEYS) for each in reply.readers],
    )
    return asdict(record)


def _sizes(reply: pb.DescribeShuffleReply) -> dict[str, Any]:
    sizes = reply.sizes
    return {
        "of": "maps" if reply.shuffle.kind == pb.PARTITION_KIND_MAP else "partitions",
        **_picked(sizes, _SIZE_KEYS),
        "skew": skew(sizes.largest_bytes, sizes.median_bytes),
        "histogram": [_picked(each, _BUCKET_KEYS) for each in sizes.histogram],
    }


def _picked(message: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def kind_name(kind: pb.PartitionKind) -> str:
    """`map` or `reduce`."""
    return pb.PartitionKind.Name(kind).removeprefix("PARTITION_KIND_").lower()


def application_record(application: pb.ApplicationInfo) -> dict[str, Any]:
    """The keys of ApplicationRecord."""
    own: dict[str, Any] = {"instance": application.instance.hex()}
    return asdict(ApplicationRecord(**_same(ApplicationRecord, application, *own), **own))
