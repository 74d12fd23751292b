"""What the parts of one storage directory share: where it is, and what all of them write through. Made by
directory.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.folders import Folders
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.identity import Starts
from holdfast.worker.storage.index.index import Index


@dataclass(frozen=True, slots=True)
class DirectoryParts:
    """Of one directory, for as long as it is open."""

    root: Path
    env: Env
    index: Index
    folders: Folders
    threads: DirectoryThreads
    starts: Starts
    #: what writers may still add before the next look
    room: DirectoryRoom
    #: how long writes take
    flushes: WindowMean
    #: told of every write, sync or commit that failed
    broke: Callable[[Exception], None]
