"""Mutated frames and calls, and well-formed ones with hostile values, against a worker and a master in real processes.

    python -m tests.fuzz.run [--frames 100000] [--hostile 1000000] [--calls 100000] [--seed 1] [--keep DIR]

Promise: whatever comes, each connection ends in well-formed answers with known statuses and is then closed; no process
ends, memory stays flat, and what was sealed before reads back equal after. Exit status 1 if not, with the seed.
A conversation that breaks the promise is kept as a file (`--keep`); those in tests/fuzz/corpus are told again by the
default run.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import HEADER_BYTES, FrameType, decode_header, encode_frame
from holdfast.common.formats.messages import Hello
from holdfast.common.ids import ShuffleKey, StateId
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.fuzz.corpus import CORPUS, keep, repeated
from tests.fuzz.hostile import Hostile
from tests.fuzz.mutate import Mutator
from tests.fuzz.ports import fuzz_ports
from tests.support.map_data import MapContent, file_key, make_content, read_files, shuffle_key, write_file

#: An end of a connection that does not come within this is a hang.
ANSWER_SECONDS_MAX = 30.0
#: The application of a run: always the same one, so that what was kept means the same in the next.
INSTANCE = b"application fuzz"
#: Growth of a process over a run that counts as flat: buffers and caches that are filled once.
GROWTH_BYTES_MAX = 64 * MIB
CONNECTIONS_AT_ONCE = 16
FRAMES_PER_CONNECTION = 12
#: The same for well-formed frames, of which each is answered.
HOSTILE_PER_CONNECTION = 250


@dataclass
class Report:
    """What came of a run."""

    frames: int = 0
    hostile: int = 0
    connections: int = 0
    answers: int = 0
    closings: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    master_calls: int = 0
    memory_before: dict[str, int] = field(default_factory=dict)
    memory_after: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: where conversations go that broke the promise, and the ids of the masters' state that are in them
    keep: Path | None = None
    states: tuple[StateId, StateId] = (StateId(0), StateId(0))

    def problem(self, text: str, sent: bytes) -> None:
        """Note it, and keep what was sent."""
        if self.keep is not None:
            text += f" ({keep(self.keep, sent, self.states)})"
        self.problems.append(text)

    def __str__(self) -> str:
        grown = {name: (self.memory_after[name] - before) // 1024 for name, before in self.memory_before.items()}
        return (
            f"{self.frames} mutated and {self.hostile} hostile frames on {self.connections} connections in "
            f"{self.seconds:.0f} s: {self.answers} answers, "
            f"{self.closings} closings, statuses {dict(sorted(self.statuses.items()))}; {self.master_calls} calls and "
            f"connections to other ports; memory grew by {grown} KiB; {len(self.problems)} problems"
        )


async def fuzz(frames: int, hostile: int, calls: int, seed: int, directory: Path, keep: Path | None = None) -> Report:
    """Start a cluster, fuzz it, and say what happened."""
    report = Report(keep=keep)
    with local_cluster(masters=1, workers=1, dir=directory) as cluster:
        pids = {server.name: server.pid for server in cluster.servers}
        sealed, pushed = await _prepare(cluster)
        report.states = sealed.key.shuffle.state, pushed.state
        sender = Hostile(seed, [sealed.key], [pushed])
        mutator = Mutator(seed, _cluster_id(cluster), sealed.key.shuffle, sealed)
        await _fuzz_worker(mutator, cluster, max(frames // 20, 50), Report())  # fills caches and pools once
        await _fuzz_hostile(sender, cluster, max(hostile // 20, 250), Report())
        await _replay(cluster, report)
        await fuzz_ports(mutator.chance, cluster, max(calls // 20, 4), report.problems)
        report.memory_before = _memory(pids)
        began = time.monotonic()
        await _fuzz_worker(mutator, cluster, frames, report)
        await _fuzz_hostile(sender, cluster, hostile, report)
        report.master_calls = await fuzz_ports(mutator.chance, cluster, calls, report.problems)
        report.seconds = time.monotonic() - began
        await _check_unharmed(cluster, sealed, pids, report)
    return report


def _cluster_id(cluster: LocalCluster) -> str:
    return (cluster.directory / "cluster").read_text()


def _memory(pids: dict[str, int]) -> dict[str, int]:
    """Anonymous memory of each process in bytes."""
    return {name: psutil.Process(pid).memory_full_info().uss for name, pid in pids.items()}


async def _prepare(cluster: LocalCluster) -> tuple[MapContent, ShuffleKey]:
    """A shuffle that the masters know, with one sealed file, and one that is pushed to."""
    async with ControlClient(cluster.endpoints) as control:
        application = pb.RegisterApplicationRequest(instance=INSTANCE, name="fuzz", holder=bytes(16))
        await control.call("Shuffles/RegisterApplication", application)
        states = []
        for number, kind in ((1, pb.PARTITION_KIND_MAP), (2, pb.PARTITION_KIND_REDUCE)):
            key = pb.ShuffleKey(instance=INSTANCE, shuffle=number, generation=0)
            shuffle = pb.RegisterShuffleRequest(key=key, kind=kind, partitions=8, maps=4, holder=bytes(16))
            states.append((await control.call("Shuffles/RegisterShuffle", shuffle)).state)
    content = make_content(file_key(shuffle_key(INSTANCE, 1, states[0])))
    client = await _connect(cluster)
    await write_file(client, content)
    client.abort()
    return content, shuffle_key(INSTANCE, 2, states[1])


async def _connect(cluster: LocalCluster) -> FrameClient:
    host, port = cluster.workers[0].address.split(":")
    hello = Hello(cluster_id=_cluster_id(cluster))
    return await FrameClient.connect(host, int(port), hello, BufferPool(64 * MIB))


async def _fuzz_worker(mutator: Mutator, cluster: LocalCluster, frames: int, report: Report) -> None:
    host, port = cluster.workers[0].address.split(":")

    async def keep_talking() -> None:
        while report.frames < frames:
            report.frames += FRAMES_PER_CONNECTION
            report.connections += 1
            if mutator.chance.random() < 0.5:
                await _converse(host, int(port), mutator.conversation(FRAMES_PER_CONNECTION), report=report)
            else:
                await _converse(host, int(port), *mutator.opened(), report=report)

    await asyncio.gather(*(keep_talking() for _ in range(CONNECTIONS_AT_ONCE)))


async def _fuzz_hostile(hostile: Hostile, cluster: LocalCluster, frames: int, report: Report) -> None:
    host, port = cluster.workers[0].address.split(":")
    cluster_id = _cluster_id(cluster)

    async def keep_talking() -> None:
        while report.hostile < frames:
            report.hostile += HOSTILE_PER_CONNECTION
            report.connections += 1
            await _converse(host, int(port), hostile.conversation(cluster_id, HOSTILE_PER_CONNECTION), report=report)

    await asyncio.gather(*(keep_talking() for _ in range(CONNECTIONS_AT_ONCE)))


async def _replay(cluster: LocalCluster, report: Report) -> None:
    """Tell again what broke the promise once."""
    host, port = cluster.workers[0].address.split(":")
    hello = encode_frame(FrameType.HELLO, 1, Hello(cluster_id=_cluster_id(cluster)).encode())
    for kept in sorted(CORPUS.glob("*.frames")):
        await _converse(host, int(port), hello + repeated(kept, report.states), report=report)


async def _converse(
    host: str, port: int, sent: bytes, follow: Callable[[int], bytes] | None = None, *, report: Report
) -> None:
    """Send a conversation, say that nothing follows, and judge everything that comes back.

    `follow` makes what comes after the answer to a MAP_OPEN, from its handle.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            received = b""
            if follow is not None:
                received = await _read_answers(reader, 2)
                writer.write(follow(int.from_bytes(received[-4:], "little")))
            writer.write_eof()
            received += await _read_all(reader)
            writer.close()
    except TimeoutError:
        report.problem(f"no end within {ANSWER_SECONDS_MAX} s after {sent[:200].hex()}…", sent)
    except OSError as error:
        report.problem(f"could not converse: {error}", sent)
    else:
        _judge(sent, received, report)


async def _read_answers(reader: asyncio.StreamReader, count: int) -> bytes:
    """The first answers of a conversation, which are not spoilt."""
    received = b""
    for _ in range(count):
        raw = await reader.readexactly(HEADER_BYTES)
        received += raw + await reader.readexactly(decode_header(raw).meta_bytes)
    return received


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end; a reset is an end too."""
    received = b""
    try:
        while piece := await reader.read(1 << 20):
            received += piece
    except ConnectionError:
        pass  # the other side was done with us before it had read everything
    return received


def _judge(sent: bytes, received: bytes, report: Report) -> None:
    """All that came back must be frames with checksums and statuses as they should be; only the last may be cut."""
    offset = 0
    while offset + HEADER_BYTES <= len(received):
        try:
            header = decode_header(received, offset)
            status = Status(header.status)
        except Exception as error:  # noqa: BLE001 - whatever is raised is a problem to be reported
            report.problem(f"bad answer: {error}", sent)
            return
        end = offset + HEADER_BYTES + header.meta_bytes
        if end > len(received):
            return
        meta = received[offset + HEADER_BYTES : end]
        if crc32c(meta, crc32c(received[offset : offset + 28])) != header.crc:
            report.problem(f"an answer with a wrong checksum: {header}", sent)
        if status == Status.INTERNAL:
            report.problem(f"INTERNAL: {meta.decode(errors='replace')}", sent)
        report.answers += 1
        report.closings += header.type == FrameType.CLOSING
        report.statuses[status.name] = report.statuses.get(status.name, 0) + 1
        offset = end + header.body_bytes


async def _check_unharmed(cluster: LocalCluster, sealed: MapContent, pids: dict[str, int], report: Report) -> None:
    """Same processes, flat memory, old data equal, new data possible, masters answer."""
    for server in cluster.servers:
        if not server.running or server.pid != pids[server.name]:
            report.problems.append(f"{server.name} did not survive: {server.log_tail()[-500:]}")
            return
        tracebacks = server.log.read_text(errors="replace").split("Traceback (most recent call last)")[1:]
        # The HTTP server logs what is not HTTP that way; it has answered 400.
        unforeseen = [text for text in tracebacks if "http_exceptions." not in text]
        report.problems += [f"{server.name} logged a traceback{text[:3_000]}" for text in unforeseen[:3]]
    report.memory_after = _memory(pids)
    for name, before in report.memory_before.items():
        if report.memory_after[name] - before > GROWTH_BYTES_MAX:
            report.problems.append(f"{name} grew from {before} to {report.memory_after[name]} bytes")
    client = await _connect(cluster)
    if await read_files(client, [sealed.key], 0, 8) != sealed.pieces(0, 8):
        report.problems.append("what was sealed before reads back different")
    new = make_content(file_key(sealed.key.shuffle, 1 << 30))
    await write_file(client, new)
    if await read_files(client, [new.key], 0, 8) != new.pieces(0, 8):
        report.problems.append("what is written now reads back different")
    client.abort()
    async with ControlClient(cluster.endpoints) as control:
        status = await control.call("Admin/Status", pb.StatusRequest())
        if status.shuffles != 2:
            report.problems.append(f"the master knows {status.shuffles} shuffles, not 2")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000, help="mutated frames to send to the worker")
    parser.add_argument("--hostile", type=int, default=1_000_000, help="well-formed frames with hostile values")
    parser.add_argument("--calls", type=int, default=100_000, help="calls to every other port")
    parser.add_argument("--keep", type=Path, default=CORPUS, help="where conversations go that break the promise")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as directory:
        work = fuzz(
            arguments.frames, arguments.hostile, arguments.calls, arguments.seed, Path(directory), arguments.keep
        )
        report = asyncio.run(work)
    print(report)
    for problem in report.problems[:20]:
        print(f"seed {arguments.seed}: {problem}", file=sys.stderr)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
