"""Measures seals on one worker: `python -m benchmarks.seal DIR [--rounds 9]`; DIR should be on a real disk.

First 500 partitions of 5 KB each, which are still in the push log when their seal comes: the time of the seal beside
that of one synced plain file of as many bytes, in turns. Then 10,000 open partitions, half of them with a file
of their own, on one worker: its open descriptors, and the time of their seal.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from benchmarks.push import SHUFFLE, Connection, announce, start_worker
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import crc32c, partition_seed
from holdfast.common.formats.frame import FrameType, encode_frame
from holdfast.common.formats.messages import Ack, Role
from holdfast.common.formats.reduce_messages import Push, PushAnswer, PushCredit, Seal, SealAnswer, SealFlag
from holdfast.common.ids import AttemptId, Incarnation, MapId, PartitionId, RaftIndex, ShuffleId, ShuffleKey

PARTITIONS, BYTES = 500, 5_000
MANY, LARGE_BYTES = 10_000, 40_000
_FRAME_BATCHES = 20


def push(client: Connection, key: ShuffleKey, incarnation: Incarnation, sizes: list[int]) -> None:
    """Push one batch of so many bytes to each partition."""
    client.ask(FrameType.PUSH_CREDIT, PushCredit(4 << 20).encode())
    for first in range(0, len(sizes), _FRAME_BATCHES):
        entries, parts = [], []
        for partition, size in enumerate(sizes[first : first + _FRAME_BATCHES], first):
            writer = BatchWriter(MapId(0), AttemptId(0), partition_seed(key, PartitionId(partition)))
            payload = os.urandom(size - 28)
            entries.append((partition, 0, writer.batches, size, 0))
            parts += [writer.header(payload), payload]
        body = b"".join(parts)
        meta = Push(
            shuffle=key,
            incarnation=incarnation,
            ack=Ack.WRITTEN,
            map=MapId(0),
            attempt=AttemptId(0),
            body_crc=crc32c(body),
            entries=entries,  # type: ignore[arg-type]
        ).encode()
        client.sock.sendall(encode_frame(FrameType.PUSH, 1, meta, len(body)) + body)
        refused = PushAnswer.decode(client.answer()[1]).statuses
        if refused:
            raise SystemExit(f"refused: {refused[:3]}")


def seal(master: Connection, key: ShuffleKey, partitions: int) -> float:
    """Seal them all; returns the seconds it took."""
    request = Seal(
        shuffle=key, flags=SealFlag.FINAL, raft_index=RaftIndex(1), epochs=[(one, 0) for one in range(partitions)]
    ).encode()
    began = time.perf_counter()
    answers = SealAnswer.decode(master.ask(FrameType.SEAL, request)[1]).epochs
    took = time.perf_counter() - began
    if len(answers) != partitions or any(answer.status for answer in answers):
        raise SystemExit("not everything was sealed")
    return took


def plain_sync(directory: Path, size: int) -> float:
    """Seconds of writing so many bytes into a new file and syncing it."""
    path, data = directory / "plain", os.urandom(size)
    began = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, data)
    os.fdatasync(fd)
    took = time.perf_counter() - began
    os.close(fd)
    path.unlink()
    return took


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    process, address = start_worker(arguments.directory, "")
    try:
        client, hello = Connection.open(address, Role.CLIENT)
        master, _ = Connection.open(address, Role.MASTER)
        seals, plain = [], []
        for number in range(arguments.rounds):
            key = SHUFFLE._replace(shuffle=ShuffleId(100 + number))
            announce(address, key)
            push(client, key, hello.incarnation, [BYTES] * PARTITIONS)
            plain.append(plain_sync(arguments.directory, PARTITIONS * BYTES))
            seals.append(seal(master, key, PARTITIONS))
        sys.stdout.write(
            f"{PARTITIONS} partitions of {BYTES} bytes: seal {statistics.median(seals) * 1e3:.1f} ms, most "
            f"{max(seals) * 1e3:.1f} ms; a plain synced file of as many bytes "
            f"{statistics.median(plain) * 1e3:.1f} ms\n"
        )
        sizes = [LARGE_BYTES if partition % 2 else BYTES for partition in range(MANY)]
        announce(address, SHUFFLE)
        push(client, SHUFFLE, hello.incarnation, sizes)
        files = len(os.listdir(f"/proc/{process.pid}/fd"))
        took = seal(master, SHUFFLE, MANY)
        sys.stdout.write(f"{MANY} open partitions: {files} open descriptors; seal {took:.2f} s\n")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
