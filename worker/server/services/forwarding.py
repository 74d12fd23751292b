"""Repeats pushes to the workers that hold the other copies: one connection for each peer, within a window it grants.

Rules: a forward ends within FORWARD_SECONDS, answered or not. A peer that could not be reached, or did not answer, is
remembered for UNREACHABLE_SECONDS and failed at once meanwhile; its connection is dropped, since bodies that wait on it
would otherwise be given back while they are sent. All applications share that connection: a push that names another
worker than the one that is there fails alone. Clients name the address: a
connection is only made to where the masters say that this worker is, and what is shown there is a token that no other
server takes. Nothing here waits for anything but the peer, and the peer serves
replica traffic from a reserve of its own, so two workers never wait for one another. A peer is asked for as much as is
sent at once: what is asked for and not used would keep other primaries waiting (write/credits.py). Called by
push_service.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_messages import Push, PushAnswer, PushCredit, ReplicaPlace
from holdfast.common.ids import Incarnation, RaftIndex
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited, background
from holdfast.worker.core.write.credits import CREDIT_LIFE_NS
from holdfast.worker.server.context import WorkerContext

#: From a push's arrival until its replica has to have answered.
FORWARD_SECONDS = 10.0
CONNECT_SECONDS = 2.0
#: A peer that did not answer is not asked again for so long.
UNREACHABLE_SECONDS = 2.0
#: The largest window that is asked for of a peer.
WINDOW_BYTES = 16 * MIB
#: A window that lay idle for so long may have lapsed, and is asked for anew.
WINDOW_IDLE_SECONDS = 0.9

assert WINDOW_BYTES >= FRAME_BODY_BYTES_MAX, "the largest push fits a window"
assert WINDOW_IDLE_SECONDS * 10**9 < CREDIT_LIFE_NS // 10, "nothing is sent into a window that has lapsed"


class _Peer:
    """One replica's connection and what it lets us send."""

    def __init__(self, replica: ReplicaPlace, client: FrameClient) -> None:
        self.replica = replica
        self.client = client
        self.window = 0
        self.unanswered = 0
        self._used_at = time.monotonic()
        #: who waits for room, and for how much
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._asking: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        return not self.unanswered and not self._line

    async def wait_for_window(self, size: int) -> None:
        """Return when `size` bytes may be sent, in order; they count as unanswered from then on."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, waiter))
        self._go_on()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and waiter.exception() is None:
                self.unanswered -= size
            self._go_on()
            raise

    def _go_on(self) -> None:
        """Let those go that have room; if nothing will be answered, ask for more."""
        if not self.unanswered and time.monotonic() - self._used_at >= WINDOW_IDLE_SECONDS:
            self.window = 0
        while self._line:
            size, waiter = self._line[0]
            if not waiter.done():
                if self.unanswered + size > self.window:
                    break
                self.unanswered += size
                self._used_at = time.monotonic()
                waiter.set_result(None)
            self._line.popleft()
        if self._line and not self.unanswered and self._asking is None:
            self.window = 0  # what is left of it is given up by asking
            self._asking = background(self._ask(self._line[0][0]), self.fail)

    async def _ask(self, first: int) -> None:
        try:
            wanted = max(first, self._wanted())
            reply = await self.client.request(FrameType.PUSH_CREDIT, PushCredit(wanted).encode())
            self.window = PushCredit.decode(reply.meta).size_bytes
            self._used_at = time.monotonic()
            if self.window < first:
                raise ProtocolError(f"{self.replica.address} granted {self.window} bytes for a push of {first}")
        except HoldfastError as error:
            self.fail(error)
        finally:
            self._asking = None
        self._go_on()

    def _wanted(self) -> int:
        """What those in line send at once, as far as the largest window goes, which holds any push."""
        wanted = 0
        for size, waiter in self._line:
            if wanted + size > WINDOW_BYTES:
                break
            wanted += 0 if waiter.done() else size
        return wanted

    def answered(self, size: int, window: int | None) -> None:
        """A push is under way no more. `window` is what its answer grants; None: there was none that says so, and what
        was granted before may have shrunk by this push."""
        self.unanswered -= size
        self.window = max(0, self.window - size) if window is None else window
        self._used_at = time.monotonic()
        self._go_on()

    def fail(self, error: BaseException) -> None:
        while self._line:
            _, waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_exception(error)


class Forwarder:
    """All forwards of a worker. Loop thread only."""

    def __init__(self, context: WorkerContext) -> None:
        #: with a connection; the one used least recently is dropped beyond
        self._peers_max = context.bounds.descriptors.peers
        self._standing = context.standing
        self._asking = context.asking
        self._pool = BufferPool(FRAME_BODY_BYTES_MAX)
        #: those used last at the end
        self._peers: dict[str, _Peer] = {}
        self._connecting: dict[str, asyncio.Task[_Peer]] = {}
        #: address → when it may be asked again (monotonic seconds)
        self._unreachable: dict[str, float] = {}

    @property
    def peers(self) -> int:
        """Connections to other workers, those that are being opened among them."""
        return len(self._peers) + len(self._connecting)

    @property
    def unreachable(self) -> int:
        """Peers that are remembered as unreachable now."""
        now = time.monotonic()
        return sum(until > now for until in self._unreachable.values())

    async def forward(self, push: Push, replica: ReplicaPlace, chosen: Sequence[int], body: memoryview) -> list[int]:
        """Send the chosen entries of a push to one of its replicas; return those that it did not keep.

        Raises HoldfastError if it kept none of them, as far as we know.
        """
        if self._unreachable.get(replica.address, 0.0) > time.monotonic():
            raise RetryError(f"{replica.address} did not answer a moment ago")
        meta, parts, size = _replicate(push, replica.incarnation, chosen, body)
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                answer = await self._send(replica, push.owner, meta, parts, size)
        except TimeoutError:
            self._drop(replica.address)
            raise RetryError(f"{replica.address} did not answer within {FORWARD_SECONDS} s") from None
        kept = (Status.SOFT_SPLIT, Status.SLOW_DOWN)
        return [chosen[index] for index, status in answer.statuses if status not in kept]

    async def _send(
        self, replica: ReplicaPlace, owner: tuple[bytes, ...], meta: bytes, parts: list[memoryview], size: int
    ) -> PushAnswer:
        while True:
            peer = await self._peer(replica, owner)
            await peer.wait_for_window(size)
            window: int | None = None
            try:
                reply = await peer.client.request(FrameType.REPLICATE, meta, *parts)
                answer = PushAnswer.decode(reply.meta)
                window = answer.credit_bytes
                return answer
            except HoldfastError as error:
                if peer.client.closed:
                    self._drop(replica.address)
                    peer.fail(error)
                    raise
                if error.status is not Status.BUSY:
                    raise
                window = 0
            finally:  # whatever came of it, an answer that nobody can read, too: others wait for its room
                peer.answered(size, window)

    async def _peer(self, replica: ReplicaPlace, owner: tuple[bytes, ...]) -> _Peer:
        peer = self._peers.get(replica.address)
        if peer is None or peer.client.closed:
            await self._asking.check_replica(replica, owner)
            peer = self._peers.get(replica.address)  # somebody else may have needed it
        if peer is None or peer.client.closed:
            task = self._connecting.get(replica.address)
            if task is None:
                task = self._connecting[replica.address] = awaited(self._connect(replica))
                task.add_done_callback(lambda _: self._connecting.pop(replica.address, None))
            peer = await asyncio.shield(task)
        if self._peers.get(replica.address) is peer:
            self._peers[replica.address] = self._peers.pop(replica.address)  # the one used last
        if peer.client.hello.worker != replica.worker:
            raise RetryError(f"{replica.address} is worker {peer.client.hello.worker}, not {replica.worker}")
        return peer

    async def _connect(self, replica: ReplicaPlace) -> _Peer:
        host, _, port = replica.address.rpartition(":")
        if not port.isdecimal():
            raise ProtocolError(f"{replica.address!r} is not an address of a replica")
        hello = Hello(role=Role.WORKER, cluster_id=self._standing.cluster_id)
        security = self._standing.credentials
        credentials = None if security is None else security.only_for(replica.address)
        try:
            client = await FrameClient.connect(
                host, int(port), hello, self._pool, timeout_seconds=CONNECT_SECONDS, credentials=credentials
            )
        except HoldfastError:
            self._drop(replica.address)
            raise
        if len(self._peers) >= self._peers_max:
            # Not one that is waited for, if there is another.
            address = next((one for one, peer in self._peers.items() if peer.idle), next(iter(self._peers)))
            self._peers.pop(address).client.close()
        peer = self._peers[replica.address] = _Peer(replica, client)
        self._unreachable.pop(replica.address, None)
        return peer

    def _drop(self, address: str) -> None:
        now = time.monotonic()
        self._unreachable = {one: until for one, until in self._unreachable.items() if until > now}
        self._unreachable[address] = now + UNREACHABLE_SECONDS
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.client.abort()
            peer.fail(RetryError(f"{address} did not answer"))

    def close(self) -> None:
        for peer in self._peers.values():
            peer.client.abort()
        self._peers.clear()


def _replicate(
    push: Push, incarnation: Incarnation, chosen: Sequence[int], body: memoryview
) -> tuple[bytes, list[memoryview], int]:
    """Meta and body of the REPLICATE of some entries of a push."""
    entries, body_crc, parts, size = push.entries, push.body_crc, [body], len(body)
    if len(chosen) < len(entries):
        wanted, parts, offset, body_crc = set(chosen), [], 0, 0
        for index, entry in enumerate(entries):
            if index in wanted:
                parts.append(body[offset : offset + entry[3]])
                body_crc = crc32c(parts[-1], body_crc)
            offset += entry[3]
        entries = [entries[index] for index in chosen]
        size = sum(map(len, parts))
        if len(parts) > 64:
            parts = [memoryview(b"".join(parts))]
    message = replace(
        push,
        incarnation=incarnation,
        raft_index=RaftIndex(0),
        replicas=(),
        ack_copies=0,
        body_crc=body_crc,
        entries=entries,
    )
    return message.encode(), parts, size
