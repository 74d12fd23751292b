"""Through what a store reaches the world: its client, calls that may hang, the file that is stored, time and chance.

The real door is thin; the simulator has another one (tests/sim/env/dfs.py). A client is what pyarrow calls FileSystem;
which methods of it are used is in store.py and uploads.py. What a store in a local folder does beside, with syncs and
links, goes past this door: it is the machine's own file system. Made by whoever opens a store.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.common.dfs.calls import Calls

if TYPE_CHECKING:
    from holdfast.common.config.config import DfsSection
    from holdfast.common.dfs.urls import DfsUrl

T = TypeVar("T")


class Caller(Protocol):
    """Calls into a client, with deadlines; see calls.py."""

    @property
    def running(self) -> int:
        """Calls that the client has not come back from."""

    def run(self, act: Callable[[], T], seconds: float) -> T:
        """Return act(), or raise what it raises; StoreHangsError after `seconds`, ClosedError when this is closed."""

    def close(self) -> None:
        """End callers that wait."""


class Waitable(Protocol):
    """What has come, or has not yet."""

    def set(self) -> None:
        """It has."""

    def is_set(self) -> bool:
        """Whether it has."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, so many seconds at most; whether it has."""


class DfsDoor(Protocol):
    """The door."""

    def open(self, section: DfsSection) -> tuple[DfsUrl, Any]:
        """The parsed URL, and a client. Raises ConfigError; asks the store nothing yet."""

    def caller(self, store: str) -> Caller:
        """What carries calls out; `store` is how logs call it."""

    def event(self) -> Waitable:
        """One that has not come."""

    def now(self) -> float:
        """Seconds of a clock that only goes on."""

    def token(self, size: int) -> bytes:
        """Bytes that nobody else has."""

    def size(self, path: Path) -> int:
        """The length of a local file. Raises OSError."""

    def parts(self, path: Path, part_bytes: int) -> Iterator[bytes]:
        """A local file's bytes in order, one part in memory at a time. Raises OSError."""

    def ranges(self, path: Path, wanted: list[tuple[int, int]]) -> Iterator[bytes]:
        """Some ranges of it, each (offset, length). Raises OSError."""

    def copy(self, client: Any, path: Path, target: str, part_bytes: int) -> None:
        """Have a client of S3 upload a local file. Raises what it raises."""


class SystemDfsDoor:
    """The real one."""

    def open(self, section: DfsSection) -> tuple[DfsUrl, Any]:
        from holdfast.common.dfs.opening import open_filesystem  # reads the configuration's module, which is large

        return open_filesystem(section)

    def caller(self, store: str) -> Caller:
        return Calls(store)

    def event(self) -> threading.Event:
        return threading.Event()

    def now(self) -> float:
        return time.monotonic()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def parts(self, path: Path, part_bytes: int) -> Iterator[bytes]:
        with open(path, "rb", buffering=0) as file:
            while part := file.read(part_bytes):
                yield part

    def ranges(self, path: Path, wanted: list[tuple[int, int]]) -> Iterator[bytes]:
        with open(path, "rb", buffering=0) as file:
            for offset, length in wanted:
                yield os.pread(file.fileno(), length, offset)

    def copy(self, client: Any, path: Path, target: str, part_bytes: int) -> None:
        from pyarrow import fs

        fs.copy_files(
            str(path),
            target,
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=client,
            chunk_size=part_bytes,
            use_threads=False,
        )
