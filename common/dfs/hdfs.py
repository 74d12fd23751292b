"""HDFS as a pyarrow file system, over hdfs-native: no Java, no libhdfs.

The names and signatures are pyarrow's FileSystemHandler. Written anew instead of taking hdfs-native's own fsspec
wrapper, which hands pyarrow's buffers on as they are (and those are read byte by byte: 8 MiB/s instead of 100), has
no rename that replaces, and closes files, which is a call to the name node, wherever Python drops them.
Called by opening.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import hdfs_native
import pyarrow
from pyarrow import fs

#: The library retries for three minutes by default; store.py does that itself.
_TRIES = 2


def hdfs_filesystem(host: str, timeout_ms: int) -> Any:
    """Return a pyarrow FileSystem of the HDFS that `host` (name node, or a name service of HADOOP_CONF_DIR) names."""
    options = {
        "dfs.client.failover.max.attempts": str(_TRIES),
        "dfs.client.failover.sleep.base.millis": "100",
        "dfs.client.failover.sleep.max.millis": "1000",
        "dfs.client.socket-timeout": str(timeout_ms),
    }
    return fs.PyFileSystem(HdfsHandler(hdfs_native.Client(f"hdfs://{host}", options)))


class _Reader:
    """A file that is read; what pyarrow.PythonFile calls."""

    def __init__(self, inner: hdfs_native.FileReader) -> None:
        self._inner = inner
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        return self._inner.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._inner.seek(offset, whence)
        return self._inner.tell()

    def tell(self) -> int:
        return self._inner.tell()

    def close(self) -> None:
        self.closed = True


class _Writer:
    """A file that is written. Dropped without `close` it stays as it is: nothing is said to the name node."""

    def __init__(self, client: hdfs_native.Client, path: str) -> None:
        options = hdfs_native.WriteOptions(overwrite=True, create_parent=True)
        # Not client.create: its wrapper closes the file when it is collected.
        self._inner = client.inner.create(path, options)
        self.closed = False

    def write(self, data: Any) -> int:
        """`bytes`, since the library reads any other buffer byte by byte."""
        return self._inner.write(bytes(data))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        """Have every data node sync what it got, then close: a closed file is as durable as a sealed one."""
        if not self.closed:
            self._inner.hsync()
            self._inner.close()
            self.closed = True


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """What pyarrow.fs.PyFileSystem calls."""

    def __init__(self, client: hdfs_native.Client) -> None:
        self._client = client

    def get_type_name(self) -> str:
        return "hdfs-native"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        try:
            return _info_of(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, type=fs.FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        try:
            return [_info_of(each) for each in self._list(selector.base_dir, selector.recursive)]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def _list(self, path: str, recursive: bool) -> Iterable[hdfs_native.FileStatus]:
        return self._client.list_status(path, recursive)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        if not self._client.delete(path, True):
            raise FileNotFoundError(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        try:
            inside = list(self._list(path, False))
        except FileNotFoundError:
            if missing_dir_ok:
                return
            raise
        for each in inside:
            self._client.delete(each.path, True)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("Holdfast never empties a whole HDFS")

    def delete_file(self, path: str) -> None:
        if not self._client.delete(path, False):
            raise FileNotFoundError(path)

    def move(self, src: str, dest: str) -> None:
        self._client.rename(src, dest, True)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("HDFS copies nothing by itself")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> Any:
        return pyarrow.PythonFile(_Reader(self._client.read(path)), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return pyarrow.PythonFile(_Writer(self._client, path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError("files of the DFS tier are written once")


def _info_of(status: hdfs_native.FileStatus) -> Any:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    return fs.FileInfo(
        status.path,
        type=kind,
        size=None if status.isdir else status.length,
        mtime_ns=status.modification_time * 1_000_000,
    )
