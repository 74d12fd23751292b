"""The one table of methods behind both gRPC and HTTP, with what is the same for every call: bounds, metrics, errors.

Rules: a handler returns its reply or raises; whatever it raises leaves here as a HoldfastError, and what was not
foreseen as INTERNAL, logged. Calls at once are bounded; long polls have a bound of their own (waiters.py).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, Status
from holdfast.common.net.methods import METHODS, Method
from holdfast.common.security.tokens import Identity
from holdfast.master.service.access import CALLER, check_call, check_method
from holdfast.master.service.metrics import Metrics

log = logging.getLogger(__name__)

#: Calls under way at once, long polls not counted.
CALLS_MAX = 2_048
_LONG_POLLS = frozenset({"Shuffles/GetManifest"})

Handler = Callable[[Any], Awaitable[Message]]


class Handlers:
    """Answers calls by method."""

    def __init__(self, services: dict[str, object], metrics: Metrics) -> None:
        """`services` gives the object whose methods serve each service, by its name in holdfast.proto."""
        self._handlers: dict[str, Handler] = {
            name: getattr(services[name.partition("/")[0]], _snake(name.partition("/")[2])) for name in METHODS
        }
        self._metrics = metrics
        self.under_way = 0

    def admit(self, method: Method, caller: Identity | None) -> None:
        """Before the request is read: raise ForbiddenError for whom this method is not for, whatever is asked."""
        try:
            check_method(caller, method.name)
        except HoldfastError as error:
            self._metrics.answered(method.name, error.status, 0.0)
            raise

    async def call_bytes(self, method: Method, data: bytes, caller: Identity | None) -> bytes:
        """Answer a call that came as protobuf bytes; as `call`."""
        request = method.request()
        try:
            request.ParseFromString(data)
        except DecodeError as error:
            self._metrics.answered(method.name, Status.BAD_REQUEST, 0.0)
            raise ProtocolError(
                f"the body is no {request.DESCRIPTOR.name}: {error}", status=Status.BAD_REQUEST
            ) from error
        return (await self.call(method, request, caller)).SerializeToString()

    async def call(self, method: Method, request: Message, caller: Identity | None) -> Message:
        """Answer a call of this caller (None: there is no security); raises HoldfastError and nothing else."""
        started = time.perf_counter()
        status = Status.OK
        counted = method.name not in _LONG_POLLS
        CALLER.set(caller)
        try:
            check_call(caller, method.name, request)
            if counted:
                if self.under_way >= CALLS_MAX:
                    raise RetryError(f"{CALLS_MAX} calls are under way on this master; try again", status=Status.BUSY)
                self.under_way += 1
            try:
                return await self._handlers[method.name](request)
            finally:
                if counted:
                    self.under_way -= 1
        except HoldfastError as error:
            status = error.status
            raise
        except Exception as error:
            status = Status.INTERNAL
            log.exception("a call failed in a way that was not foreseen", extra={"method": method.name})
            raise HoldfastError(f"{type(error).__name__}: {error}") from error
        finally:
            self._metrics.answered(method.name, status, time.perf_counter() - started)


def _snake(name: str) -> str:
    """RegisterShuffle -> register_shuffle."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
