"""The HTTP port of a worker: /healthz, /metrics and /status. Called by main.py once the data port serves."""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import TYPE_CHECKING, Any

from holdfast.worker.server.status import Status

if TYPE_CHECKING:
    from aiohttp import web


def _load() -> None:
    """Import what takes a while, in a thread: the data port serves already."""
    importlib.import_module("aiohttp.web")
    importlib.import_module("holdfast.worker.server.metrics")


async def serve_http(listener: socket.socket, status: Status) -> web.AppRunner:
    """Answer on a listening socket; returns what `cleanup()` ends."""
    await asyncio.to_thread(_load)
    from aiohttp import web

    from holdfast.worker.server.metrics import Exposition

    exposition = Exposition(status)

    async def healthz(_: web.Request) -> web.Response:
        """200 while a directory can be written, else 503; the body says what is wrong."""
        problems = status.problems()
        return web.Response(text="\n".join(problems) or "ok", status=200 if status.healthy() else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": exposition.content_type})

    async def show(_: web.Request) -> web.Response:
        answer: dict[str, Any] = status.as_dict()
        return web.json_response(answer)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics), web.get("/status", show)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner
