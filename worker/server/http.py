"""The HTTP port of a worker: /healthz, /metrics and /status. Called by main.py once the data port serves."""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import TYPE_CHECKING, Any

from holdfast.worker.server.status import Status

if TYPE_CHECKING:
    from aiohttp import web

    from holdfast.common.net.http_server import HttpServer


def _load() -> None:
    """Import what takes a while, in a thread: the data port serves already."""
    importlib.import_module("holdfast.common.net.http_server")
    importlib.import_module("holdfast.worker.server.metrics")
    importlib.import_module("holdfast.common.net.versions").versions()  # which looks into many files, once


async def serve_http(listener: socket.socket, status: Status) -> HttpServer:
    """Answer on a listening socket; returns what `stop()` ends."""
    await asyncio.to_thread(_load)
    from aiohttp import web

    from holdfast.common.net.http_server import HttpServer
    from holdfast.worker.server.metrics import Exposition

    exposition = Exposition(status)

    async def healthz(_: web.BaseRequest) -> web.Response:
        """200 while a directory can be written, else 503; the body says what is wrong."""
        problems = status.problems()
        return web.Response(text="\n".join(problems) or "ok", status=200 if status.healthy() else 503)

    async def metrics(_: web.BaseRequest) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": exposition.content_type})

    async def show(_: web.BaseRequest) -> web.Response:
        answer: dict[str, Any] = status.as_dict()
        return web.json_response(answer)

    pages = {"/healthz": healthz, "/metrics": metrics, "/status": show}

    async def serve(request: web.BaseRequest) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            return web.Response(text=f"this is a worker, not a master; there are {', '.join(pages)}\n", status=404)
        if request.method not in ("GET", "HEAD"):
            return web.Response(text="ask with GET\n", status=405)
        return await page(request)

    server = HttpServer(serve)
    await server.start(listener)
    return server
