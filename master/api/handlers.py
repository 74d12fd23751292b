"""The one table of methods behind both gRPC and HTTP, with what is the same for every call: bounds, metrics, errors.

Rules: a handler returns its reply or raises; whatever it raises leaves here as a HoldfastError without a traceback,
since its frames hold the request; what was not foreseen leaves as INTERNAL, logged. Calls at once are bounded, bodies
and answers by their bytes (budgets.py); long polls have a bound of their own (waiters.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import Message

from holdfast.common.errors import HoldfastError, ProtocolError
from holdfast.common.log_events import LogEvent
from holdfast.common.net.methods import METHODS, Method
from holdfast.common.security.tokens import Bearer
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.master.api import proto_bodies
from holdfast.master.api.access import CALLER, HOST, check_call, check_method
from holdfast.master.api.budgets import BudgetOwner, Budgets
from holdfast.master.observe.metrics import Metrics

_LONG_POLLS = frozenset({"Shuffles/GetManifest"})

Handler = Callable[[Any], Awaitable[Message]]


class Handlers:
    """Answers calls by method."""

    def __init__(self, services: dict[str, object], metrics: Metrics, budgets: Budgets) -> None:
        """`services` gives the object whose methods serve each service, by its name in holdfast.proto."""
        self._handlers: dict[str, Handler] = {
            name: getattr(services[name.partition("/")[0]], _snake(name.partition("/")[2])) for name in METHODS
        }
        self._metrics = metrics
        self.budgets = budgets

    def admit(self, method: Method, caller: Bearer | None) -> None:
        """Before the request is read: raise ForbiddenError for whom this method is not for, whatever is asked."""
        try:
            check_method(caller, method.name)
        except HoldfastError as error:
            self._metrics.answered(method.name, error.status, 0.0)
            raise

    def parse(self, method: Method, body: bytes | bytearray) -> Message:
        """Return the request that came as protobuf bytes. Raises ProtocolError."""
        try:
            return proto_bodies.read(method, body)
        except ProtocolError as error:
            self._metrics.answered(method.name, error.status, 0.0)
            raise

    async def call(self, method: Method, request: Message, caller: Bearer | None, asker: BudgetOwner) -> Message:
        """Answer a call of this caller (None: there is no security) from the share of `asker`; raises HoldfastError and
        nothing else."""
        started = time.perf_counter()
        status = Status.OK
        CALLER.set(caller)
        HOST.set(_address(asker.host))
        try:
            check_call(caller, method.name, request)
            with self.budgets.call(asker) as budget_room:
                budget_room.take(0 if method.name in _LONG_POLLS else 1)
                return await self._handlers[method.name](request)
        except HoldfastError as error:
            status = error.status
            raise without_frames(error) from None
        except Exception as error:  # noqa: BLE001 - any error is logged, and the caller gets one
            status = Status.INTERNAL
            log_event(LogEvent.CALL_INTERNAL_ERROR, method=method.name, trace=error)
            raise HoldfastError(f"{type(error).__name__}: {error}") from None
        finally:
            self._metrics.answered(method.name, status, time.perf_counter() - started)


def without_frames(error: HoldfastError) -> HoldfastError:
    """Return the same error without traceback, cause and context: frames hold requests, and where one of them holds the
    error, too, that cycle is not collected for hours."""
    return error.reworded(str(error))


def _address(host: str) -> str:
    """The address alone, whichever door the call came through."""
    return unquote(host).removeprefix("ipv4:").removeprefix("ipv6:").strip("[]")


def _snake(name: str) -> str:
    """RegisterShuffle -> register_shuffle."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
