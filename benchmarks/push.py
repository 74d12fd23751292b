"""Measures pushes to one worker process: `python -m benchmarks.push DIR [--mib 1024] [--batch 2048 …]`.

A worker process (page cache, checksums on) and a load generator in another process, which has made all its frames
before the clock starts; beside it, in the same run, the same bytes through a plain asyncio BufferedProtocol that writes
them to a file. Prints GB/s, CPU seconds of the server per GiB for pushing, the time of the seal, and the same for
reading all back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.client.connection.direct import DirectConnection
from holdfast.common.errors import RetryError
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import crc32c, partition_seed
from holdfast.common.formats.frame import HEADER_BYTES, FrameHeader, FrameType, decode_header, encode_frame
from holdfast.common.formats.messages import Ack, Hello, HelloOk, Role, StreamCredit
from holdfast.common.formats.reduce_messages import (
    ChunkFlag,
    ChunksData,
    ChunksOpen,
    ChunksOpened,
    Push,
    PushAnswer,
    PushCredit,
    Registered,
    Seal,
    SealAnswer,
    SealFlag,
)
from holdfast.common.ids import (
    AttemptId,
    Generation,
    Incarnation,
    Instance,
    MapId,
    PartitionId,
    RaftIndex,
    ShuffleId,
    ShuffleKey,
    WorkerId,
)
from holdfast.worker.server.membership.worker_identity import KeptIdentity
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store, prepare

CLUSTER = "bench"
SHUFFLE = ShuffleKey(Instance(bytes(range(16))), ShuffleId(1), Generation(0))
WINDOW_BYTES = 16 << 20
_TICKS = os.sysconf("SC_CLK_TCK")

_SINK = """
import asyncio, os, sys
class Sink(asyncio.BufferedProtocol):
    def connection_made(self, transport):
        self.transport = transport
        self.buffer = memoryview(bytearray(1 << 20))
        self.file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.size = 0
    def get_buffer(self, hint):
        return self.buffer
    def buffer_updated(self, count):
        os.pwrite(self.file, self.buffer[:count], self.size)
        self.size += count
    def eof_received(self):
        self.transport.write(b"x")
        return True
async def main():
    import socket
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    server = await asyncio.get_running_loop().create_server(Sink, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass
class Connection:
    """A blocking framed connection."""

    sock: socket.socket
    next_id: int = 0

    @classmethod
    def open(cls, address: str, role: Role) -> tuple[Connection, HelloOk]:
        """Connect and greet."""
        host, port = address.split(":")
        sock = socket.create_connection((host, int(port)))
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = cls(sock)
        _, meta = one.ask(FrameType.HELLO, Hello(role=role, cluster_id=CLUSTER).encode())
        return one, HelloOk.decode(meta)

    def ask(self, kind: FrameType, meta: bytes) -> tuple[FrameHeader, bytes]:
        """Send a request and return its answer."""
        self.next_id += 1
        self.sock.sendall(encode_frame(kind, self.next_id, meta))
        return self.answer()

    def answer(self) -> tuple[FrameHeader, bytes]:
        """The next frame, which has no body."""
        header = decode_header(self.exactly(HEADER_BYTES))
        meta = self.exactly(header.meta_bytes)
        if header.status:
            raise SystemExit(f"{header.type.name} was refused: {header.status} {meta.decode()}")
        return header, meta

    def exactly(self, size: int) -> bytes:
        """That many bytes."""
        parts = []
        while size:
            part = self.sock.recv(size)
            if not part:
                raise SystemExit("the worker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Load(NamedTuple):
    """What is pushed: sizes in bytes."""

    total: int
    batch: int
    frame: int
    partitions: int
    ack: Ack

    @property
    def options(self) -> list[str]:
        """The arguments that say so."""
        sizes = ["--mib", str(self.total >> 20), "--batch", str(self.batch), "--frame-kib", str(self.frame >> 10)]
        return [*sizes, "--partitions", str(self.partitions), "--ack", self.ack.name.lower()]


def frames(load: Load, incarnation: Incarnation) -> Iterator[tuple[bytes, bytes]]:
    """Header with meta, and body, of merged frames; an attempt for every 64 MiB."""
    batch, partitions = load.batch, load.partitions
    payload = os.urandom(batch - 28)
    seeds = [partition_seed(SHUFFLE, PartitionId(partition)) for partition in range(partitions)]
    count = max(1, load.frame // batch)
    made, partition, number = 0, 0, 0
    writers: dict[int, BatchWriter] = {}
    map_id = -1
    while made < load.total:
        if made >= (map_id + 1) * (64 << 20):
            map_id, writers = map_id + 1, {}
        parts, entries = [], []
        for _ in range(count):
            writer = writers.get(partition)
            if writer is None:
                writer = writers[partition] = BatchWriter(MapId(map_id), AttemptId(map_id), seeds[partition])
            entries.append((partition, 0, writer.batches, batch, 0))
            parts += [writer.header(payload), payload]
            partition = (partition + 1) % partitions
        body = b"".join(parts)
        push = Push(
            shuffle=SHUFFLE,
            incarnation=incarnation,
            ack=load.ack,
            map=MapId(map_id),
            attempt=AttemptId(map_id),
            body_crc=crc32c(body),
            entries=entries,  # type: ignore[arg-type]
        )
        number += 1
        yield encode_frame(FrameType.PUSH, 1_000 + number, push.encode(), len(body)), body
        made += len(body)


def send_all(sock: socket.socket, parts: list[bytes]) -> None:
    """Send parts without joining them."""
    views = [memoryview(part) for part in parts]
    while views:
        sent = sock.sendmsg(views)
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]


def announce(address: str, shuffle: ShuffleKey) -> None:
    """Say, in the name of masters, that a shuffle is registered."""
    master, _ = Connection.open(address, Role.MASTER)
    master.ask(FrameType.REGISTERED, Registered(shuffle, []).encode())
    master.sock.close()


def generate(address: str, pid: int, load: Load) -> dict[str, float]:
    """Push everything, seal it and read it back; runs in a process of its own."""
    announce(address, SHUFFLE)
    client, hello = Connection.open(address, Role.CLIENT)
    made = list(frames(load, hello.incarnation))
    window = PushCredit.decode(client.ask(FrameType.PUSH_CREDIT, PushCredit(WINDOW_BYTES).encode())[1]).size_bytes
    size = sum(len(body) for _, body in made)
    inflight: list[int] = []
    cpu, began = cpu_seconds(pid), time.perf_counter()
    for head, body in made:
        while sum(inflight) + len(body) > window:
            _check(client.answer()[1])
            inflight.pop(0)
        send_all(client.sock, [head, body])
        inflight.append(len(body))
    for _ in inflight:
        _check(client.answer()[1])
    pushed, push_cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    sealed, seal_cpu = _seal(address, pid, load.partitions)
    cpu, began = cpu_seconds(pid), time.perf_counter()
    read_bytes = _read(client, load.partitions)
    read, read_cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    if read_bytes != size:
        raise SystemExit(f"{read_bytes} bytes came back of {size}")
    gib = size / 2**30
    return {
        "push_gb_s": size / pushed / 1e9,
        "push_cpu_s_gib": push_cpu / gib,
        "seal_s": sealed,
        "seal_cpu_s": seal_cpu,
        "read_gb_s": size / read / 1e9,
        "read_cpu_s_gib": read_cpu / gib,
        "push_us_batch": pushed / (size / load.batch) * 1e6,
    }


def _check(meta: bytes) -> None:
    statuses = PushAnswer.decode(meta).statuses
    if statuses:
        raise SystemExit(f"refused: {statuses[:3]}")


def _seal(address: str, pid: int, partitions: int) -> tuple[float, float]:
    master, _ = Connection.open(address, Role.MASTER)
    cpu, began = cpu_seconds(pid), time.perf_counter()
    seal = Seal(
        shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=RaftIndex(1), epochs=[(one, 0) for one in range(partitions)]
    )
    answers = SealAnswer.decode(master.ask(FrameType.SEAL, seal.encode())[1]).epochs
    if any(answer.status for answer in answers):
        raise SystemExit(f"not sealed: {[answer for answer in answers if answer.status][:3]}")
    return time.perf_counter() - began, cpu_seconds(pid) - cpu


def _read(client: Connection, partitions: int) -> int:
    request = ChunksOpen(shuffle=SHUFFLE, credit_bytes=64 << 20, files=[(one, 0, 0) for one in range(partitions)])
    opened = ChunksOpened.decode(client.ask(FrameType.CHUNKS_OPEN, request.encode())[1])
    buffer = memoryview(bytearray(2 << 20))
    size = given = 0
    while True:
        header = decode_header(client.exactly(HEADER_BYTES))
        data = ChunksData.decode(client.exactly(header.meta_bytes))
        left = header.body_bytes
        while left:
            left -= client.sock.recv_into(buffer[: min(left, len(buffer))])
        size += header.body_bytes
        given += header.body_bytes
        if data.flags & ChunkFlag.END:
            return size
        if given >= 16 << 20:
            credit = StreamCredit(stream=opened.stream, credit_bytes=given).encode()
            client.sock.sendall(encode_frame(FrameType.STREAM_CREDIT, header.request_id, credit))
            given = 0


def to_sink(directory: Path, load: Load) -> dict[str, float]:
    """The same frames into a plain protocol that writes what comes."""
    target = directory / "sink"
    process = subprocess.Popen([sys.executable, "-c", _SINK, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        made = list(frames(load, Incarnation(1)))
        size = sum(len(body) for _, body in made)
        cpu, began = cpu_seconds(process.pid), time.perf_counter()
        for head, body in made:
            send_all(sock, [head, body])
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        spent, used = time.perf_counter() - began, cpu_seconds(process.pid) - cpu
    finally:
        process.kill()
        process.wait()
        target.unlink(missing_ok=True)
    return {"sink_gb_s": size / spent / 1e9, "sink_cpu_s_gib": used / (size / 2**30)}


def start_worker(directory: Path, profile: str) -> tuple[subprocess.Popen[str], str]:
    """A worker that takes itself for registered; its masters do not exist."""
    data = directory / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    settings = StoreSettings(
        cluster_id=CLUSTER, worker_name="w", directories=(DirectorySettings(path=str(data)),), sync_threads=4
    )
    open_store(prepare(settings)).close()
    KeptIdentity(WorkerId(1), RaftIndex(1)).write(SystemFiles(), data)
    config = directory / "worker.toml"
    config.write_text(
        f'[cluster]\nid = "{CLUSTER}"\n[log]\nlevel = "ERROR"\n[worker]\nname = "w"\ndata_port = 0\nhttp_port = 0\n'
        f'masters = ["127.0.0.1:1"]\ndisk_reserve = "1MiB"\ndirectories = [{{ path = "{data.absolute()}" }}]\n',
        encoding="utf-8",
    )
    command = [sys.executable, *(["-m", "cProfile", "-o", profile] if profile else [])]
    process = subprocess.Popen(
        [*command, "-m", "tests.support.lone_worker", "--config", str(config)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    _wait_for_http(ready["http"])
    return process, ready["data"]


def _wait_for_http(address: str) -> None:
    """What a worker loads after its first line is no part of the measurement."""
    while True:
        with contextlib.suppress(RetryError), contextlib.closing(DirectConnection(address)) as connection:
            connection.get("/metrics")
            time.sleep(1.0)  # and its first tries to register
            return


def measure(directory: Path, load: Load, profile: str) -> dict[str, float]:
    """One worker, one generator in a process of its own."""
    process, address = start_worker(directory, profile)
    try:
        command = [sys.executable, "-m", "benchmarks.push", "--generate", address, str(process.pid), str(directory)]
        command += load.options
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, float] = json.loads(out.stdout)
        return found
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory / "data", ignore_errors=True)


def main() -> None:
    """Measure every batch size asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--batch", type=int, nargs="+", default=[2048, 3072, 65536])
    parser.add_argument("--frame-kib", type=int, default=2048, help="our client sends 256 to 4096 at full speed")
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--ack", choices=[one.name.lower() for one in Ack], default="written")
    parser.add_argument("--profile", default="", help="write a profile of the worker there")
    parser.add_argument("--generate", nargs=2, metavar=("ADDRESS", "PID"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    ack = Ack[arguments.ack.upper()]
    frame = arguments.frame_kib << 10
    loads = [Load(arguments.mib << 20, batch, frame, arguments.partitions, ack) for batch in arguments.batch]
    if arguments.generate:
        address, pid = arguments.generate
        sys.stdout.write(json.dumps(generate(address, int(pid), loads[0])))
        return
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for load in loads:
        found = measure(arguments.directory, load, arguments.profile)
        found |= to_sink(arguments.directory, load)
        text = "  ".join(f"{name} {value:.3g}" for name, value in found.items())
        sys.stdout.write(f"batch {load.batch}: {text}\n")


if __name__ == "__main__":
    main()
