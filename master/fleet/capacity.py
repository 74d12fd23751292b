"""Which workers take data, by their heartbeats, and the reason if none does.

Rules: pure; a directory is what the last heartbeat of its worker said of it. Called by fleet.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.common.formats.messages import Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.master.core.state.records import KIND_REDUCE

#: Workers and directories of each that are named; there may be thousands.
WORKERS_NAMED_MAX = 4
DIRECTORIES_NAMED_MAX = 4
#: Of one directory; paths may be long.
_CHARS_MAX = 300
#: Of what keeps workers from using the DFS; there is one in a text.
_DFS_CHARS_MAX = 500


def takes(directory: pb.Directory, kind: int, ack: int) -> bool:
    """Whether new data of such a shuffle can go there. What is synced cannot be in memory."""
    if not directory.healthy or directory.free_bytes == 0 or (ack == Ack.SYNCED and directory.tier == "MEMORY"):
        return False
    return kind != KIND_REDUCE or not directory.full


def excluded_because(directories: Sequence[pb.Directory]) -> str:
    """Say why none of a worker's directories takes data."""
    return ", ".join(_of_directory(each) for each in directories[:DIRECTORIES_NAMED_MAX]) or "has no directory"


def no_room(workers: Iterable[tuple[str, pb.HeartbeatRequest]]) -> str:
    """Say which limits were met on workers that all have no room, by name and last heartbeat; some of them are named.
    If files cannot be moved to the DFS, that is the cause: it is added."""
    found = list(workers)
    named = [_of_worker(name, each.directories) for name, each in found[:WORKERS_NAMED_MAX]]
    if len(found) > len(named):
        named.append(f"and {counted(len(found) - len(named), 'more worker')}")
    return "no worker has room: " + "; ".join(named) + _of_dfs(found)


def _of_dfs(workers: Sequence[tuple[str, pb.HeartbeatRequest]]) -> str:
    """A DFS that cannot be used, as reported by the worker that met that first."""
    failing = [(name, each.dfs) for name, each in workers if each.dfs.problem]
    if not failing:
        return ""
    name, dfs = max(failing, key=lambda each: each[1].problem_ms)
    others = f" and {counted(len(failing) - 1, 'other')}" if len(failing) > 1 else ""
    return (
        f", and worker {name}{others} cannot use the DFS {dfs.url[:_CHARS_MAX]} since {dfs.problem_ms // 1000} s: "
        f"{dfs.problem[:_DFS_CHARS_MAX]}"
    )


def _of_worker(name: str, directories: Sequence[pb.Directory]) -> str:
    named = [_of_directory(each) for each in directories[:DIRECTORIES_NAMED_MAX]]
    if len(directories) > len(named):
        more = len(directories) - len(named)
        named.append(f"and {more} more director{'y' if more == 1 else 'ies'}")
    return f"worker {name}: {', '.join(named)}"


def _of_directory(directory: pb.Directory) -> str:
    reason = directory.problem or directory.full
    if not reason:
        reason = f"{in_bytes(directory.used_bytes)} used of {in_bytes(directory.capacity_bytes)}"
        if directory.free_bytes:
            reason += ", and memory keeps nothing that is to be synced"
    return f"{directory.path} ({directory.tier}) {reason}"[:_CHARS_MAX]
