"""Stands between the workers and everybody who talks to them, and loses or delays some of their answers.

Workers listen on 127.0.0.1 and tell others 127.0.0.2, with the same port; there the proxy listens. So clients, masters
and other workers (replicas) come through it, and nothing in the product knows. What goes to a worker passes as it is;
what comes back is cut into frames, and of those a share is

* lost with its connection: what TCP makes of a network that drops packets for long,
* swallowed, and the connection lives: a worker that never answers; only requests that have a deadline of their own,
* late: a frame of a stream holds up what is behind it, any other is overtaken.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Self

from holdfast.common.formats.frame import HEADER_BYTES, FrameType, decode_header

#: Where workers are told to be, and where they are.
SHOWN, REAL = "127.0.0.2", "127.0.0.1"
_PIECE_BYTES = 1 << 20
#: Frames that must come in order.
_ORDERED = (FrameType.CHUNKS_DATA, FrameType.STREAM_DATA, FrameType.HELLO)
#: Requests that are asked again, or given up, when nothing is answered for a while on a connection that lives.
_WITH_DEADLINE = (FrameType.PUSH, FrameType.REPLICATE, FrameType.CHUNKS_OPEN)


class Proxy:
    """A thread with one listener for each worker; use as a context manager."""

    def __init__(self, addresses: Iterable[str], seed: int, *, rate: float, late_seconds: float, swallow: bool) -> None:
        """`addresses` are the workers' own; `rate` is the share of answers that are lost or late, half of it each."""
        self._ports = [int(address.rpartition(":")[2]) for address in addresses]
        self._chance = random.Random(f"{seed}/proxy")
        self._rate = rate
        self._late_seconds = late_seconds
        self._swallow = swallow
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="soak-proxy", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: so many of the next answers, HELLO's apart, get a flipped bit in what says what they are
        self.damages = 0
        #: answers that passed, and what became of the others
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)

    async def _listen(self) -> None:
        for port in self._ports:
            self._servers.append(await asyncio.start_server(self._accepted(port), SHOWN, port, limit=_PIECE_BYTES))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """What to do with a connection to the worker of this port."""

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._connection(reader, writer, port))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accepted

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """One connection, until either side of it ends."""
        try:
            from_worker, to_worker = await asyncio.open_connection(REAL, port, limit=_PIECE_BYTES)
        except OSError:
            writer.transport.abort()  # as refused as the real one
            return
        pumps = [
            self._loop.create_task(_pass_on(reader, to_worker)),
            self._loop.create_task(self._answers(from_worker, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.transport.abort()
            to_worker.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass frames on, or not. Ends when the connection has to."""
        while True:
            raw = await reader.readexactly(HEADER_BYTES)
            header = decode_header(raw)
            frame = raw + await reader.readexactly(header.meta_bytes + header.body_bytes)
            if self.damages and header.type is not FrameType.HELLO:
                self.damages -= 1
                self.counts[f"damaged {header.type.name}"] += 1
                frame = self._damaged(frame, HEADER_BYTES + header.meta_bytes)
            if header.type is FrameType.CLOSING or self._chance.random() >= self._rate:
                self.counts["passed"] += 1
                writer.write(frame)
                await writer.drain()
            elif self._chance.random() < 0.5:
                self.counts[f"late {header.type.name}"] += 1
                await self._delay(writer, header.type, frame)
            elif self._swallow and header.type in _WITH_DEADLINE and self._chance.random() < 0.5:
                self.counts[f"swallowed {header.type.name}"] += 1
            else:
                self.counts[f"cut {header.type.name}"] += 1
                return

    def _damaged(self, frame: bytes, head: int) -> bytes:
        at = self._chance.randrange(head)
        return frame[:at] + bytes([frame[at] ^ 1 << self._chance.randrange(8)]) + frame[at + 1 :]

    async def _delay(self, writer: asyncio.StreamWriter, kind: FrameType, frame: bytes) -> None:
        def deliver() -> None:
            if not writer.is_closing():
                writer.write(frame)
            delivered.set()

        delivered = asyncio.Event()
        self._loop.call_later(self._chance.uniform(0.0, self._late_seconds), deliver)
        if kind in _ORDERED:
            await delivered.wait()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
