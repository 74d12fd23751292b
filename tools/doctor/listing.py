"""Lists a storage directory by names and sizes alone: for one that a worker uses, and for a support bundle.

Rules: of its files only the two small ones that say whose it is are opened, never data or index.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.common.errors import ConfigError, CorruptError

#: Files that are looked at; with more, the listing says that it is cut.
FILES_MAX = 500_000
#: Shuffles and foreign names that are listed.
_SHUFFLES_MAX = 1_000
_UNKNOWN_MAX = 20


def list_names(directory: Path, files_max: int = FILES_MAX) -> dict[str, Any]:
    """Whose the directory is, and how many files and bytes it has of each kind and shuffle. Raises ConfigError."""
    from holdfast.worker.storage import layout, names

    kinds, sizes = Counter[str](), Counter[str]()
    shuffles: dict[str, list[int]] = {}
    unknown: list[str] = []
    seen = 0
    for below, size in _files(directory):
        seen += 1
        if seen > files_max:
            break
        top = below.partition("/")[0]
        kind = top if top in (names.INDEX, names.LOG, names.QUARANTINE) else "unknown"
        if below in (names.IDENTITY, names.STARTS, names.DFS, names.LOCK, names.PROBE):
            kind = "own"
        elif top == names.DATA:
            try:
                kind = layout.parse_path(below).kind.name.lower()
            except CorruptError:
                kind = "moving" if below.endswith(names.MOVING_SUFFIX) else kind
        if kind == "unknown" and len(unknown) < _UNKNOWN_MAX:
            unknown.append(below)
        folder = below.split("/")
        if len(folder) == 4 and top == names.DATA:
            of_shuffle = shuffles.setdefault(f"{folder[1]}/{folder[2]}", [0, 0])
            of_shuffle[0] += 1
            of_shuffle[1] += size
        kinds[kind] += 1
        sizes[kind] += size
    disk = os.statvfs(directory)
    return {
        "path": str(directory),
        **_whose(directory),
        "disk_bytes": disk.f_blocks * disk.f_frsize,
        "free_bytes": disk.f_bavail * disk.f_frsize,
        "free_inodes": disk.f_favail,
        "cut": seen > files_max,
        "kinds": [{"kind": each, "files": kinds[each], "bytes": sizes[each]} for each in sorted(kinds)],
        "shuffle_count": len(shuffles),
        "shuffles": [
            {"folder": folder, "files": files, "bytes": size}
            for folder, (files, size) in sorted(shuffles.items())[:_SHUFFLES_MAX]
        ],
        "unknown": unknown,
    }


def _files(directory: Path) -> Iterator[tuple[str, int]]:
    """Yield (path below the directory, bytes) of each file, in no order. What goes meanwhile is left out."""
    for folder, _, files in os.walk(directory):
        for name in files:
            path = os.path.join(folder, name)
            try:
                yield os.path.relpath(path, directory), os.lstat(path).st_size
            except FileNotFoundError:
                continue


def _whose(directory: Path) -> dict[str, Any]:
    from holdfast.worker.storage import names
    from holdfast.worker.storage.identity import Identity, Starts

    found: dict[str, Any] = {"cluster_id": "", "worker_name": "", "incarnation": 0, "problems": []}
    try:
        identity = Identity.decode((directory / names.IDENTITY).read_bytes())
        found |= {"cluster_id": identity.cluster_id, "worker_name": identity.worker_name}
        found["incarnation"] = Starts.decode((directory / names.STARTS).read_bytes()).incarnation
    except (ConfigError, CorruptError, OSError) as error:
        found["problems"].append(str(error))
    return found
