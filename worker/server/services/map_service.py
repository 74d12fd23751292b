"""Acts on MAP_OPEN, MAP_PUSH, MAP_SEAL and MAP_ABORT: what write/map_files.py decides, storage does, and this answers.

Rules: appends run on the loop thread (they end in the page cache), syncs and seals in storage's threads. A request is
answered once, when what it asked for is as safe as it says. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar, assert_never

from holdfast.common.errors import HoldfastError, error_for
from holdfast.common.formats.frame import FrameHeader
from holdfast.common.formats.messages import Ack, MapAbort, MapOpen, MapOpened, MapPush, MapSeal, MapSealed
from holdfast.common.ids import Incarnation, MapFileKey, ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.system.log import log_event
from holdfast.worker.core.write.map_files import (
    OPEN_FILES_MAX,
    AbortAsked,
    Accepting,
    Began,
    Broke,
    ConnectionLost,
    Create,
    Done,
    Drop,
    Effect,
    MapFiles,
    NotCreated,
    OpenAsked,
    PushAsked,
    Refuse,
    SealAsked,
    SealEnded,
    SealFile,
    SetDraining,
    ShuffleForgotten,
    Tick,
    WriteBody,
)
from holdfast.worker.server.membership.asking import Asking
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.refusal import refusal, refusal_of
from holdfast.worker.storage.store import MapFileWriter, Store

T = TypeVar("T")


class Request(NamedTuple):
    """The ticket of a request: who asked what."""

    connection: ServerConnection
    header: FrameHeader


class MapService:
    """All writing of MAP files. Loop thread only."""

    def __init__(
        self,
        store: Store,
        standing: WorkerIdentity,
        counters: Counters,
        faults: Faults,
        asking: Asking,
        files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self._store = store
        self._asking = asking
        self._counters = counters
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._writers: dict[MapFileKey, MapFileWriter] = {}
        self._no_seals = asyncio.Event()
        self._no_seals.set()
        self.files = MapFiles(standing.incarnation, most=files_max)

    # Requests.

    def open(self, request: Request, meta: bytes) -> None:
        """Take a MAP_OPEN. Nothing is made for a shuffle before the masters have said that they have it."""
        message = MapOpen.decode(meta)
        shuffle = message.file.shuffle
        if self._asking.knows(shuffle) or not self.files.accepting.yes:
            self._open(request, message)
        else:
            connection, then = request.connection, partial(self._open_or_refuse, request, message)
            self._asking.ask(shuffle, connection.number, connection.owner_of(shuffle.instance), then)

    def _open(self, request: Request, message: MapOpen) -> None:
        share = request.connection.owner_of(message.file.shuffle.instance)
        self._act(self.files.step(OpenAsked(request.connection.number, request, message, share)))

    def _open_or_refuse(self, request: Request, message: MapOpen, reason: HoldfastError | None) -> None:
        """The masters have said whether they have the shuffle, or did not in time."""
        if reason is not None:
            self._refuse(request, reason)
        elif not request.connection.closed:
            self._open(request, message)

    def push(self, request: Request, meta: bytes, body: Body | None) -> None:
        """Take a MAP_PUSH; releases the body."""
        try:
            message = MapPush.decode(meta)
            (effect,) = self.files.step(PushAsked(request.connection.number, request, message.handle))
            if isinstance(effect, WriteBody):
                self._append(effect, request, message, body.view if body is not None else memoryview(b""))
            else:
                self._act([effect])
        finally:
            if body is not None:
                body.release()

    def seal(self, request: Request, meta: bytes) -> None:
        """Take a MAP_SEAL."""
        message = MapSeal.decode(meta)
        share = request.connection.owner_of(message.file.shuffle.instance)
        self._act(self.files.step(SealAsked(request, message.file, message.totals, share)))

    def abort(self, request: Request, meta: bytes) -> None:
        """Take a MAP_ABORT."""
        self._act(self.files.step(AbortAsked(request, MapAbort.decode(meta).file)))

    # What happens around them.

    def lost(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self._act(self.files.step(ConnectionLost(connection.number, time.monotonic_ns())))

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        self._act(self.files.step(Tick(now_ns)))

    def forget(self, shuffle: ShuffleKey) -> None:
        """The masters do not know a shuffle: close its unsealed files and take no new ones."""
        self._act(self.files.step(ShuffleForgotten(shuffle)))

    def begin(self, incarnation: Incarnation) -> None:
        """This worker has a new incarnation."""
        self._act(self.files.step(Began(incarnation)))

    def accept(self, yes: bool, reason: str = "") -> None:
        """Take new files, or refuse them."""
        self._act(self.files.step(Accepting(yes, reason)))

    def drain(self, yes: bool) -> None:
        """Send new files to other workers, or take them again."""
        self._act(self.files.step(SetDraining(yes)))

    async def wait_for_seals(self) -> None:
        """Return when no seal is on its way to the disk."""
        await self._no_seals.wait()

    # Effects.

    def _act(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Create():
                    self._create(effect)
                case SealFile():
                    self._seal(effect)
                case Drop():
                    self._counters.files_dropped += 1
                    self._drop(effect.file)
                case Done():
                    _request(effect.ticket).connection.reply(_request(effect.ticket).header)
                case Refuse():
                    self._refuse(_request(effect.ticket), error_for(effect.status, effect.reason))
                case WriteBody():
                    raise AssertionError("an Append needs the body; push() does it")
                case _:
                    assert_never(effect)

    def _create(self, effect: Create) -> None:
        request = _request(effect.ticket)
        try:
            self._writers[effect.file] = self._store.begin(effect.file, effect.partitions, effect.ack)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            self._act(self.files.step(NotCreated(effect.file)))
            self._refuse(request, refusal(error))
        else:
            self._counters.files_opened += 1
            request.connection.reply(request.header, MapOpened(effect.handle).encode())

    def _append(self, effect: WriteBody, request: Request, message: MapPush, body: memoryview) -> None:
        writer = self._writers[effect.file]
        try:
            writer.append(message.region, message.flags, message.runs, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            refused = refusal(error)
            self._broke(effect.file, refused)
            self._refuse(request, refused)
            return
        self._counters.push_frames += 1
        self._counters.push_bytes += len(body)
        if effect.ack == Ack.SYNCED:
            self._when_done(self._future_of(lambda: self._store.sync(writer)), effect.file, request)
        else:
            self._after(self._faults.wait_for(len(body)), lambda: request.connection.reply(request.header))

    def _when_done(self, sync: asyncio.Future[None], file: MapFileKey, request: Request) -> None:
        """Answer a push once it is synced."""

        def done(future: asyncio.Future[None]) -> None:
            error = refusal_of(future)
            if error is None:
                request.connection.reply(request.header)
            else:
                self._broke(file, error)
                self._refuse(request, error)

        sync.add_done_callback(done)

    def _seal(self, effect: SealFile) -> None:
        request = _request(effect.ticket)
        began = time.monotonic_ns()
        known = self._writers.pop(effect.file, None) is not None
        self._no_seals.clear()

        def done(future: asyncio.Future[MapSealed]) -> None:
            error = refusal_of(future)
            if error is not None:
                self._broke(effect.file, error)
            self._act(self.files.step(SealEnded(effect.file, error is None, effect.share)))
            if not self.files.seals:
                self._no_seals.set()
            if error is not None:
                self._refuse(request, error)
                return
            answer = future.result()
            if known:
                self._counters.seals += 1
                self._counters.seal_microseconds += (time.monotonic_ns() - began) // 1_000
                self._counters.files_sealed += 1
                self._counters.sealed_bytes += answer.totals.size_bytes
            request.connection.reply(request.header, answer.encode())

        def start() -> None:
            sealing = self._future_of(lambda: self._store.seal(effect.file, effect.totals))
            sealing.add_done_callback(done)

        self._after(self._faults.wait_for(0), start)

    def _future_of(self, ask: Callable[[], concurrent.futures.Future[T]]) -> asyncio.Future[T]:
        """What storage promises, on this loop; whatever it raises at once is a failed promise too."""
        try:
            return asyncio.wrap_future(ask())
        except Exception as error:  # noqa: BLE001 - it is answered
            failed: asyncio.Future[T] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _broke(self, file: MapFileKey, error: HoldfastError) -> None:
        if file in self._writers:
            self._drop(file)
        self._act(self.files.step(Broke(file, error.status)))

    def _drop(self, file: MapFileKey) -> None:
        """Take an unsealed file off the disk, now or, where the disk does not let go of it, with its shuffle."""
        self._writers.pop(file, None)
        try:
            self._store.abort(file)
        except HoldfastError as error:
            log_event(LogEvent.MAP_FILE_NOT_REMOVED, file=file, reason=error)

    def _refuse(self, request: Request, error: HoldfastError) -> None:
        self._counters.refused(error.status)
        request.connection.refuse(request.header, error)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        """Act at once, or later if a fault says that the disk is slow."""
        if seconds:
            self._loop.call_later(seconds, act)
        else:
            act()


def _request(ticket: object) -> Request:
    assert isinstance(ticket, Request)
    return ticket
