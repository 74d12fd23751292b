"""A network that can be cut between any two servers of an embedded cluster: proxies on loopback addresses.

Every server, and the client, has a detour ([faults] detour, common/net/detour.py): an address of its own at which this
listens on the ports of all others, so the port of a connection identifies both its ends. Between two that are cut
off from each other nothing passes and nothing is refused, as where packets are dropped: connections stay open, new ones
are taken and stay silent. When they are joined again, what was on its way arrives late, or connections break.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Sections
from holdfast.common.net import detour
from holdfast.common.system.tasks import awaited

CLIENT = "client"
_REAL = "127.0.0.1"
_PIECE_BYTES = 256 * 1024
_CALL_SECONDS_MAX = 30.0


class _Pair:
    """What is between two: whether anything passes, and the connections."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.connections: set[asyncio.Task[None]] = set()


class ProxiedNetwork:
    """A thread with the proxies; `own` and `around` are for the cluster that is to be cut."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names`: of all servers that there will be."""
        self._hosts = {name: f"127.0.0.{number}" for number, name in enumerate((CLIENT, *names), start=11)}
        self._loop = asyncio.new_event_loop()
        self._pairs: dict[frozenset[str], _Pair] = {}
        self._listeners: list[asyncio.Server] = []

    @property
    def own(self) -> Mapping[str, Sections]:
        """The settings by which every server takes its detour."""
        return {
            name: {"faults": {"enabled": True, "detour": host}} for name, host in self._hosts.items() if name != CLIENT
        }

    @contextmanager
    def around(self, cluster: LocalCluster) -> Iterator[None]:
        """Listen while the cluster lives, and lead this process's clients through it."""
        ports = {port: server.name for server in cluster.servers for port in server.ports.values()}
        thread = threading.Thread(target=self._loop.run_forever, name="drill-network", daemon=True)
        thread.start()
        try:
            self._run(self._listen(ports))
            with detour.take(self._hosts[CLIENT], ports):
                yield
        finally:
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def cut(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Let nothing pass between any of `some` and any of `others`."""

        async def cut() -> None:
            for one, other in product(some, others):
                self._pairs[frozenset((one, other))].open.clear()

        self._run(cut())

    def join(self, *, broken: bool) -> None:
        """Let everything pass again: what was on its way arrives now, or (`broken`) its connections end."""

        async def join() -> None:
            for pair in self._pairs.values():
                if broken and not pair.open.is_set():
                    for task in pair.connections:
                        task.cancel()
                pair.open.set()

        self._run(join())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS_MAX)

    async def _listen(self, ports: Mapping[int, str]) -> None:
        for (caller, host), (port, called) in product(self._hosts.items(), ports.items()):
            if caller != called:
                pair = self._pairs.setdefault(frozenset((caller, called)), _Pair())
                server = await asyncio.start_server(partial(_accepted, pair, port), host, port, limit=_PIECE_BYTES)
                self._listeners.append(server)

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        tasks = [task for pair in self._pairs.values() for task in pair.connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _accepted(pair: _Pair, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    task = awaited(_connection(pair, port, reader, writer))
    pair.connections.add(task)
    task.add_done_callback(pair.connections.discard)


async def _connection(pair: _Pair, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, until a side of it ends."""
    onward: asyncio.StreamWriter | None = None
    try:
        await pair.open.wait()
        back, onward = await asyncio.open_connection(_REAL, port, limit=_PIECE_BYTES)
        pumps = [awaited(_pass_on(pair, reader, onward)), awaited(_pass_on(pair, back, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        onward.close()  # behind what was written
        writer.close()
    except (OSError, asyncio.CancelledError):  # no listener, or the pair's connections are to break
        writer.transport.abort()
        if onward is not None:
            onward.transport.abort()


async def _pass_on(pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything, to the end of it; an end passes no earlier than anything else."""
    while piece := await reader.read(_PIECE_BYTES):
        await pair.open.wait()
        writer.write(piece)
        await writer.drain()
    await pair.open.wait()
