"""How a local file gets into each kind of store, so that a whole file, and nothing else, ever has its name.

    local   written beside it as .tmp in parts, synced, renamed, folder synced
    HDFS    written beside it as .tmp in parts, synced on the data nodes, renamed
    S3      one request if it is small, else an upload in parts, which the store makes visible when it is completed

S3 is the one that can fail half: pyarrow has no way to abort an upload in parts, so a file whose upload *failed* may
appear cut short (one whose process was killed does not). That name was drawn for this attempt alone (names.py) and
its name is never returned; store.py removes it. The copy runs inside pyarrow, without the interpreter's lock, because
what pyarrow drops there it completes by calls to the store.

Each function blocks, in a thread of calls.py, and raises whatever the client raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.common.dfs.door import DfsDoor
from holdfast.common.dfs.names import TEMPORARY_SUFFIX
from holdfast.common.dfs.urls import StoreKind
from holdfast.common.system.files import make_folders, sync_directory
from holdfast.common.system.links import make_anew, refuse_foreign


def upload(
    door: DfsDoor, kind: StoreKind, filesystem: Any, source: Path, target: str, root: str, part_bytes: int
) -> None:
    """Store `source` as `target`. Of a local store the folder `root` has to be there: it is never made again here."""
    if kind is StoreKind.S3:
        door.copy(filesystem, source, target, part_bytes)
    elif kind is StoreKind.HDFS:
        _to_hdfs(filesystem, door.parts(source, part_bytes), target)
    else:
        _to_folder(door.parts(source, part_bytes), Path(target), Path(root))


def _to_folder(parts: Iterator[bytes], target: Path, root: Path) -> None:
    refuse_foreign(str(target), str(root))
    make_folders(target.parent, root)
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    with os.fdopen(make_anew(temporary), "wb", buffering=0) as file:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    os.rename(temporary, target)
    sync_directory(target.parent)


def _to_hdfs(filesystem: Any, parts: Iterator[bytes], target: str) -> None:
    temporary = target + TEMPORARY_SUFFIX
    stream = filesystem.open_output_stream(temporary)
    # Not closed if this fails: closing would say that it is whole. store.py removes it.
    for part in parts:
        stream.write(part)
    stream.close()
    filesystem.move(temporary, target)
