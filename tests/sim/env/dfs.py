"""A DFS that all workers and masters share: S3 or HDFS, as their clients show them through pyarrow.

It outlives every process and every machine. S3: an object is there, whole, when its upload is completed; one that
failed may appear cut short, at once or later. HDFS: a file is there from its creation on and grows; a rename gives it
another name, and takes the place of what has it. Listings are exact in both. A request may fail, be carried out and
fail all the same, hang, and arrive when nobody waits for it any more; a store may be away, full, refuse everything, or
be another one for a while. A process that dies in a request has made all of it, a part, or nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from holdfast.common.dfs.calls import ClosedError, StoreHangsError
from holdfast.common.dfs.urls import DfsUrl, StoreKind, parse_url
from tests.sim.env.process import Process
from tests.sim.env.threads import Loop, SimEvent, SimThreads

if TYPE_CHECKING:
    from holdfast.common.config.config import DfsSection

T = TypeVar("T")

URLS = {StoreKind.S3: "s3://bucket/sim", StoreKind.HDFS: "hdfs://name/sim"}
#: In short: of a request to the DFS, of what is tried again, and of what the masters clean.
DFS_TIMES = {
    "call_timeout": "2s",
    "retry_window": "3s",
    "connect_timeout": "1s",
    "clean_every": "2s",
    "clean_grace": "4s",
}
#: Between looks whether a call has come back, at first and at most.
_FIRST_LOOK, _LAST_LOOK = 0.001, 0.25
_CALLS_MAX = 32


class Info(NamedTuple):
    """What stands under a name; as pyarrow's FileInfo."""

    path: str
    is_file: bool
    size: int | None = None

    @property
    def base_name(self) -> str:
        return self.path.rpartition("/")[2]


class Bucket:
    """The store itself."""

    def __init__(self, kind: StoreKind, loop: Loop, rng: random.Random) -> None:
        self.kind, self.loop, self.rng = kind, loop, rng
        self.url = URLS[kind]
        #: what lies in it, by path
        self.files: dict[str, bytes] = {}
        #: folders that are known by themselves: of HDFS those that were made, of S3 those that were emptied
        self.folders: dict[str, None] = {}
        #: what is in its place for a while
        self._other: tuple[dict[str, bytes], dict[str, None]] | None = None
        # What is wrong with it now.
        self.errors = 0.0
        self.hangs_until = self.away_until = 0.0
        self.full = self.refuses = False
        #: whether the masters look for what is left
        self.may_clean = rng.random() < 0.3
        #: told of each upload that begins, by the process that makes it
        self.on_upload: Callable[[Process], None] = lambda _: None

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.errors = self.hangs_until = self.away_until = 0.0
        self.full = self.refuses = False
        self.put_back()

    def put_other(self) -> None:
        """Another store is at its address, in which there is nothing."""
        if self._other is None:
            self._other = self.files, self.folders
            self.files, self.folders = {}, {}

    def put_back(self) -> None:
        """It is there again."""
        if self._other is not None:
            self.files, self.folders = self._other
            self._other = None

    @property
    def real_files(self) -> dict[str, bytes]:
        """What lies in the store itself, whatever is at its address."""
        return self.files if self._other is None else self._other[0]

    # what its server does with a request; each at once

    def info(self, path: str) -> Info:
        if path in self.files:
            return Info(path, True, len(self.files[path]))
        return Info(path, False)

    def listed(self, folder: str) -> list[Info]:
        """What is in a folder, one level of it."""
        start = f"{folder}/"
        found: dict[str, Info] = {}
        for path in (*self.folders, *self.files):
            if path.startswith(start):
                name, slash, _ = path[len(start) :].partition("/")
                below = start + name
                found[below] = Info(below, False) if slash or path in self.folders else self.info(path)
        return [found[path] for path in sorted(found)]

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data
        if self.kind is StoreKind.HDFS:
            self._make_folders(path)
        else:
            self.folders.pop(path.rpartition("/")[0], None)

    def _make_folders(self, path: str) -> None:
        above = path.rpartition("/")[0]
        while above:
            self.folders[above] = None
            above = above.rpartition("/")[0]

    def remove(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(path)
        del self.files[path]
        if self.kind is StoreKind.S3:  # the client leaves what stands for the folder
            self.folders[path.rpartition("/")[0]] = None

    def below(self, folder: str) -> list[str]:
        return [path for path in (*self.files, *self.folders) if path == folder or path.startswith(f"{folder}/")]

    def remove_all(self, paths: list[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
            self.folders.pop(path, None)

    def rename(self, source: str, target: str) -> None:
        if source not in self.files:
            raise FileNotFoundError(source)
        self.write(target, self.files.pop(source))


class _Request:
    """One that is carried out once at most, whoever brings it."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._over = False
        self._found: Any = None

    def carry_out(self) -> Any:
        if not self._over:
            self._over = True
            self._found = self._act()
        return self._found

    def arrive_late(self) -> None:
        """Nobody waits for it any more."""
        try:
            self.carry_out()
        except OSError:
            return


class SimClient:
    """A client of the store, in one process or in none; the methods are pyarrow's."""

    def __init__(self, bucket: Bucket, process: Process | None) -> None:
        self.bucket, self._process = bucket, process

    def ask(
        self,
        act: Callable[[], T],
        *,
        changes: bool = False,
        writes: bool = False,
        part: Callable[[], object] | None = None,
    ) -> T:
        """Make a request, which changes something, or needs room. `part` does a part of it; without it nothing is done
        by halves."""
        bucket, rng, request = self.bucket, self.bucket.rng, _Request(act)
        changes = changes or writes
        if self._process is not None and self._process.step():
            if changes and rng.random() < 0.7:
                self._cut_short(request, part)
            self._process.die()
        self._wait(request, changes)
        self._refuse(writes)
        if bucket.errors and rng.random() < bucket.errors:
            if changes and rng.random() < 0.5:
                self._cut_short(request, part)
            raise OSError(self._text("SLOW_DOWN", 503, "RetriableException"))
        found: T = request.carry_out()
        if self._process is not None:
            self._process.step()  # it may die before it hears the answer
        return found

    def _cut_short(self, request: _Request, part: Callable[[], object] | None) -> None:
        """Nobody hears what became of it: all of it, or a part."""
        if part is not None and self.bucket.rng.random() < 0.5:
            part()
        else:
            request.arrive_late()

    def _wait(self, request: _Request, changes: bool) -> None:
        bucket = self.bucket
        left = bucket.hangs_until - bucket.loop.now
        if left <= 0:
            return
        if self._process is None or self._process.threads is None:
            raise StoreHangsError("no answer")
        if changes and bucket.rng.random() < 0.5:  # it is on its way, whatever becomes of who sent it
            bucket.loop.call_later(left, request.arrive_late)
        self._process.threads.let_others(left + bucket.rng.uniform(0.0, 0.1))

    def _refuse(self, writes: bool) -> None:
        bucket = self.bucket
        if bucket.away_until > bucket.loop.now:
            raise ConnectionRefusedError("the store cannot be reached")
        if bucket.refuses:
            raise OSError(self._text("ACCESS_DENIED", 403, "AccessControlException"))
        if writes and bucket.full:
            raise OSError(self._text("QUOTA_EXCEEDED", 403, "DSQuotaExceededException"))

    def _text(self, aws: str, http: int, hadoop: str) -> str:
        if self.bucket.kind is StoreKind.S3:
            return f"AWS Error {aws} (HTTP status {http}) during a request"
        return f'RPCError("org.apache.hadoop.{hadoop}", "no")'

    def get_file_info(self, asked: Any) -> Any:
        """Of a path, of several, or of what is in a folder."""
        if isinstance(asked, list):
            return [self.get_file_info(each) for each in asked]
        if isinstance(asked, str):
            return self.ask(lambda: self.bucket.info(asked))
        return self.ask(lambda: self.bucket.listed(asked.base_dir))

    def open_input_file(self, path: str) -> SimReader:
        return SimReader(self, path, self.ask(lambda: self._of(path)))

    def _of(self, path: str) -> int:
        if path not in self.bucket.files:
            raise FileNotFoundError(path)
        return len(self.bucket.files[path])

    def read(self, path: str, size: int, offset: int) -> bytes:
        """A range, of a file that may be gone by now."""

        def act() -> bytes:
            self._of(path)
            return self.bucket.files[path][offset : offset + size]

        return self.ask(act)

    def open_output_stream(self, path: str) -> SimWriter:
        if self.bucket.kind is StoreKind.HDFS:
            self.ask(lambda: self.bucket.write(path, b""), writes=True)
        return SimWriter(self, path)

    def upload(self, path: str, data: bytes) -> None:
        """A whole object of S3. Where its upload fails a beginning of it may appear, later perhaps: what is dropped is
        completed."""
        bucket, rng = self.bucket, self.bucket.rng
        short = data[: rng.randrange(len(data) + 1)]
        whole = False

        def act() -> None:
            nonlocal whole
            bucket.write(path, data)
            whole = True

        def drop() -> None:
            if not whole:  # and whatever has this name by now
                bucket.write(path, short)

        try:
            # Who is killed completes nothing.
            self.ask(act, writes=True)
        except OSError:
            if not whole and bucket.away_until <= bucket.loop.now and rng.random() < 0.5:
                bucket.loop.call_later(rng.choice((0.0, rng.uniform(0.0, 3.0))), _Request(drop).arrive_late)
            raise

    def delete_file(self, path: str) -> None:
        self.ask(lambda: self.bucket.remove(path), changes=True)

    def delete_dir(self, path: str) -> None:
        """S3: what is listed below it is removed, object by object; HDFS: at once."""
        bucket = self.bucket

        def act() -> None:
            found = bucket.below(path)
            if not found:
                raise FileNotFoundError(path)
            bucket.remove_all(found)
            if bucket.kind is StoreKind.S3:
                bucket.folders[path.rpartition("/")[0]] = None

        def part() -> None:
            found = bucket.below(path)
            if bucket.kind is StoreKind.S3:
                bucket.remove_all(found[: bucket.rng.randrange(len(found) + 1)])

        self.ask(act, changes=True, part=part)

    def move(self, source: str, target: str) -> None:
        self.ask(lambda: self.bucket.rename(source, target), changes=True)


class SimReader:
    """A file that is read."""

    def __init__(self, client: SimClient, path: str, size: int) -> None:
        self._client, self._path, self._size = client, path, size

    def size(self) -> int:
        return self._size

    def read_at(self, size: int, offset: int) -> bytes:
        return self._client.read(self._path, size, offset)

    def read(self, size: int) -> bytes:
        return self._client.read(self._path, min(size, self._size), 0)

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimWriter:
    """A file that is written: of HDFS it grows, of S3 it is there when it is closed."""

    def __init__(self, client: SimClient, path: str) -> None:
        self._client, self._path = client, path
        self._data = b""

    def write(self, data: bytes) -> None:
        bucket, path, begun = self._client.bucket, self._path, self._data
        self._data += data
        if bucket.kind is StoreKind.HDFS:
            whole = self._data
            torn = begun + data[: bucket.rng.randrange(len(data) + 1)]
            self._client.ask(lambda: bucket.write(path, whole), writes=True, part=lambda: bucket.write(path, torn))

    def close(self) -> None:
        if self._client.bucket.kind is StoreKind.S3:
            self._client.upload(self._path, self._data)
        else:
            self._client.ask(lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimCalls:
    """Calls of one store, each in a thread that is left behind when it hangs; as common/dfs/calls.py."""

    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self.running = 0
        self._closed = False

    def run(self, act: Callable[[], T], seconds: float) -> T:
        threads, told = self._threads, list[tuple[Any, BaseException | None]]()
        end = threads.loop.now + seconds
        self._until(lambda: self.running < _CALLS_MAX, end)

        def carry_out() -> None:
            try:
                told.append((act(), None))
            except Exception as error:  # noqa: BLE001 - whoever called has it
                told.append((None, error))
            finally:
                self.running -= 1

        self.running += 1
        threads.begin(carry_out)
        self._until(lambda: bool(told), end)
        found, error = told[0]
        if error is not None:
            raise error
        return found

    def _until(self, ready: Callable[[], bool], end: float) -> None:
        look = _FIRST_LOOK
        while not ready():
            if self._closed:
                raise ClosedError("this store was closed")
            left = end - self._threads.loop.now
            if left <= 0:
                raise StoreHangsError("no answer in time")
            self._threads.let_others(min(look, left) + 1e-9)
            look = min(2 * look, _LAST_LOOK)

    def close(self) -> None:
        self._closed = True


class SimDfsDoor:
    """The door of one process."""

    def __init__(self, bucket: Bucket | None, process: Process, threads: SimThreads, rng: random.Random) -> None:
        self._bucket, self._process, self._threads, self._rng = bucket, process, threads, rng

    def open(self, section: DfsSection) -> tuple[DfsUrl, SimClient]:
        assert self._bucket is not None, "there is no DFS in this world"
        return parse_url(section.url), SimClient(self._bucket, self._process)

    def caller(self, store: str) -> SimCalls:
        return SimCalls(self._threads)

    def event(self) -> SimEvent:
        return self._threads.event()

    def now(self) -> float:
        return self._threads.loop.now

    def token(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def size(self, path: Path) -> int:
        assert self._bucket is not None
        self._bucket.on_upload(self._process)
        return self._process.files.stat(path).size

    def parts(self, path: Path, part_bytes: int) -> Iterator[bytes]:
        return iter([one for one in self.ranges(path, [(0, part_bytes)]) if one])

    def ranges(self, path: Path, wanted: list[tuple[int, int]]) -> Iterator[bytes]:
        files = self._process.files
        handle = files.open(path)
        for offset, length in wanted:
            yield files.read(handle, length, offset)

    def copy(self, client: SimClient, path: Path, target: str, part_bytes: int) -> None:
        client.upload(target, b"".join(self.parts(path, part_bytes)))


class _Now:
    """Calls of who has no threads: they come back at once."""

    running = 0

    def run(self, act: Callable[[], T], seconds: float) -> T:
        return act()

    def close(self) -> None:
        """Nobody waits."""


class MasterDfsDoor:
    """The door of a master, which only lists and removes."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.event = _Flag

    def open(self, section: DfsSection) -> tuple[DfsUrl, SimClient]:
        return parse_url(section.url), SimClient(self._bucket, None)

    def caller(self, store: str) -> _Now:
        return _Now()

    def now(self) -> float:
        return self._bucket.loop.now

    def token(self, size: int) -> bytes:
        return self._bucket.rng.randbytes(size)


class _Flag:
    """An event that nobody waits for."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._set
