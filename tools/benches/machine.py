"""What this machine can do in this minute: the yardstick that is printed beside every result."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.common.formats.checksum import crc32c
from holdfast.common.limits import KIB, MIB
from holdfast.tools.benches.figures import Figure
from holdfast.tools.cli.output import percentile

_COPY_BYTES = 64 * MIB
_FILE_BYTES = 256 * MIB
_SYNCS = 200
_ECHOS = 2000
_REPEATS = 5


def calibrate(directory: Path) -> list[Figure]:
    """Measure memory, checksum, disk (on `directory`'s file system) and loopback; a few seconds."""
    data = bytes(os.urandom(MIB)) * (_COPY_BYTES // MIB)
    copy = _best(lambda: bytearray(data))
    crc = _best(lambda: crc32c(data))
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        cache = _write_file(Path(scratch) / "cache", memoryview(data))
        syncs = _sync_file(Path(scratch) / "sync")
    echos = _echo()
    return [
        Figure("machine", "memory copy, one core", _COPY_BYTES / copy / 1e9, "GB/s"),
        Figure("machine", "CRC-32C, one core", _COPY_BYTES / crc / 1e9, "GB/s"),
        Figure("machine", "write to the page cache", cache, "GB/s"),
        Figure("machine", "append 4 KiB and fdatasync, p50", percentile(syncs, 0.5), "s"),
        Figure("machine", "append 4 KiB and fdatasync, p99", percentile(syncs, 0.99), "s"),
        Figure("machine", "loopback echo of 64 bytes, p50", percentile(echos, 0.5), "s"),
    ]


def _best(action: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs: the others were disturbed."""
    spans = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        action()
        spans.append(time.perf_counter() - began)
    return min(spans)


def _write_file(path: Path, data: memoryview) -> float:
    """GB/s of writing new pages, in pieces of 1 MiB."""
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for offset in range(0, _FILE_BYTES, MIB):
            start = offset % len(data)
            file.write(data[start : start + MIB])
        return _FILE_BYTES / (time.perf_counter() - began) / 1e9


def _sync_file(path: Path) -> list[float]:
    spans = []
    with path.open("ab", buffering=0) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(bytes(4 * KIB))
            os.fdatasync(file.fileno())
            spans.append(time.perf_counter() - began)
    return spans


def _echo() -> list[float]:
    """Seconds of round trips through a socket to another thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(64):
                connection.sendall(data)

    thread = threading.Thread(target=serve, name="echo")
    thread.start()
    spans = []
    with socket.create_connection(listener.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ECHOS):
            began = time.perf_counter()
            connection.sendall(bytes(64))
            connection.recv(64, socket.MSG_WAITALL)
            spans.append(time.perf_counter() - began)
    thread.join()
    listener.close()
    return spans
