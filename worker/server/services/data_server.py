"""The data port: greets connections and hands each request to the service that answers it. Called by main.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.common.errors import ForbiddenError, ProtocolError, RetryError, TokenExpiredError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, HelloOk, Role
from holdfast.common.formats.reduce_messages import Registered
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.security.tokens import Bearer
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.access import check_frame, check_hello, check_role
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.map_service import MapService
from holdfast.worker.server.services.push_service import PushService
from holdfast.worker.server.services.request import Request, in_parts
from holdfast.worker.server.services.restore_service import RestoreService
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.server.services.stream_service import StreamService

#: The part of all connections that is for workers and masters.
SERVERS_SHARE = 8
#: What only masters send.
_OF_MASTERS = (FrameType.SEAL, FrameType.REGISTERED, FrameType.RESTORE)
#: What nobody sends without a body.
_WITH_BODY = (FrameType.PUSH, FrameType.REPLICATE)
#: What is an answer, or is not for the services.
_NO_REQUESTS = frozenset({FrameType.STREAM_DATA, FrameType.CHUNKS_DATA, FrameType.HELLO, FrameType.CLOSING})


class _Greeted(NamedTuple):
    """A connection that said who it is; with security, also by a token."""

    connection: ServerConnection
    role: Role
    caller: Bearer | None


class DataServer:
    """Answers the connections of one worker (a frame_server.Handler)."""

    def __init__(self, context: WorkerContext) -> None:
        """Without credentials in its standing everybody who greets in the name of the cluster is served."""
        self._standing = context.standing
        self._counters = context.counters
        self._security = context.standing.credentials
        self._running = context.running
        self.asking = context.asking
        self.maps = MapService(context)
        self.streams = StreamService(context)
        self.seals = SealService(context)
        self.pushes = PushService(context, self.seals)
        self.restores = RestoreService(context, self.seals.reduce.forgot)
        self._takes: dict[FrameType, Callable[[Request], None]] = {
            FrameType.MAP_PUSH: self.maps.push,
            FrameType.PUSH: self.pushes.push,
            FrameType.REPLICATE: self.pushes.push,
            FrameType.STREAM_CREDIT: self.streams.credit,
            FrameType.STREAM_OPEN: self.streams.open,
            FrameType.STREAM_CLOSE: self.streams.close,
            FrameType.MAP_OPEN: self.maps.open,
            FrameType.MAP_SEAL: self.maps.seal,
            FrameType.MAP_ABORT: self.maps.abort,
            FrameType.PUSH_CREDIT: self.pushes.credit,
            FrameType.PUSH_SETTLE: self.pushes.settle,
            FrameType.CHUNKS_OPEN: self.streams.open_chunks,
            FrameType.SEAL: self.seals.seal,
            FrameType.RESTORE: self.restores.restore,
            FrameType.REGISTERED: self._registered,
            FrameType.PING: Request.reply,
        }
        assert self._takes.keys() == frozenset(FrameType) - _NO_REQUESTS, "each request has a service"
        #: every connection that greeted
        self._greeted: dict[int, _Greeted] = {}
        #: connections of clients, by user and application; the rest is for workers and masters
        most = context.bounds.descriptors.connections
        self._clients = Shares(most - most // SERVERS_SHARE)
        self._ending = False

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Accept a connection of our version and cluster; raises ProtocolError otherwise."""
        caller: Bearer | None = None
        if self._security is not None:  # first: who shows no token is not told which cluster this is
            caller = self._security.identify(
                hello.token.decode("ascii", "replace"), self._standing.addresses.data_address
            )
            check_role(caller, hello.role)
        check_hello(hello, self._standing.cluster_id)
        if hello.role is Role.CLIENT:
            # Without security nobody knows whose it is.
            owner = () if caller is None else (caller.share_owner, caller.subject)
            if not self._clients.take(owner, 1):
                reason = "this worker has no connections left for this user or application; try later"
                raise RetryError(reason, status=Status.BUSY)
            connection.owner = owner
        # From here on nothing is refused: `lost` is called for connections that greeted, and takes away what is kept.
        self._greeted[connection.number] = _Greeted(connection, hello.role, caller)
        standing = self._standing
        return HelloOk(worker=standing.worker, incarnation=standing.incarnation, uid=standing.uid)

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
        request = Request(connection, header, meta, self._counters, self._greeted[connection.number].role, body)
        try:
            self._hand_on(request)
        except (ProtocolError, ForbiddenError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked gets an answer
            request.refuse(error)

    def _hand_on(self, request: Request) -> None:
        kind = request.header.type
        if request.body is None:  # else it was admitted
            self._check(request.connection, request.header, request.meta)
            if kind in _WITH_BODY:
                raise ProtocolError(f"{kind.name} has a body")
        if kind in _OF_MASTERS and request.role is not Role.MASTER:
            raise ProtocolError(f"only a master sends {kind.name}")
        take = self._takes.get(kind)
        if take is None:
            raise ProtocolError(f"{kind.name} is not a request")
        take(request)

    def _registered(self, request: Request) -> None:
        registered = Registered.decode(request.meta)
        self.asking.placed(registered.shuffle, registered.workers)
        request.reply()

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

    def begin_unregistered(self, known: bool) -> None:
        """Say what a start takes before the masters have accepted it: MAP files, if they are `known` to have accepted
        an earlier one, and no pushes. A push is for one start by its incarnation, and another start may have had this
        one, if it was written to a directory that is not here."""
        self.accept(False, "the masters have not accepted this worker yet")
        if known:
            self.maps.files.closed_because = ""

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
        self.restores.stop(reason)

    def drain(self, yes: bool) -> None:
        if yes:
            self.restores.stop("this worker drains")
        self.maps.files.drain(yes)
        self.pushes.drain(yes)

    @property
    def writing(self) -> int:
        """Epochs and map files that are not sealed, and seals that are not answered."""
        return self.pushes.reduce.writing + self.maps.files.writing + len(self._running)

    def begin(self, incarnation: Incarnation) -> None:
        self.maps.drop(self.maps.files.begin(incarnation))
        self.pushes.reduce.begin(incarnation)
        self.streams.streams.begin(incarnation)

    def renumber(self) -> None:
        """This worker has another number than HELLO told: close every connection, so that who kept one asks anew."""
        registered = RetryError(f"this worker has another number now: it is worker {self._standing.worker}")
        for connection, _, _ in list(self._greeted.values()):
            connection.close_because(registered)

    def forget(self, shuffle: ShuffleKey) -> None:
        self.asking.forget(shuffle)
        self.maps.drop(self.maps.files.forget(shuffle))
        self.pushes.reduce.forget(shuffle)
        self.restores.forget(shuffle)
