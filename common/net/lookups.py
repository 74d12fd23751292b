"""Connects to a host by its name, where a name server may be silent for long.

Rules: lookups are the system's, in threads of the loop, of which there are few, and none can be cancelled: so each name
is looked up once at a time for all callers, and one without an answer holds up no other. Called by frames/client.py
and http_client.py.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.common.net import detour
from holdfast.common.system.tasks import Shared

P = TypeVar("P", bound=asyncio.BaseProtocol)

#: Lookups under way, by loop and name.
_running: Shared[tuple[asyncio.AbstractEventLoop, str], list[str]] = Shared()


async def connect(make: Callable[[], P], host: str, port: int, *, detours: bool = True, **secure: Any) -> P:
    """Connect to the first address of the host that answers, as loop.create_connection does; `detours`: take those of a
    drill. Raises OSError and UnicodeError as that does; has no bound of its own."""
    error = OSError(f"{host} has no address")
    for address in await _addresses(detour.through(host, port) if detours else host):
        try:
            _, connection = await asyncio.get_running_loop().create_connection(make, address, port, **secure)
        except OSError as failed:
            error = failed
        else:
            return connection
    raise error


async def _addresses(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass  # a name
    return await _running.result((asyncio.get_running_loop(), host), partial(_look_up, host))


async def _look_up(host: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))
