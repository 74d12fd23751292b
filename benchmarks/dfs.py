"""Measures a DFS store beside a plain pyarrow copy of the same bytes: `python -m benchmarks.dfs URL --help`.

Pairs of put and plain upload, and of read and plain download, take turns in one run, so that what else the machine does
hits both. A ratio is the plain time over ours: 1.0 is as fast as pyarrow alone, the aim is 0.8 or more. The plain
upload has pyarrow's defaults (parts in the background, nothing synced or read back); the plain download reads the file
in the same ranges from one open handle. Credentials and endpoint come from the environment (HOLDFAST_DFS_…, AWS_…).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.common.config import config
from holdfast.common.dfs import names
from holdfast.common.dfs.opening import open_filesystem
from holdfast.common.dfs.store import DfsStore
from holdfast.common.dfs.urls import StoreKind
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey

_MIB = 1 << 20


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


class Bench:
    """One store, asked both ways."""

    def __init__(self, section: config.DfsSection, cluster: str, source: Path, chunk: int) -> None:
        self.store = DfsStore(section, cluster)
        self.store.claim()
        self.url, opened = open_filesystem(section)
        self.plain = _with_defaults(self.url.kind, opened, section)
        self.source, self.chunk, self.size = source, chunk, source.stat().st_size
        self.cluster = cluster
        key = ShuffleKey(Instance(secrets.token_bytes(16)), ShuffleId(0), Generation(0))
        self.name = names.file_name(cluster, key, secrets.token_bytes(16), "bench.part")
        self.folder = f"{self.url.base}/{names.shuffle_folder(cluster, key)}"

    def put(self) -> str:
        """Ours."""
        return self.store.put(self.name, self.source).name

    def upload(self) -> str:
        """Plain."""
        from pyarrow import fs

        target = f"{self.folder}/plain-{secrets.token_hex(4)}"
        if self.url.kind is not StoreKind.S3:
            self.plain.create_dir(self.folder, recursive=True)
        local = fs.LocalFileSystem()
        fs.copy_files(str(self.source), target, source_filesystem=local, destination_filesystem=self.plain)
        return target

    def read(self, name: str) -> None:
        """Ours, range by range."""
        for at in range(0, self.size, self.chunk):
            self.store.read(name, at, min(self.chunk, self.size - at))

    def download(self, path: str) -> None:
        """Plain, range by range."""
        with self.plain.open_input_file(path) as file:
            for at in range(0, self.size, self.chunk):
                file.read_at(min(self.chunk, self.size - at), at)

    def pairs(self, count: int) -> dict[str, Any]:
        """Take turns; return the seconds of every try, medians and ratios."""
        times: dict[str, list[float]] = {"put": [], "plain_put": [], "read": [], "plain_read": []}
        for turn in range(count + 1):
            ours, plain = self._turn(turn % 2 == 0)
            if turn:  # the first of each is for connections, classes and caches
                for name, taken in zip(times, (ours[0], plain[0], ours[1], plain[1]), strict=True):
                    times[name].append(taken)
        middle = {name: statistics.median(taken) for name, taken in times.items()}
        return {
            "url": str(self.url),
            "mib": self.size / _MIB,
            "pairs": count,
            "seconds": {name: [round(each, 4) for each in taken] for name, taken in times.items()},
            "mib_a_second": {name: round(self.size / _MIB / taken, 1) for name, taken in middle.items()},
            "put_ratio": round(middle["plain_put"] / middle["put"], 2),
            "read_ratio": round(middle["plain_read"] / middle["read"], 2),
        }

    def _turn(self, ours_first: bool) -> tuple[tuple[float, float], tuple[float, float]]:
        found: dict[bool, tuple[float, float]] = {}
        for ours in (ours_first, not ours_first):
            kept: list[str] = []
            stored = seconds(lambda of=ours, to=kept: to.append(self.put() if of else self.upload()))  # type: ignore[misc]
            read = self.read if ours else self.download
            found[ours] = (stored, seconds(lambda of=read, to=kept: of(to[0])))  # type: ignore[misc]
            if ours:
                self.store.remove(kept[0])
            else:
                self.plain.delete_file(kept[0])
        return found[True], found[False]

    def close(self) -> None:
        """Leave nothing behind."""
        self.store.remove_folder(self.cluster)
        self.store.close()


def _with_defaults(kind: StoreKind, opened: Any, section: config.DfsSection) -> Any:
    """The file system as pyarrow opens it by itself; of HDFS there is only ours."""
    if kind is not StoreKind.S3:
        return opened
    from pyarrow import fs

    options: dict[str, Any] = {"region": section.region or os.environ.get("AWS_REGION") or "us-east-1"}
    endpoint = section.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint:
        options["scheme"], _, options["endpoint_override"] = endpoint.partition("://")
    if section.access_key:
        options["access_key"] = section.access_key
        options["secret_key"] = Path(section.secret_key_file).read_text().strip()
    return fs.S3FileSystem(**options)


def main() -> None:
    """Read the command line, measure, print one JSON object."""
    parser = argparse.ArgumentParser(prog="benchmarks.dfs", description=__doc__.partition("\n")[0])
    parser.add_argument("url", help="as [dfs] url")
    parser.add_argument("--mib", type=int, default=256, help="size of the file")
    parser.add_argument("--pairs", type=int, default=5, help="pairs that are counted; one more goes before")
    parser.add_argument("--chunk-mib", type=int, default=8, help="what is read at a time")
    parser.add_argument("--verify", choices=("ends", "whole"), default="ends", help="what put reads back")
    options = parser.parse_args()
    environ = {**os.environ, "HOLDFAST_DFS_URL": options.url, "HOLDFAST_DFS_VERIFY": options.verify}
    section = config.parse("", environ).dfs
    with tempfile.TemporaryDirectory(prefix="holdfast-dfs-") as directory:
        source = Path(directory) / "source"
        with source.open("wb") as file:
            for _ in range(options.mib):
                file.write(secrets.token_bytes(_MIB))
        bench = Bench(section, f"bench-{secrets.token_hex(4)}", source, options.chunk_mib * _MIB)
        try:
            result = bench.pairs(options.pairs)
        finally:
            bench.close()
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
