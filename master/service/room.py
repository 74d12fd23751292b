"""Which workers take data, as their heartbeats say, and what stands against it where none does.

Rules: pure; a directory is what the last heartbeat of its worker said of it. Called by registry.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.common.messages import Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import in_bytes
from holdfast.master.core.records import KIND_REDUCE

#: Workers and directories of each that are named; there may be thousands.
WORKERS_NAMED_MAX = 4
DIRECTORIES_NAMED_MAX = 4
#: Of one directory; paths may be long.
_CHARS_MAX = 300


def takes(directory: pb.Directory, kind: int, ack: int) -> bool:
    """Whether new data of such a shuffle can go there. What is synced cannot be in memory."""
    if not directory.healthy or directory.free_bytes == 0 or (ack == Ack.SYNCED and directory.tier == "MEMORY"):
        return False
    return kind != KIND_REDUCE or not directory.full


def no_room(workers: Iterable[tuple[str, Sequence[pb.Directory]]]) -> str:
    """Say which limits were met on workers (name, directories) that all have no room; some of them are named."""
    found = list(workers)
    told = [_of_worker(name, directories) for name, directories in found[:WORKERS_NAMED_MAX]]
    if len(found) > len(told):
        told.append(f"and {len(found) - len(told)} more workers")
    return "no worker has room: " + "; ".join(told)


def _of_worker(name: str, directories: Sequence[pb.Directory]) -> str:
    told = [_of_directory(each) for each in directories[:DIRECTORIES_NAMED_MAX]]
    if len(directories) > len(told):
        told.append(f"and {len(directories) - len(told)} more directories")
    return f"worker {name}: {', '.join(told)}"


def _of_directory(directory: pb.Directory) -> str:
    why = directory.problem or directory.full
    if not why:
        why = f"{in_bytes(directory.used_bytes)} used of {in_bytes(directory.capacity_bytes)}"
        if directory.free_bytes:
            why += ", and memory keeps nothing that is to be synced"
    return f"{directory.path} ({directory.tier}) {why}"[:_CHARS_MAX]
