"""Acts on MAP_OPEN, MAP_PUSH, MAP_SEAL and MAP_ABORT: what write/map_files.py decides, storage does, and this answers.

Rules: appends run on the loop thread (they end in the page cache), syncs and seals in storage's threads. A request is
answered once, when what it asked for is as safe as it says. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial

from holdfast.common.errors import HoldfastError, error_for
from holdfast.common.formats.messages import Ack, MapAbort, MapOpen, MapOpened, MapPush, MapSeal, MapSealed
from holdfast.common.ids import MapFileKey
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.worker.core.write.map_files import MapFiles, OpenMapFile, ShareOwner
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.request import Request, refusal
from holdfast.worker.storage.store import MapFileWriter


class MapService:
    """All writing of MAP files. Loop thread only."""

    def __init__(self, context: WorkerContext) -> None:
        self._store = context.store
        self._asking = context.asking
        self._counters = context.counters
        self._faults = context.faults
        self._writers: dict[MapFileKey, MapFileWriter] = {}
        self._running = context.running
        self.files = MapFiles(context.standing.incarnation, most=context.bounds.descriptors.written)

    # Requests.

    def open(self, request: Request) -> None:
        """Take a MAP_OPEN. Nothing is made for a shuffle before the masters have said that they have it."""
        message = MapOpen.decode(request.meta)
        shuffle = message.file.shuffle
        if self._asking.knows(shuffle) or self.files.closed_because:
            self._open(request, message, None)
        else:
            owner = request.owner_of(shuffle.instance)
            self._asking.ask(shuffle, request.connection.number, owner, partial(self._open, request, message))

    def _open(self, request: Request, message: MapOpen, reason: HoldfastError | None) -> None:
        """`reason`: the masters do not have the shuffle, or did not say in time."""
        if reason is not None:
            request.refuse(reason)
        elif not request.connection.closed:
            try:
                share = request.owner_of(message.file.shuffle.instance)
                file = self.files.open(request.connection.number, message, share)
                self._create(file, message.partitions)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
                request.refuse(error)
            else:
                self._counters.files_opened += 1
                request.reply(MapOpened(file.handle).encode())

    def _create(self, file: OpenMapFile, partitions: int) -> None:
        try:
            self._writers[file.key] = self._store.begin(file.key, partitions, file.ack)
        except Exception:
            self.files.not_created(file)
            raise

    def push(self, request: Request) -> None:
        """Take a MAP_PUSH; releases the body."""
        body = request.body
        try:
            message = MapPush.decode(request.meta)
            file = self.files.pushed(request.connection.number, message.handle)
            self._append(file, request, message, body.view if body is not None else memoryview(b""))
        finally:
            if body is not None:
                body.release()

    def _append(self, file: OpenMapFile, request: Request, message: MapPush, body: memoryview) -> None:
        """Check and write the body, answer once it is as safe as the file's level says."""
        writer = self._writers[file.key]
        try:
            writer.append(message.region, message.flags, message.runs, body)
            self._counters.push_frames += 1
            self._counters.push_bytes += len(body)
            waits: asyncio.Future[None] | float
            if file.ack is Ack.SYNCED:
                waits = asyncio.wrap_future(self._store.sync(writer))
            else:
                waits = self._faults.wait_for(len(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            self._broke(file.key, request, error)
            return
        if waits:
            self._running.start(self._acknowledge(file.key, request, waits), request.refuse)
        else:
            request.reply()

    async def _acknowledge(self, file: MapFileKey, request: Request, waits: asyncio.Future[None] | float) -> None:
        """Answer a push when the disk has it, or after the seconds that a fault says."""
        try:
            await (asyncio.sleep(waits) if isinstance(waits, float) else waits)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is answered
            self._broke(file, request, error)
        else:
            request.reply()

    def seal(self, request: Request) -> None:
        message, began_ns = MapSeal.decode(request.meta), time.monotonic_ns()
        file, share = message.file, request.owner_of(message.file.shuffle.instance)
        self.files.seal(file, share)
        if self._writers.pop(file, None) is None:
            began_ns = 0  # only its answer is repeated
        try:
            sealing = asyncio.wrap_future(self._store.seal(file, message.totals))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            self._seal_failed(file, share, request, error)
        else:
            self._running.start(self._sealed(file, share, request, began_ns, sealing), request.refuse)

    async def _sealed(
        self, file: MapFileKey, share: ShareOwner, request: Request, began_ns: int, sealing: asyncio.Future[MapSealed]
    ) -> None:
        """Answer a seal when it has ended."""
        try:
            answer = await sealing
            if slow := self._faults.wait_for(0):
                await asyncio.sleep(slow)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is answered
            self._seal_failed(file, share, request, error)
            return
        self.files.seal_ended(file, share, sealed=True)
        if self.files.forgot(file.shuffle):  # dropped meanwhile, with what was sealed
            request.refuse(error_for(Status.UNKNOWN_SHUFFLE, f"the masters have forgotten {file.shuffle}"))
            return
        if began_ns:
            self._counters.seals += 1
            self._counters.seal_microseconds += (time.monotonic_ns() - began_ns) // 1_000
            self._counters.files_sealed += 1
            self._counters.sealed_bytes += answer.totals.size_bytes
        request.reply(answer.encode())

    def _seal_failed(self, file: MapFileKey, share: ShareOwner, request: Request, error: BaseException) -> None:
        self._broke(file, request, error)
        self.files.seal_ended(file, share, sealed=False)

    def abort(self, request: Request) -> None:
        self.drop(self.files.abort(MapAbort.decode(request.meta).file))
        request.reply()

    # What happens around them.

    def drop(self, files: Iterable[MapFileKey]) -> None:
        """Take unsealed files off the disk that the core has let go of."""
        for file in files:
            self._counters.files_dropped += 1
            self._remove(file)

    def _remove(self, file: MapFileKey) -> None:
        """Take an unsealed file off the disk, now or, where the disk does not let go of it, with its shuffle."""
        self._writers.pop(file, None)
        try:
            self._store.abort(file)
        except HoldfastError as error:
            log_event(LogEvent.MAP_FILE_NOT_REMOVED, file=file, reason=error)

    def _broke(self, file: MapFileKey, request: Request, error: BaseException) -> None:
        if file in self._writers:
            self._remove(file)
        reason = refusal(error)
        self.files.broke(file, reason.status)
        request.refuse(reason)
