"""Abstract Unix sockets of simulated hosts: a name is taken for as long as the process that has it lives, and what one
end writes reaches the other in order, a moment later."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.sim.clock import Life, VirtualLoop, here

#: Seconds that bytes take on their way, at most.
_SLOW = 0.002
_CREDENTIALS = struct.pack("3i", 1, os.getuid(), os.getgid())

Factory = Callable[[], asyncio.Protocol]


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, life: Life, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self._rng, self.life, self._protocol = loop, rng, life, protocol
        self.other: Transport
        self._until = 0.0
        self._lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Both ends run as the same user."""
        return SimpleNamespace(getsockopt=lambda *_: _CREDENTIALS) if name == "socket" else default

    def begin(self) -> None:
        self._protocol.connection_made(self)

    def write(self, data: Any) -> None:
        if not self._lost:
            self._bring(partial(self.other.take, bytes(data)))

    def take(self, data: bytes) -> None:
        if not self._lost:
            self._protocol.data_received(data)

    def _bring(self, act: Callable[[], object]) -> None:
        """What happens at the other end, behind all that came before."""
        self._until = max(self._until, self._loop.now + self._rng.uniform(0.0, _SLOW)) + 1e-9
        self._loop.on(self.other.life, self._until - self._loop.now, act)

    def abort(self) -> None:
        self._loop.on(self.life, 0.0, self.lose)
        self._bring(self.other.lose)

    close = abort

    def lose(self) -> None:
        """The connection is gone."""
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)


class Server:
    """Takes connections, until it is closed."""

    def __init__(self, factory: Factory, life: Life) -> None:
        self.factory, self.life = factory, life
        self.open = True

    def close(self) -> None:
        self.open = False


class UnixSockets:
    """Those of all hosts: names have the host in them."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self._servers: dict[str, Server] = {}
        self._ends: dict[Transport, None] = {}

    def serve(self, factory: Factory, path: str) -> Server:
        """Raises OSError if somebody else does."""
        there = self._servers.get(path)
        if there is not None and there.open and there.life.alive:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[path] = Server(factory, here.get())
        return server

    def connect(self, factory: Factory, path: str) -> tuple[Transport, asyncio.Protocol]:
        """Raises ConnectionRefusedError if nobody serves."""
        server = self._servers.get(path)
        if server is None or not server.open or not server.life.alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        protocol = factory()
        mine = Transport(self._loop, self._rng, here.get(), protocol)
        theirs = Transport(self._loop, self._rng, server.life, server.factory())
        mine.other, theirs.other = theirs, mine
        self._ends |= dict.fromkeys((mine, theirs))
        self._loop.on(server.life, 0.0, theirs.begin)
        mine.begin()
        return mine, protocol

    def ended(self, life: Life) -> None:
        """A process is gone, and its ends with it."""
        for end in [one for one in self._ends if one.life is life]:
            del self._ends[end]
            self._loop.on(end.other.life, self._rng.uniform(0.0, _SLOW), end.other.lose)
