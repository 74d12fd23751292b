"""The HTTP port of a worker: /healthz, /metrics and /status. Called by main.py once the data port serves."""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import TYPE_CHECKING, Any

from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import SEES, Bearer, must_be
from holdfast.worker.server.observe.status import WorkerStatus

if TYPE_CHECKING:
    from aiohttp import web

    from holdfast.common.net.http_server import HttpServer


#: What the system takes at once, also beyond the bound on connections.
_BACKLOG = 32
#: From connecting to the end of the first request: who asks here asks briefly.
_FIRST_SECONDS = 5.0


def _load() -> None:
    """Import what takes a while, in a thread: the data port serves already."""
    importlib.import_module("holdfast.common.net.http_server")
    importlib.import_module("holdfast.worker.server.observe.metrics")
    importlib.import_module("holdfast.common.system.versions").versions()  # which looks into many files, once


async def serve_http(
    listener: socket.socket, status: WorkerStatus, security: ServerSecurity | None, connections_max: int
) -> HttpServer:
    """Answer on a listening socket, `connections_max` at a time; returns what `stop()` ends. With `security` /healthz,
    which wants no token, says no more than yes or no."""
    await asyncio.to_thread(_load)
    from aiohttp import web

    from holdfast.common.net.http_server import HEALTH_PATH, HttpLimits, HttpServer
    from holdfast.worker.server.observe.metrics import Exposition

    exposition = Exposition(status)

    async def healthz(_: web.BaseRequest) -> web.Response:
        """200 while a directory can be written, else 503; the body says what is wrong."""
        healthy = status.healthy()
        problems = status.problems() if security is None else () if healthy else ("not healthy",)
        return web.Response(text="\n".join(problems) or "ok", status=200 if healthy else 503)

    async def metrics(_: web.BaseRequest) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": exposition.content_type})

    async def show(_: web.BaseRequest) -> web.Response:
        answer: dict[str, Any] = status.as_dict()
        return web.json_response(answer)

    pages = {HEALTH_PATH: healthz, "/metrics": metrics, "/status": show}

    def permit(_: web.BaseRequest, caller: Bearer | None) -> None:
        must_be(caller, *SEES)

    async def serve(request: web.BaseRequest, _: Bearer | None) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            return web.Response(text=f"this is a worker, not a master; there are {', '.join(pages)}\n", status=404)
        if request.method not in ("GET", "HEAD"):
            return web.Response(text="ask with GET\n", status=405)
        return await page(request)

    server = HttpServer(
        serve, permit, security, limits=HttpLimits(connections_max, backlog=_BACKLOG, first_s=_FIRST_SECONDS)
    )
    status.http.append(server)
    await server.start(listener)
    return server
