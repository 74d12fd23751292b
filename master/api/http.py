"""The HTTP side of a master: Connect unary calls with JSON or protobuf bodies, /healthz, /readyz, /metrics,
/support.tar.gz, the page at / and those of shuffles, applications, hosts and workers (web/view.py).

POST /holdfast.v1.Service/Method with Content-Type application/json (proto3 JSON) or application/proto; the reply has
the same type. Errors: the HTTP status of statuses.py, headers Holdfast-Status and Holdfast-Leader, body {"code": …,
"message": …}. Every answer has the header Holdfast-Cluster, which shows clients that a master sent it.

Rules: the caller and its rights are known from the headers (http_server.py); then the body's room is taken
(api/budgets.py), and only then is it read. What is cut, late or refused is let go of at once. An answer has its room
until it was taken.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import Message

from holdfast.common.errors import HoldfastError
from holdfast.common.limits import KIB
from holdfast.common.net.http_server import HEALTH_PATH, OPEN_PATHS, READY_PATH, HttpLimits, HttpServer
from holdfast.common.net.methods import CLUSTER_KEY, METHODS, Method, quoted_cluster
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import SEES, Bearer, must_be
from holdfast.common.system.descriptors import MASTER_DOORS, connections_max
from holdfast.master.api.budgets import SMALL_BYTES, BudgetOwner, BudgetRoom
from holdfast.master.api.handlers import Handlers
from holdfast.master.api.json_bodies import JsonBodies
from holdfast.master.api.proto_bodies import too_long
from holdfast.master.api.statuses import bad_request, code_of, http_status_of, metadata_of
from holdfast.master.observe.metrics import Metrics
from holdfast.master.web.gather import Pages
from holdfast.master.web.page import POLICY
from holdfast.master.web.support import SupportBundles
from holdfast.master.web.view import Subject, View

#: For the body of a call, however long.
_BODY_SECONDS = 60.0
#: For a client to take an answer, however long.
_ANSWER_SECONDS = 60.0
#: Longer answers are written as JSON in a thread.
_AT_ONCE_BYTES_MAX = 32 * KIB
_NOT_READY = "this master has no leader yet, or lacks what was committed: restart no other master now\n"
_CLUSTER = CLUSTER_KEY.title()
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: What is read, by GET or HEAD; none of it changes anything.
_BUNDLE_PATH = "/support.tar.gz"
_READ = ("/", *OPEN_PATHS, "/metrics", _BUNDLE_PATH)
_PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class MasterHttp:
    """Serves calls, health, metrics, the status page and its support bundle; `server` listens."""

    def __init__(
        self,
        cluster_id: str,
        handlers: Handlers,
        metrics: Metrics,
        pages: Pages,
        bundles: SupportBundles,
        caught_up: Callable[[], bool],
        security: ServerSecurity | None = None,
    ) -> None:
        """With `security` every request but those for OPEN_PATHS has to show a token."""
        self._cluster = quoted_cluster(cluster_id)
        self._handlers = handlers
        self._metrics = metrics
        self._pages = pages
        self._bundles = bundles
        self._caught_up = caught_up
        self._json = JsonBodies()
        self._methods = {method.path: method for method in METHODS.values()}
        limits = HttpLimits(connections_max(HttpLimits.connections, MASTER_DOORS))
        self.server = HttpServer(self._answer, self._permit, security, refuse=self._deny, limits=limits)

    def _permit(self, request: web.BaseRequest, caller: Bearer | None) -> None:
        method = self._methods.get(request.path)
        if method is None:
            must_be(caller, *SEES)
        else:
            self._handlers.admit(method, caller)

    def _deny(self, error: HoldfastError) -> web.Response:
        answer = _refused(error)
        answer.headers[_CLUSTER] = self._cluster
        return answer

    async def _answer(self, request: web.BaseRequest, caller: Bearer | None) -> web.StreamResponse:
        answer = await self._serve(request, caller)
        answer.headers[_CLUSTER] = self._cluster
        return answer

    async def _serve(self, request: web.BaseRequest, caller: Bearer | None) -> web.StreamResponse:
        method = self._methods.get(request.path)
        if method is not None:
            return await self._call(method, request, caller)
        subject = Subject.of(request.raw_path.partition("?")[0])
        if subject is None and request.path not in _READ:
            there = f"there is {', '.join(_READ)} and POST /holdfast.v1.Service/Method"
            return _refused(HoldfastError(there), "not_found", 404)
        if request.method not in ("GET", "HEAD"):
            return _refused(bad_request("ask with GET"), "invalid_argument", 405)
        if request.path == HEALTH_PATH:
            return web.Response(text="ok\n")
        if request.path == READY_PATH:
            return web.Response(text="ok\n") if self._caught_up() else web.Response(text=_NOT_READY, status=503)
        if request.path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": _METRICS_TYPE})
        if request.path == _BUNDLE_PATH:
            return await self._bundle(request, caller)
        return await self._page(request, subject or Subject())

    async def _bundle(self, request: web.BaseRequest, caller: Bearer | None) -> web.Response:
        asker = self._handlers.budgets.asker(caller, request.remote or "", METHODS["Admin/Status"])
        budget_room = self._handlers.budgets.answer(asker)
        try:
            body = await self._bundles.make(caller, asker)
            budget_room.take(len(body))
        except BaseException as error:
            budget_room.close()
            if not isinstance(error, HoldfastError):
                raise
            return _refused(error)
        answer = _Held(budget_room, body, "application/gzip")
        answer.headers["Content-Disposition"] = 'attachment; filename="holdfast-support.tar.gz"'
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _page(self, request: web.BaseRequest, subject: Subject) -> web.Response:
        try:
            found, body = await self._pages.page(View.of(request.query, subject))
            return web.Response(body=body, status=200 if found else 404, headers=_PAGE_HEADERS)
        except HoldfastError as error:
            return _refused(error)

    async def _call(self, method: Method, request: web.BaseRequest, caller: Bearer | None) -> web.Response:
        content_type = request.content_type
        if request.method != "POST":
            return _refused(bad_request("call this with POST"), "invalid_argument", 405)
        try:
            if content_type not in ("application/proto", "application/json"):
                raise bad_request("Content-Type is application/json or application/proto")
            asker = self._handlers.budgets.asker(caller, request.remote or "", method)
            with self._handlers.budgets.body(asker) as budget_room:
                if _is_small(request):
                    body = bytearray(request.content.read_nowait())
                else:
                    async with asyncio.timeout(_BODY_SECONDS):
                        body = await _read(request, method, content_type, budget_room)
                message = await self._message(method, content_type, body, asker)
                reply = await self._handlers.call(method, message, caller, asker)
            return await self._reply(reply, content_type, asker, request.transport)
        except TimeoutError:
            late = bad_request(f"the body did not come within {_BODY_SECONDS:.0f} s")
            return _refused(late, "deadline_exceeded", 408)
        except HoldfastError as error:
            return _refused(error)

    async def _message(self, method: Method, content_type: str, body: bytearray, asker: BudgetOwner) -> Message:
        """Return the request that is in the body, of which nothing is left."""
        if content_type == "application/json":
            return await self._json.read(method, body, asker.who)
        try:
            return self._handlers.parse(method, body)
        finally:
            body.clear()

    async def _reply(
        self, reply: Message, content_type: str, asker: BudgetOwner, transport: asyncio.WriteTransport | None
    ) -> web.Response:
        """Write an answer, for which there has to be room until the client has taken it. One that fits in what the
        system takes at once needs neither room nor a bound on the time."""
        size = reply.ByteSize()
        budget_room = self._handlers.budgets.answer(asker)
        if size > SMALL_BYTES:
            budget_room.take(size if content_type == "application/proto" else size * 4 // 3)
        try:
            if content_type == "application/proto":
                body = reply.SerializeToString()
            elif size <= _AT_ONCE_BYTES_MAX:
                body = _json(reply)
            else:
                body = await asyncio.to_thread(_json, reply)
            if size <= SMALL_BYTES and _is_idle(transport):
                return web.Response(body=body, content_type=content_type)
            return _Held(budget_room, body, content_type)
        except BaseException:
            budget_room.close()
            raise


def _json(reply: Message) -> bytes:
    return json_format.MessageToJson(reply, indent=None).encode()


class _Held(web.Response):
    """An answer that releases its room when the client has received it, or the call is cancelled."""

    def __init__(self, budget_room: BudgetRoom, body: bytes, content_type: str) -> None:
        super().__init__(body=body, content_type=content_type)
        self._budget_room = budget_room

    async def prepare(self, request: web.BaseRequest) -> Any:
        """Hear from aiohttp that it begins to be sent."""
        try:
            return await super().prepare(request)
        except BaseException:
            self._budget_room.close()
            raise

    async def write_eof(self, data: bytes = b"") -> None:
        """Hear from aiohttp that it is to be sent; return when the kernel has it, but for a little."""
        request = self._req
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await super().write_eof(data)
        except TimeoutError:
            if request is not None and request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the client did not take its answer") from None
        finally:
            self._budget_room.close()


def _is_small(request: web.BaseRequest) -> bool:
    """Whether the body is short and came with its headers."""
    return (request.content_length or SMALL_BYTES + 1) <= SMALL_BYTES and request.content.is_eof()


def _is_idle(transport: asyncio.WriteTransport | None) -> bool:
    """Whether the client has taken all that was written to it."""
    return transport is not None and not transport.get_write_buffer_size()


async def _read(request: web.BaseRequest, method: Method, content_type: str, budget_room: BudgetRoom) -> bytearray:
    """Read the body into the room that it takes; its length is checked before, and again while a chunked one comes in.
    The received part is freed at once if the rest does not come: aiohttp keeps the error, with this frame."""
    most = method.request_bytes_max
    if content_type == "application/json":
        most = most * 4 // 3 + 4096  # proto3 JSON writes bytes as base64: a third more
    length = request.content_length or 0
    if length > most:
        raise too_long(method, most)
    budget_room.take(length)
    data = bytearray()
    try:
        async for chunk in request.content.iter_any():
            size = len(data) + len(chunk)
            if size > most:
                raise too_long(method, most)
            if size > budget_room.held:
                budget_room.take(size - budget_room.held)
            data += chunk
    except BaseException:
        data.clear()
        raise
    return data


def _refused(error: HoldfastError, code: str = "", status: int = 0) -> web.Response:
    code = code or code_of(error.status)
    headers = {name.title(): value for name, value in metadata_of(error).items()}
    body = json.dumps({"code": code, "message": str(error)})
    return web.Response(
        text=body, status=status or http_status_of(code), headers=headers, content_type="application/json"
    )
