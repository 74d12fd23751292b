"""The pushes of one connection: room under the worker's credit, and requests that take it.

Rules: on the loop; carries out what write/credit.py decides. One line per connection, shared by all attempts of the
process. Called by peers.py and push_writer.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.client.compress import Buffer
from holdfast.client.core.write.credit import AskWorker, CreditLine, Effect
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.reduce_messages import (
    IncompleteCopy,
    Push,
    PushAnswer,
    PushCredit,
    PushSettle,
    PushSettled,
)
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.statuses import MEANINGS, PushDisposition, Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background

#: A worker that acknowledges nothing for so long is as good as lost (stopped, or its disk hangs).
ACK_SECONDS = 30.0
#: A worker whose replicas have not answered by then does not say what became of them: a forward takes 10 s at most.
SETTLE_SECONDS = 20.0
#: Who waits for room asks so often whether the worker lives: it may have nothing to give for long.
PING_SECONDS = 10.0
#: A living worker that has no room for so long has a disk that hangs, or worse.
ROOM_WAIT_SECONDS = 600.0
#: Pings after which a wait for room is logged again.
SAY_PINGS = 6


class PushLine:
    """WorkerLink has one."""

    def __init__(self, client: FrameClient) -> None:
        self._client = client
        self._core = CreditLine()
        self._next = 0
        self._waiting: dict[int, asyncio.Future[int]] = {}

    async def wait_for_room(self, least: int, most: int) -> int:
        """Wait for room for `least` to `most` bytes; give it to `push` or back to `returned`.

        Raises RetryError if the connection is lost, the worker does not answer, or has no room for very long.
        """
        who = self._next
        self._next += 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[who] = future
        self._do(self._core.want(who, least, most))
        try:
            for pings in range(int(ROOM_WAIT_SECONDS / PING_SECONDS)):
                await asyncio.wait((future,), timeout=PING_SECONDS)
                if future.done():
                    break
                if pings % SAY_PINGS == 0:
                    seconds = int((pings + 1) * PING_SECONDS)
                    log_event(LogEvent.PUSH_WAITING, peer=self._client.peer, seconds=seconds)
                await self._ping()
            if not future.done():
                text = f"{self._client.peer} has no room for a push since {ROOM_WAIT_SECONDS:.0f} s"
                raise RetryError(text, status=Status.OUTCOME_UNKNOWN)
            return future.result()
        except BaseException:
            if self._waiting.pop(who, None) is None and not future.cancelled() and future.exception() is None:
                self.returned(future.result())
            self._do(self._core.left(who))
            raise

    def returned(self, size: int) -> None:
        """Room that is not used."""
        self._do(self._core.returned(size))

    async def push(self, push: Push, size: int, body: list[Buffer]) -> PushAnswer:
        """Push within room that was given; raises the error of the answer's status.

        RetryError means that the outcome is unknown: UNAVAILABLE if the connection was lost, OUTCOME_UNKNOWN if
        no answer came for ACK_SECONDS.
        """
        window: int | None = None
        try:
            async with asyncio.timeout(ACK_SECONDS):
                reply = await self._client.request(FrameType.PUSH, push.encode(), *body)
            answer = PushAnswer.decode(reply.meta)
            window = answer.credit_bytes
            return answer
        except TimeoutError:
            text = f"no acknowledgement within {ACK_SECONDS:.0f} s"
            raise RetryError(text, status=Status.OUTCOME_UNKNOWN) from None
        except HoldfastError as error:
            if MEANINGS[error.status].push is PushDisposition.AGAIN:
                window = 0
            raise
        finally:
            self._do(self._core.answered(size, window))

    async def settle(self, settle: PushSettle) -> list[IncompleteCopy]:
        """Ask which copies are incomplete. Raises RetryError where that is not known."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                reply = await self._client.request(FrameType.PUSH_SETTLE, settle.encode())
        except TimeoutError:
            text = f"{self._client.peer} does not say within {SETTLE_SECONDS:.0f} s what its replicas have"
            raise RetryError(text, status=Status.OUTCOME_UNKNOWN) from None
        return PushSettled.decode(reply.meta).incomplete

    async def _ping(self) -> None:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._client.request(FrameType.PING)
        except TimeoutError:
            text = f"{self._client.peer} answers nothing for {PING_SECONDS:.0f} s"
            raise RetryError(text, status=Status.OUTCOME_UNKNOWN) from None

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AskWorker):
                background(self._ask(effect.size), self._ask_failed)
            elif (future := self._waiting.pop(effect.who, None)) is not None and not future.done():
                future.set_result(effect.size)

    async def _ask(self, size: int) -> None:
        try:
            reply = await self._client.request(FrameType.PUSH_CREDIT, PushCredit(size).encode())
            granted = PushCredit.decode(reply.meta).size_bytes
        except HoldfastError as error:
            self._ask_failed(error)
            return
        self._do(self._core.granted(granted))

    def _ask_failed(self, error: BaseException) -> None:
        """Nothing was granted, whatever the reason: end the wait of every attempt in the queue."""
        reason = error if isinstance(error, HoldfastError) else RetryError(str(error), status=Status.OUTCOME_UNKNOWN)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(reason.reworded(str(reason)))
        self._core.ask_failed()


class WorkerLink(FrameClient):
    """A connection to a worker, with the queue of attempts that push over it."""

    def __init__(self, *how: Any, **more: Any) -> None:
        super().__init__(*how, **more)
        self.line = PushLine(self)
