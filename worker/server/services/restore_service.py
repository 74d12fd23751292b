"""Acts on RESTORE: reads epochs that another worker has sealed, as a reader does, and keeps a copy of them.

Rules: only masters ask, for one thing at a time; meanwhile whoever asks is told BUSY. Each chunk is checked batch by
batch and written as it comes, no faster than the masters allow. What fails leaves nothing here, and is asked for again,
of this worker or another one: an answer is only ever what is sealed. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from holdfast.common.errors import CorruptError, HoldfastError, NoRoomError, ProtocolError, RetryError
from holdfast.common.formats.batch import HEADER_BYTES
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_messages import (
    ChunkFlag,
    ChunksData,
    ChunksOpen,
    ReplicaPlace,
    Restore,
    SealAnswer,
    SealedEpoch,
)
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey
from holdfast.common.limits import BATCH_BYTES_MAX, CHUNK_BYTES, FRAME_BODY_BYTES_MAX, MIB, READ_FRAME_BYTES
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.waiting import said
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.request import Request, refusal
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.tiers.arriving import Arrival

#: What may be on its way from the source.
CREDIT_BYTES = 4 * MIB
#: Frames of that: none has less than a batch, but for a few that say that the source is there.
_FRAMES_MAX = CREDIT_BYTES // HEADER_BYTES
#: A source that sends nothing for so long is given up.
SILENT_SECONDS = 20.0
_CONNECT_SECONDS = 5.0
#: A chunk holds whole batches, so it is longer by at most one.
_CHUNK_BYTES_MAX = CHUNK_BYTES + BATCH_BYTES_MAX

assert CREDIT_BYTES >= READ_FRAME_BYTES, "a frame fits the credit"


class _Sink:
    """What comes of the source, in order. Bounded by the credit, also where the source is not."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[ChunksData, bytes] | HoldfastError] = asyncio.Queue()
        #: what may come still
        self._credit = CREDIT_BYTES
        self._over = False

    def data(self, data: ChunksData, body: Body | None) -> None:
        """A frame of the stream."""
        piece = b"" if body is None else bytes(body.view)
        if body is not None:
            body.release()
        if self._over:
            return
        self._credit -= len(piece)
        if self._credit < 0 or self.came.qsize() >= _FRAMES_MAX:
            self._over = True
            self.failed(ProtocolError("the source sends more than it may"))
        else:
            self.came.put_nowait((data, piece))

    def allow(self, size: int) -> None:
        """So much more may come."""
        self._credit += size

    def failed(self, error: HoldfastError) -> None:
        """The stream, or the copying, is over."""
        self.came.put_nowait(error)


class RestorePace:
    """So many bytes a second. Pure; times are seconds."""

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self._rate, self._free_at = bytes_per_second, now

    def wait(self, size: int, now: float) -> float:
        """So much came; return how long to wait before more is asked for."""
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at - now


class RestoreService:
    """The copying of a worker. Loop thread only."""

    def __init__(self, context: WorkerContext, forgot: Callable[[ShuffleKey], bool]) -> None:
        """`forgot`: whether this start was told to delete a shuffle."""
        self._context = context
        self._store = context.store
        self._forgot = forgot
        self._pool = BufferPool(FRAME_BODY_BYTES_MAX)  # what is on its way is bounded by the credit
        #: what is being copied, and what comes of its source
        self._asked: Restore | None = None
        self._sink = _Sink()

    def restore(self, request: Request) -> None:
        """Take a RESTORE. Raises ProtocolError for a malformed one; all else is answered."""
        asked = Restore.decode(request.meta)
        if not self._context.standing.registered:
            raise RetryError("the masters have not accepted this start of the worker yet", status=Status.BUSY)
        if self._asked is not None:
            raise RetryError(f"copies of {self._asked.shuffle} are being made here", status=Status.BUSY)
        self._asked, self._sink = asked, _Sink()
        self._context.running.start(self._carry_out(asked, request), partial(self._broke, request))

    def forget(self, shuffle: ShuffleKey) -> None:
        """Copy nothing more of a shuffle."""
        if self._asked is not None and self._asked.shuffle == shuffle:
            self.stop(f"{shuffle} was dropped")

    def stop(self, reason: str) -> None:
        """Copy nothing more."""
        if self._asked is not None:
            self._sink.failed(RetryError(reason, status=Status.BUSY))

    def _broke(self, request: Request, error: BaseException) -> None:
        self._asked = None
        request.refuse(error)

    async def _carry_out(self, asked: Restore, request: Request) -> None:
        try:
            answers = await self._restored(asked)
        except (HoldfastError, OSError) as error:
            log_event(LogEvent.RESTORE_FAILED, shuffle=asked.shuffle, source=asked.source.worker, reason=error)
            request.refuse(error)
        else:
            request.reply(SealAnswer(answers).encode())
        finally:
            self._asked = None

    async def _restored(self, asked: Restore) -> list[SealedEpoch]:
        """What is sealed here of what was asked for, in that order."""
        known: dict[EpochKey, SealedEpoch] = {}
        wanted: list[tuple[EpochKey, int]] = []
        for partition, epoch, size in asked.epochs:
            key = EpochKey(asked.shuffle, PartitionId(partition), Epoch(epoch))
            found = self._store.reduce.kept(key)
            if found is None:
                wanted.append((key, size))
            else:
                known[key] = found
        if wanted:
            known |= await self._copied(asked, wanted)
        return [known[EpochKey(asked.shuffle, PartitionId(one), Epoch(epoch))] for one, epoch, _ in asked.epochs]

    async def _copied(self, asked: Restore, wanted: list[tuple[EpochKey, int]]) -> dict[EpochKey, SealedEpoch]:
        if self._forgot(asked.shuffle):
            raise RetryError(f"{asked.shuffle} was dropped", status=Status.BUSY)
        directory = self._store.tiering.choose(0, asked.ack)
        if directory is None:
            raise NoRoomError("no directory has room for copies", status=Status.DISK_FULL)
        source = await self._connect(asked.source)
        failure: Exception = RetryError("this worker is ending")
        arrival: Arrival | None = None
        try:
            arrival = self._store.reduce.arrive(directory, asked.ack, wanted)
            await self._copy(asked, [key for key, _ in wanted], source, arrival)
            await asyncio.wrap_future(arrival.finish())
        except (HoldfastError, OSError) as error:
            failure = refusal(error)
        finally:
            source.abort()
        if arrival is None:
            raise failure
        await asyncio.wrap_future(arrival.remove())
        answers = arrival.end(failure)
        if not answers:
            raise failure
        counters = self._context.counters
        counters.epochs_restored += len(answers)
        counters.restored_bytes += sum(answer.size_bytes for answer in answers.values())
        return answers

    async def _copy(self, asked: Restore, keys: list[EpochKey], source: FrameClient, arrival: Arrival) -> None:
        """Take every chunk of the source. Raises what ends it."""
        files: list[tuple[int, int, int]] = [(key.partition, key.epoch, 0) for key in keys]
        request = ChunksOpen(shuffle=asked.shuffle, credit_bytes=CREDIT_BYTES, files=files)
        stream = await source.open_chunks(request, self._sink)
        now = asyncio.get_running_loop().time
        pace = RestorePace(asked.bytes_per_second, now())
        chunk: list[bytes] = []
        size = 0
        while True:
            data, body = await self._next(asked.source)
            if body:
                chunk.append(body)
                size += len(body)
            if size > _CHUNK_BYTES_MAX:
                raise ProtocolError(f"{asked.source.address} sends a chunk of more than {_CHUNK_BYTES_MAX} bytes")
            if data.flags & ChunkFlag.END_OF_CHUNK:
                if data.file >= len(keys):
                    raise ProtocolError(f"{asked.source.address} sends file {data.file} of {len(keys)}")
                await asyncio.wrap_future(arrival.take(keys[data.file], memoryview(b"".join(chunk))))
                chunk, size = [], 0
            if data.flags & ChunkFlag.END:
                break
            if body:
                await asyncio.sleep(pace.wait(len(body), now()))
                self._sink.allow(len(body))
                stream.credit(len(body))
        if chunk:
            raise CorruptError(f"{asked.source.address} ended in the middle of a chunk")

    async def _next(self, source: ReplicaPlace) -> tuple[ChunksData, bytes]:
        """The next frame. Raises the error that ended the stream, or RetryError where none comes."""
        try:
            with said(f"the next bytes of {source.address}, to copy them"):
                async with asyncio.timeout(SILENT_SECONDS):
                    came = await self._sink.came.get()
        except TimeoutError:
            raise RetryError(f"{source.address} sent nothing for {SILENT_SECONDS:g} s") from None
        if isinstance(came, HoldfastError):
            raise came
        return came

    async def _connect(self, source: ReplicaPlace) -> FrameClient:
        """A connection to just that start of a worker. Raises HoldfastError."""
        host, _, port = source.address.rpartition(":")
        if not port.isdecimal():
            raise ProtocolError(f"{source.address!r} is not an address of a worker")
        hello = Hello(role=Role.WORKER, cluster_id=self._context.standing.cluster_id)
        security = self._context.standing.credentials
        credentials = None if security is None else security.only_for(source.address)
        client = await FrameClient.connect(
            host.strip("[]"), int(port), hello, self._pool, timeout_seconds=_CONNECT_SECONDS, credentials=credentials
        )
        found = client.hello
        if (found.worker, found.incarnation) != (source.worker, source.incarnation):
            client.abort()
            raise RetryError(f"at {source.address} answers another worker than {source.worker}, or another start of it")
        return client
