"""The data port: greets connections and hands each request to the service that answers it. Called by main.py."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple, assert_never

from holdfast.common.errors import ForbiddenError, ProtocolError, RetryError, TokenExpiredError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, HelloOk, Role
from holdfast.common.formats.reduce_messages import Registered
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import CONNECTIONS_MAX, ServerConnection
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import Bearer
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.access import check_frame, check_hello, check_role
from holdfast.worker.server.membership.asking import Asking
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.services.map_service import MapService, Request
from holdfast.worker.server.services.push_service import PushService
from holdfast.worker.server.services.refusal import in_parts, refusal
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.server.services.stream_service import StreamService

#: The part of all connections that is for workers and masters.
SERVERS_SHARE = 8


class _Greeted(NamedTuple):
    """A connection that said who it is; with security, also by a token."""

    connection: ServerConnection
    role: Role
    caller: Bearer | None


class DataServer:
    """Answers the connections of one worker (a frame_server.Handler)."""

    def __init__(
        self,
        standing: WorkerIdentity,
        maps: MapService,
        streams: StreamService,
        pushes: PushService,
        seals: SealService,
        asking: Asking,
        security: ServerSecurity | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """Without `security` everybody who greets in the name of the cluster is served."""
        self._standing = standing
        self._security = security
        #: where others reach this worker, as the masters tell them; set by process.py
        self.address = ""
        self.maps = maps
        self.streams = streams
        self.pushes = pushes
        self.seals = seals
        self.asking = asking
        #: every connection that greeted
        self._greeted: dict[int, _Greeted] = {}
        #: connections of clients, by user and application; the rest is for workers and masters
        self._clients = Shares(connections_max - connections_max // SERVERS_SHARE)
        self._ending = False

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Accept a connection of our version and cluster; raises ProtocolError otherwise."""
        caller: Bearer | None = None
        if self._security is not None:  # first: who shows no token is not told which cluster this is
            caller = self._security.identify(hello.token.decode("ascii", "replace"), self.address)
            check_role(caller, hello.role)
        check_hello(hello, self._standing.cluster_id)
        if hello.role is Role.CLIENT and not self._take_client(connection, caller):
            raise RetryError(
                "this worker has no connections left for this user or application; try later", status=Status.BUSY
            )
        # From here on nothing is refused: `lost` is called for connections that greeted, and takes away what is kept.
        self._greeted[connection.number] = _Greeted(connection, hello.role, caller)
        standing = self._standing
        return HelloOk(worker=standing.worker, incarnation=standing.incarnation, uid=standing.uid)

    def _take_client(self, connection: ServerConnection, caller: Bearer | None) -> bool:
        """Whether there is room for another client; without security nobody knows whose it is."""
        owner = () if caller is None else (caller.share_owner, caller.subject)
        if not self._clients.take(owner, 1):
            return False
        connection.owner = owner
        return True

    def admit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> bool:
        """Whether there is room for the body of a request. Raises ProtocolError for bodies that no client sends."""
        self._check(connection, header, meta)
        if header.type in (FrameType.PUSH, FrameType.REPLICATE):
            role = self._greeted[connection.number].role
            if (role is Role.WORKER) != (header.type is FrameType.REPLICATE):
                raise ProtocolError(f"a {role.name} does not send {header.type.name}")
            return self.pushes.admit(connection, header, role)
        if header.type is not FrameType.MAP_PUSH:
            raise ProtocolError(f"{header.type.name} has no body")
        return True

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        """Hand a request on. Raises ProtocolError for what no client sends, ForbiddenError for another's shuffle: those
        close the connection. Whatever else comes of a request is its answer, and concerns no other request."""
        try:
            self._hand_on(connection, header, meta, body)
        except (ProtocolError, ForbiddenError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked gets an answer
            connection.unhold()
            connection.refuse(header, refusal(error))

    def _hand_on(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        if body is None:  # else it was admitted
            self._check(connection, header, meta)
        role = self._greeted[connection.number].role
        if header.type in (FrameType.SEAL, FrameType.REGISTERED) and role is not Role.MASTER:
            raise ProtocolError(f"only a master sends {header.type.name}")
        match header.type:
            case FrameType.MAP_PUSH:
                self.maps.push(Request(connection, header), meta, body)
            case FrameType.PUSH | FrameType.REPLICATE:
                if body is None:
                    raise ProtocolError(f"{header.type.name} has a body")
                self.pushes.push(connection, header, meta, body)
            case FrameType.STREAM_CREDIT:
                self.streams.credit(connection, header, meta)
            case FrameType.STREAM_OPEN:
                self.streams.open(connection, header, meta)
            case FrameType.STREAM_CLOSE:
                self.streams.close(connection, meta)
            case FrameType.MAP_OPEN:
                self.maps.open(Request(connection, header), meta)
            case FrameType.MAP_SEAL:
                self.maps.seal(Request(connection, header), meta)
            case FrameType.MAP_ABORT:
                self.maps.abort(Request(connection, header), meta)
            case FrameType.PUSH_CREDIT:
                self.pushes.credit(connection, header, meta, role)
            case FrameType.CHUNKS_OPEN:
                self.streams.open_chunks(connection, header, meta)
            case FrameType.SEAL:
                self.seals.seal(connection, header, meta)
            case FrameType.REGISTERED:
                registered = Registered.decode(meta)
                self.asking.placed(registered.shuffle, registered.workers)
                connection.reply(header)
            case FrameType.PING:
                connection.reply(header)
            case FrameType.STREAM_DATA | FrameType.CHUNKS_DATA | FrameType.HELLO | FrameType.CLOSING:
                raise ProtocolError(f"{header.type.name} is not a request")
            case _:
                assert_never(header.type)

    def _check(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> None:
        caller = self._greeted[connection.number].caller
        if caller is not None:
            check_frame(caller, header.type, meta)

    def writable(self, connection: ServerConnection) -> None:
        """What was queued is nearly sent: go on with the streams."""
        self.streams.pump(connection)

    def hurried(self) -> bool:
        return self.pushes.waiting

    def lost(self, connection: ServerConnection) -> None:
        """The connection is gone. What one service meets there keeps no other from it."""
        greeted = self._greeted.pop(connection.number)
        if greeted.role is Role.CLIENT:
            self._clients.give(connection.owner, 1)
        in_parts(
            partial(self.maps.files.lost, connection.number, time.monotonic_ns()),
            partial(self.pushes.lost, connection),
            partial(self.streams.lost, connection),
        )

    def tick(self) -> None:
        now_ns = time.monotonic_ns()
        in_parts(
            lambda: self.maps.drop(self.maps.files.tick(now_ns)),
            *(partial(each.tick, now_ns) for each in (self.streams, self.pushes, self.asking)),
        )
        for connection, _, caller in list(self._greeted.values()) if self._security is not None else ():
            if caller is not None and time.time() >= caller.expires_s:
                ended = TokenExpiredError("the token of this connection has expired: send a newer one")
                connection.close_because(ended)

    def accept(self, yes: bool, reason: str = "") -> None:
        """Take new data, or refuse it. A worker that ends takes none, whoever it registers with meanwhile."""
        if not self._ending:
            closed = "" if yes else reason or "this worker takes nothing new"
            self.maps.files.closed_because = self.pushes.reduce.closed_because = closed

    def end(self, reason: str) -> None:
        """Take nothing new any more, and seal what a later start would not find."""
        self.accept(False, reason)
        self._ending = True
        self.pushes.end()

    def drain(self, yes: bool) -> None:
        self.maps.files.drain(yes)
        self.pushes.drain(yes)

    @property
    def writing(self) -> int:
        """Epochs and map files that are not sealed, and seals that are not answered."""
        return self.pushes.reduce.writing + self.maps.files.writing + self.maps.files.seals + self.seals.running

    def begin(self, incarnation: Incarnation) -> None:
        self.maps.drop(self.maps.files.begin(incarnation))
        self.pushes.reduce.begin(incarnation)
        self.streams.begin(incarnation)

    def renumber(self) -> None:
        """This worker has another number than HELLO told: close every connection, so that who kept one asks anew."""
        registered = RetryError(f"this worker has another number now: it is worker {self._standing.worker}")
        for connection, _, _ in list(self._greeted.values()):
            connection.close_because(registered)

    def forget(self, shuffle: ShuffleKey) -> None:
        self.asking.forget(shuffle)
        self.maps.drop(self.maps.files.forget(shuffle))
        self.pushes.reduce.forget(shuffle)

    def sealed_only(self) -> list[ShuffleKey]:
        """Shuffles of which only seals came: nothing of them is on disk."""
        return self.pushes.reduce.sealed_only()

    async def wait_for_seals(self) -> None:
        await self.maps.wait_for_seals()
        await self.seals.wait()
