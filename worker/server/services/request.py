"""A request of the data port, and what it is refused with, whatever was raised while it was carried out.

Rules: an error of ours stays what it is; one of the disk is DISK_FAILED, which names no data as lost; all others are
mistakes of ours, which are logged with their trace and answered as INTERNAL. Made by data_server.py for the services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from holdfast.common.errors import HoldfastError, RerouteError
from holdfast.common.formats.frame import FrameHeader
from holdfast.common.formats.messages import Role
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background
from holdfast.worker.server.observe.counters import Counters


class Request(NamedTuple):
    """Who asked what; it is answered once."""

    connection: ServerConnection
    header: FrameHeader
    meta: bytes
    counters: Counters
    #: in which the connection greeted
    role: Role = Role.CLIENT
    #: to be released by who takes the request
    body: Body | None = None

    def reply(self, meta: bytes = b"") -> None:
        self.connection.reply(self.header, meta)

    def refuse(self, error: BaseException) -> None:
        """Answer with what was raised."""
        reason = refusal(error)
        self.counters.refused(reason.status)
        self.connection.refuse(self.header, reason)

    def owner_of(self, instance: bytes) -> tuple[bytes, ...]:
        return self.connection.owner_of(instance)


def refusal(error: BaseException) -> HoldfastError:
    """The error that is answered."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, OSError):
        return RerouteError(f"the disk failed: {error}", status=Status.DISK_FAILED)
    if isinstance(error, asyncio.CancelledError):
        return HoldfastError("this worker is ending")
    log_event(LogEvent.REQUEST_INTERNAL_ERROR, trace=error)
    return HoldfastError(f"{type(error).__name__}: {error}")


class Running:
    """What is carried out in tasks, and waited for at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None] | None = None) -> None:
        """Carry it out; `failed` hears of what it does not catch."""
        task = background(work, failed)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def in_parts(*parts: Callable[[], object]) -> None:
    """Do what is done beside requests, such as every second: a part that fails is logged, and keeps no other from
    being done."""
    for part in parts:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged, and the others are to be done
            log_event(LogEvent.TICK_INTERNAL_ERROR, trace=error)
