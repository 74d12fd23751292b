"""A store of sealed files that workers and masters share: local folder, S3 or HDFS behind one class.

    store = DfsStore(config.dfs, config.cluster.id)
    store.claim()
    stored = store.put(names.file_name(cluster, key, uid, "p-7-0.part"), path)     # stored.name is put into the index
    store.read(stored.name, offset, length)

Rules
* `put` returns once the store has the file durably under `stored.name` and what was read back of it is right. That name
  is new with every attempt, so no abandoned call can touch it later; it is never used again.
* `read` returns exactly the bytes asked for, or raises. Checksums are those in the file: its batches and its footer.
* FileNotFoundError means that the store was asked and does not have it. A store that is not there, not ours, or not
  mounted is never taken for an empty one: where nothing is found, the cluster's marker has to be.
* Everything else is a DfsError that names store and request. What may pass is tried again within `[dfs] retry_window`;
  every call ends within a bound, also if the store hangs.

All methods block and may be called from any thread. Used by the worker's tiers and the masters' cleaning.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.common.config.config import DfsSection
from holdfast.common.dfs import names
from holdfast.common.dfs.calls import ClosedError, StoreHangsError
from holdfast.common.dfs.door import DfsDoor, SystemDfsDoor
from holdfast.common.dfs.faults import Fault, classify, error_of
from holdfast.common.dfs.folder import remove_empty
from holdfast.common.dfs.handles import Handles
from holdfast.common.dfs.retry import Retries
from holdfast.common.dfs.uploads import upload
from holdfast.common.dfs.urls import StoreKind
from holdfast.common.errors import CorruptError, DfsError
from holdfast.common.system.files import make_folders, sync_directory

T = TypeVar("T")

Check = Literal["ends", "whole"]
#: Read back of each end by the check "ends": a footer's tail and the head of the file are in it.
END_BYTES = 64 * 1024
#: The least that an upload is given time for.
_UPLOAD_BYTES_A_SECOND = 1 << 20
#: What the libraries raise when a store does not do what it is asked, or answers what they cannot read.
_FAILURES = (OSError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that `put` stored."""

    name: str
    size_bytes: int


@dataclass(slots=True)
class Counts:
    """What a store did since it was opened; read by metrics, so a lost increment between threads does not matter."""

    put_bytes: int = 0
    read_bytes: int = 0
    retries: int = 0
    failures: int = 0


class DfsStore:
    """One store, as one cluster uses it."""

    def __init__(
        self,
        section: DfsSection,
        cluster: str,
        *,
        draw: Callable[[], float] = random.random,
        pause: Callable[[float], None] | None = None,
        door: DfsDoor | None = None,
    ) -> None:
        """`draw` returns 0 to 1; `pause` waits that many seconds. Raises ConfigError; asks the store nothing yet."""
        self._section = section
        self._door = door = door or SystemDfsDoor()
        self._url, self._filesystem = door.open(section)
        self._cluster = names.cluster_folder(cluster)
        self._calls = door.caller(str(self._url))
        self._handles = Handles()
        self._draw = draw
        #: which store this has to be: its id, "" for one whose marker has none; None takes the first that is seen
        self.ident: str | None = None
        self._new_ident = door.token(names.STORE_ID_BYTES).hex()
        self._markers = itertools.count()
        self._closed = door.event()
        self._pause = pause or self._sleep
        #: how errors and logs call it; there are no secrets in a URL
        self.shown = str(self._url)
        self.counts = Counts()

    def close(self) -> None:
        """End everything that waits, with DfsError; later calls raise it too."""
        self._closed.set()
        self._calls.close()
        self._handles.close()

    @property
    def hanging(self) -> bool:
        """Calls are pending. After `close` they have no waiter, but some clients do when the process ends in order:
        pyarrow lets every request to S3 come to its end."""
        return self._calls.running > 0

    # The store itself.

    def claim(self, *, may_create: bool = True) -> None:
        """Check by its marker that this is the cluster's store; write a missing marker, if that is allowed.

        A caller that has files in the store passes False: a store without marker is then a wrong one, or not mounted.
        The same is true of a caller that has seen its id before (`ident`), whatever it passes. Sets `ident`.
        """
        name = names.marker(self._cluster)
        if self._is_marked():
            return
        if not may_create or self.ident is not None:  # no marker makes this store the one that was seen
            raise self.not_ours()
        self._attempt(f"write {name}", lambda: self._call(self._write_marker))

    def look(self, *, may_create: bool = False) -> str:
        """Return why the store cannot be used now, "" if it can be; asks once, within `[dfs] call_timeout`. A marker
        that is not there is left, if that may be. Sets `ident`."""
        try:
            if self.is_marked():
                return ""
            if not may_create or self.ident is not None:
                raise self.not_ours()
            self._once("write the marker", self._write_marker)
        except DfsError as error:
            return str(error)
        return ""

    def is_marked(self) -> bool:
        """Whether the marker is there, and that of the store that was seen before; asks once. Raises DfsError if the
        store does not answer, or its folder is not there."""
        return self._once("look for the marker", self._look_for_marker)

    def _look_for_marker(self) -> bool:
        if self._is_ours():
            return True
        base = self._url.base
        if self._url.kind is StoreKind.LOCAL and not os.path.isdir(base):  # one that is not mounted is no new one
            raise FileNotFoundError(f"the folder {base} is not there: not mounted, or moved")
        return False

    def _is_marked(self) -> bool:
        """The same, with retries while they may help; the messages are the same for every caller."""
        return self._attempt("look for the marker", lambda: self._call(self._look_for_marker))

    def _is_ours(self) -> bool:
        marker = names.marker(self._cluster)
        wanted = [marker, names.id_file(self._cluster, self.ident)] if self.ident else [marker]
        if not all(found.is_file for found in self._filesystem.get_file_info([self._at(name) for name in wanted])):
            return False
        if not self.ident:
            with self._filesystem.open_input_file(self._at(marker)) as file:
                found = names.parse_marker(file.read(names.MARKER_BYTES_MAX))
            if self.ident is None:
                self.ident = found
            return self.ident == found
        return True

    def not_ours(self) -> DfsError:
        """The error of a store without marker."""
        self.counts.failures += 1
        name = names.id_file(self._cluster, self.ident) if self.ident else names.marker(self._cluster)
        which = " without an id, as it had" if self.ident == "" else ""
        return DfsError(
            f"DFS store {self.shown} has no {name}{which}: it is not the store of this cluster, not"
            " mounted, or was emptied; check [dfs] url and [cluster] id"
        )

    # Files.

    def put(self, name: str, path: Path, *, check: Check | None = None) -> Stored:
        """Store the local file `path`; `name` is one of names.file_name, to which a token is added.

        Read back before this returns: "ends" is the length and the first and last 64 KiB, "whole" every byte; without
        `check` it is as `[dfs] verify` says. The file must not change meanwhile. Raises OSError for a local file that
        is not there, DfsError for all else, a local file that fails while it is read included; then nothing was
        stored in any index.
        """
        size = self._door.size(path)
        tries = itertools.count()

        def once() -> Stored:
            if next(tries):
                self._info(names.marker(self._cluster))  # whether it answers at all is known sooner than by an upload
            return self._put_once(name, path, size, check or self._section.verify)

        stored = self._attempt(f"store {name}", once)
        self.counts.put_bytes += size
        return stored

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly that range. Raises FileNotFoundError, CorruptError for a file that is too short, DfsError."""
        what = f"read bytes {offset} to {offset + length} of {name}"
        data = self._attempt(what, lambda: self._call(lambda: self._read_once(name, offset, length)), missing=name)
        if len(data) != length:
            raise CorruptError(f"DFS store {self.shown}: {what}: it ends after {len(data)} of {length} bytes")
        self.counts.read_bytes += length
        return data

    def size(self, name: str) -> int | None:
        """Return the length of a file in bytes, None if the store has no such file."""
        found = self._attempt(f"look for {name}", lambda: self._info(name))
        if found is None:
            self._check_ours()
        return found

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is removed."""
        self._handles.forget(name)
        self._remove(f"remove {name}", name, self._filesystem.delete_file)

    def remove_folder(self, folder: str) -> None:
        """Remove everything below a folder; one that is not there is removed."""
        self.forget(folder)
        self._remove(f"remove the folder {folder}", folder, self._filesystem.delete_dir)
        self.forget(folder)  # what was read meanwhile

    def forget(self, folder: str) -> None:
        """Close all files below a folder that is or was removed."""
        self._handles.forget_below(folder)

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder that is not needed any more, if it is empty and the store can check that in the same step:
        a local folder. A courtesy; of other stores the leading master removes it with what it is in."""
        if self._url.kind is StoreKind.LOCAL:
            with suppress(*_FAILURES):
                self._call(lambda: remove_empty(self._at(folder), self._url.base))

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; [] for one that is not there."""
        return sorted(each.base_name for each in self._listed(folder) if not each.is_file)

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield name and length of every file below a folder, those being written included; memory is one folder's."""
        waiting = [folder]
        while waiting:
            at = waiting.pop()
            for each in self._listed(at):
                name = f"{at}/{each.base_name}"
                if each.is_file:
                    yield name, each.size
                else:
                    waiting.append(name)

    # One try of each; these raise what the library raises.

    def _put_once(self, name: str, path: Path, size: int, check: Check) -> Stored:
        target = f"{name}.{self._door.token(names.TOKEN_DIGITS // 2).hex()}"
        seconds = self._section.call_timeout.seconds + size / _UPLOAD_BYTES_A_SECOND
        kind, root, part = self._url.kind, self._at(self._cluster), self._section.part_bytes
        values = self._door, kind, self._filesystem, path, self._at(target), root, part
        try:
            self._calls.run(lambda: upload(*values), seconds)
            if not self._call(self._is_ours):  # it may have gone to another store, which would give it back
                raise self.not_ours()
            self._verify(target, path, size, check)
        except _FAILURES as error:
            if not isinstance(error, StoreHangsError | ClosedError):
                self._discard(target)
            raise
        return Stored(target, size)

    def _verify(self, name: str, path: Path, size: int, check: Check) -> None:
        found = self._info(name)
        if found != size:
            raise OSError(f"what was read back has {found} bytes, not {size}")
        step = self._section.part_bytes
        if check == "whole" or size <= 2 * END_BYTES:
            ranges = [(at, min(step, size - at)) for at in range(0, size, step)]
        else:
            ranges = [(0, END_BYTES), (size - END_BYTES, END_BYTES)]
        for (offset, length), wanted in zip(ranges, self._door.ranges(path, ranges), strict=True):
            if self._call(lambda at=offset, of=length: self._read_once(name, at, of)) != wanted:  # type: ignore[misc]
                raise OSError(f"what was read back differs from {path} in bytes {offset} to {offset + length}")

    def _discard(self, target: str) -> None:
        """Remove what a failed attempt may have left. A courtesy: else it is removed with its shuffle."""
        for name in (target, target + names.TEMPORARY_SUFFIX):
            try:
                self._call(lambda each=name: self._filesystem.delete_file(self._at(each)))  # type: ignore[misc]
            except _FAILURES:
                continue  # missing, or the store is unreachable as the attempt reported

    def _read_once(self, name: str, offset: int, length: int) -> bytes:
        handle = self._handles.take(name) or self._filesystem.open_input_file(self._at(name))
        there = max(min(length, handle.size() - offset), 0)
        data: bytes = handle.read_at(there, offset) if there else b""
        self._handles.give(name, handle)
        return data

    def _info(self, name: str) -> int | None:
        """Length of a file, None if it does not exist."""
        found = self._call(lambda: self._filesystem.get_file_info(self._at(name)))
        return int(found.size) if found.is_file else None

    def _listed(self, folder: str) -> Sequence[Any]:
        from pyarrow import fs

        selector = fs.FileSelector(self._at(folder), allow_not_found=True)
        found: Sequence[Any] = self._attempt(
            f"list {folder}", lambda: self._call(lambda: self._filesystem.get_file_info(selector))
        )
        if not found:
            self._check_ours()
        return found

    def _remove(self, what: str, name: str, act: Callable[[str], None]) -> None:
        try:
            self._attempt(what, lambda: self._call(lambda: act(self._at(name))), missing=name)
        except FileNotFoundError:
            return  # which is what was asked for

    def _write_marker(self) -> None:
        """The id's own file comes first: it exists wherever the marker does, and of workers that make the store at once
        each finds its own for ever."""
        ident, number = self._new_ident, next(self._markers)
        if self._url.kind is StoreKind.LOCAL:
            base = Path(self._url.base)
            make_folders(base / self._cluster, base)
        for name in (names.id_file(self._cluster, ident), names.marker(self._cluster)):
            new = at = self._at(name)
            if self._url.kind is not StoreKind.S3:  # where others see what is half written
                # A try that was given up may yet be carried out: it has files of its own.
                new = f"{at}.{ident}.{number}{names.TEMPORARY_SUFFIX}"
            with self._filesystem.open_output_stream(new) as stream:
                stream.write(names.marker_text(self._cluster, ident))
            if self._url.kind is StoreKind.LOCAL:
                with open(new, "rb") as written:
                    os.fsync(written.fileno())
            if new != at:
                self._filesystem.move(new, at)
        if self._url.kind is StoreKind.LOCAL:
            sync_directory(Path(self._url.base) / self._cluster)
        self.ident = ident

    # How everything is asked.

    def _at(self, name: str) -> str:
        return f"{self._url.base}/{name}"

    def _call(self, act: Callable[[], T]) -> T:
        return self._calls.run(act, self._section.call_timeout.seconds)

    def _once(self, what: str, act: Callable[[], T]) -> T:
        """Return act(), tried once. Raises DfsError."""
        try:
            return self._call(act)
        except _FAILURES as error:
            raise error_of(self.shown, what, error) from error

    def _attempt(self, what: str, once: Callable[[], T], missing: str = "") -> T:
        """Return once(), tried again while that may help. `missing` is what a FileNotFoundError may be about."""
        retries = Retries(self._section.retry_window.seconds, self._draw)
        while True:
            try:
                return once()
            except _FAILURES as error:
                fault = classify(error)
                pause = retries.failed(self._door.now()) if fault is Fault.PASSING else None
                if self._closed.is_set():
                    raise self._closed_error() from error
                if pause is None:
                    raise self._final(what, error, fault, missing) from error
            self.counts.retries += 1
            self._pause(pause)

    def _final(self, what: str, error: BaseException, fault: Fault, missing: str) -> Exception:
        """Return the error to raise when no try helps. Raises the marker's own."""
        if fault is Fault.MISSING and missing:
            self._check_ours()
            return FileNotFoundError(f"DFS store {self.shown} has no {missing}")
        self.counts.failures += 1
        return error_of(self.shown, what, error)

    def _check_ours(self) -> None:
        """Raise DfsError unless the marker is there: nothing was found, and that must mean something."""
        if not self._is_marked():
            raise self.not_ours()

    def _closed_error(self) -> DfsError:
        return DfsError(f"DFS store {self.shown} was closed by this process, which is ending", passing=True)

    def _sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise self._closed_error()
