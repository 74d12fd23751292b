"""A session: one application's presence at the masters, with a lease that is renewed in the background.

Rules: synchronous calls over the process's loop. The session that made an application counts its shuffles; one that
attached holds a lease of its own and draws shuffle numbers at random from the upper half. Closing gives the lease
back; the shuffles live on while anybody else holds one. A session belongs to the process that made it; tasks get a
MapShuffle or ReduceShuffle.
"""

from __future__ import annotations

import asyncio
import getpass
import itertools
import logging
import os
import secrets
import time
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from holdfast.client.addresses import known_addresses
from holdfast.client.checks import seconds, text, whole
from holdfast.client.core.revivals import NO_ROOM_GRACE_NS
from holdfast.client.core.route import pause_ns
from holdfast.client.fetch_options import FetchOptions
from holdfast.client.reduce_shuffle import ReduceShuffle, workers_of
from holdfast.client.runtime import runtime
from holdfast.client.shuffle import MapShuffle, Ticket, explain
from holdfast.common.errors import (
    ApplicationGoneError,
    ConfigError,
    ConflictError,
    HoldfastError,
    NoRoomError,
    RetryError,
)
from holdfast.common.ids import INSTANCE_BYTES, Generation, Instance, RaftIndex, ShuffleId, ShuffleKey, StateId
from holdfast.common.layouts import MapAssignment
from holdfast.common.limits import COPIES_MAX, MAPS_MAX, NAME_BYTES_MAX, PARTITIONS_MAX, U32_MAX
from holdfast.common.messages import Ack
from holdfast.common.net.keys import key_message
from holdfast.common.net.tasks import background
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.shown import Credentials

_log = logging.getLogger(__name__)

#: Shuffle numbers from here on are drawn at random by sessions that attached.
ATTACHED_SHUFFLES_FROM = 1 << 31
#: Masters that elect a leader need about a second; a cluster that is being started some more.
START_SECONDS = 30.0
#: A closing session does not wait long for masters that are gone; the lease ends by itself.
DETACH_SECONDS = 5.0
#: Renewals per lease, so that two may be lost.
_RENEWALS = 3
#: Who waits for room longer than a day waits for something else.
_NO_ROOM_SECONDS_MAX = 86_400.0
#: As the masters have it: 30 days.
_LEASE_SECONDS_MAX = 30 * 86_400.0


class Session:
    """An application instance, or a part in one. Thread-safe."""

    def __init__(
        self,
        endpoints: str,
        app: str = "",
        *,
        attach: bool = False,
        instance: bytes | str | None = None,
        lease_seconds: float | None = None,
        no_room_grace: float = NO_ROOM_GRACE_NS / 1e9,
        user: str | None = None,
        fetch: FetchOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Register the application `app`, or with `attach` take part in one that exists.

        endpoints: the masters' HTTP addresses "host:port,host:port,host:port".
        instance: with `attach`, the one meant (16 bytes or 32 hex digits); by default the newest alive of name `app`.
        lease_seconds: how long the masters keep the shuffles without hearing of us; by default the cluster's setting.
        no_room_grace: seconds that registering and pushing wait while no worker has room; then they end with
            NoRoomError, which names the limits that were met.
        user: whose application this is, for quotas and for people; by default who runs this process.
        fetch: how readers of this session's shuffles choose between copies, in its tasks as well.
        credentials: what a secured cluster wants to see: its CA and the token of a user; by default the files that
            HOLDFAST_CA and HOLDFAST_TOKEN_FILE name, or nothing.
        Raises ConfigError, RetryError if no master answers, ApplicationGoneError if there is nothing to attach to.
        """
        endpoints = text("endpoints", endpoints, "the masters' HTTP addresses, host:port,host:port,host:port, in one")
        app = text("app", app, "the application's name")
        instance = _instance(instance)
        if instance is not None and (not attach or len(instance) != INSTANCE_BYTES):
            raise ConfigError(
                f"`instance` goes with attach=True and has {INSTANCE_BYTES} bytes, or {2 * INSTANCE_BYTES} hex digits "
                "as `holdfast shuffles --json` shows them"
            )
        if len(app.encode()) > NAME_BYTES_MAX or not (app or instance):
            raise ConfigError(f"`app` is the application's name, 1 to {NAME_BYTES_MAX} bytes, not {app!r}")
        if lease_seconds is not None:
            lease_seconds = seconds("lease_seconds", lease_seconds, 0.001, _LEASE_SECONDS_MAX)
        self._no_room_grace = seconds("no_room_grace", no_room_grace, 0, _NO_ROOM_SECONDS_MAX)
        if user is not None and (attach or len(text("user", user, "a name").encode()) > NAME_BYTES_MAX):
            raise ConfigError(f"`user` goes with a new application, and has at most {NAME_BYTES_MAX} bytes")
        self._user = _user() if user is None else user
        if not isinstance(fetch, FetchOptions | None):
            raise ConfigError(f"`fetch` is FetchOptions(...), not {fetch!r}")
        self._fetch = fetch or FetchOptions()
        self.app = app
        self.closed = False
        self._pid = os.getpid()
        self._holder = secrets.token_bytes(16)
        self._lease_ms = int(lease_seconds * 1e3) if lease_seconds is not None else 0
        self._gone: HoldfastError | None = None
        self._endpoints = endpoints
        if not isinstance(credentials, Credentials | None):
            raise ConfigError(f"`credentials` is Credentials.from_files(ca, token_file), not {credentials!r}")
        #: the user's until the masters have given a token for the application
        self._credentials = credentials or Credentials.from_environment()
        self.cluster_id, self.instance = self._attach(instance) if attach else self._register()
        self._numbers = itertools.count(0) if not attach else None
        #: numbers that the caller chose; counting passes them by, or two shuffles would be one
        self._chosen: set[int] = set()
        self._renewal = runtime().run(self._start_renewal())

    def __repr__(self) -> str:
        """Application, instance as messages name it, and whether it is closed."""
        return f"Session(app={self.app!r}, instance={self.instance.hex()[:8]}{', closed' if self.closed else ''})"

    @property
    def ticket(self) -> Ticket:
        """What tasks need to act for this session."""
        grace_ns = int(self._no_room_grace * 1e9)
        return Ticket(
            self._endpoints, self.cluster_id, self.instance, self._holder, grace_ns, self._fetch, self._credentials
        )

    def register_map_shuffle(
        self,
        partitions: int,
        maps: int | None = None,
        copies: int = 1,
        ack: Ack = Ack.WRITTEN,
        *,
        shuffle_id: int | None = None,
        generation: int = 0,
    ) -> MapShuffle:
        """Register a shuffle of MAP partitions; idempotent for the same number and shape.

        maps: how many, if known. copies: 1 or 2, on different hosts; fewer if the cluster has not so many hosts.
        ack: how safe data is when a worker says so; a sealed file is synced at any level but MEMORY.
        Raises ConfigError, NoRoomError if no worker with room was there within `no_room_grace`, QuotaExceededError if
        the application or its user holds what it may, ConflictError if the number has another shape.
        """
        key, reply = self._register_shuffle(
            pb.PARTITION_KIND_MAP, partitions, maps, copies, ack, shuffle_id, generation
        )
        assignment = MapAssignment.decode(reply.assignment_array)
        return MapShuffle(self.ticket, key, partitions, assignment, known_addresses(reply.workers), ack)

    def _register_shuffle(
        self,
        kind: pb.PartitionKind,
        partitions: int,
        maps: int | None,
        copies: int,
        ack: Ack,
        shuffle_id: int | None,
        generation: int,
    ) -> tuple[ShuffleKey, pb.RegisterShuffleReply]:
        if not isinstance(ack, Ack):
            raise ConfigError(f"`ack` is one of {', '.join(f'Ack.{each.name}' for each in Ack)}, not {ack!r}")
        partitions = whole("partitions", partitions, 1, PARTITIONS_MAX)
        maps = 0 if maps is None else whole("maps", maps, 0, MAPS_MAX)
        copies = whole("copies", copies, 1, COPIES_MAX)
        generation = whole("generation", generation, 0, U32_MAX)
        if shuffle_id is None:
            number = self._next_number()
        else:
            number = whole("shuffle_id", shuffle_id, 0, U32_MAX)
            self._chosen.add(number)
        key = ShuffleKey(self.instance, ShuffleId(number), Generation(generation))
        request = pb.RegisterShuffleRequest(
            key=key_message(key),
            kind=kind,
            partitions=partitions,
            maps=maps,
            copies=copies,
            ack=ack,
            holder=self._holder,
        )
        reply = self._place(key, request)
        if reply.copies < copies:
            _log.warning(
                "fewer copies than asked for: the cluster has not enough hosts",
                extra={"asked": copies, "copies": reply.copies, "shuffle": str(key)},
            )
        return replace(key, state=StateId(reply.state)), reply

    def _place(self, key: ShuffleKey, request: pb.RegisterShuffleRequest) -> pb.RegisterShuffleReply:
        """Register, and again after pauses while there is no room, up to the grace."""
        end = time.monotonic() + self._no_room_grace
        for failures in itertools.count(1):
            try:
                reply: pb.RegisterShuffleReply = self._call("Shuffles/RegisterShuffle", request)
            except NoRoomError as error:
                if time.monotonic() >= end:
                    raise
                if failures == 1:
                    _log.warning("shuffle %s waits for at most %g s: %s", key, self._no_room_grace, error)
                time.sleep(min(pause_ns(failures, 1) / 1e9, max(end - time.monotonic(), 0.0)))
            else:
                return reply
        raise AssertionError("counting does not end")

    def _open_shuffle(
        self, shuffle_id: int, generation: int, kind: pb.PartitionKind
    ) -> tuple[ShuffleKey, pb.GetManifestReply]:
        number = ShuffleId(whole("shuffle_id", shuffle_id, 0, U32_MAX))
        key = ShuffleKey(self.instance, number, Generation(whole("generation", generation, 0, U32_MAX)))
        request = pb.GetManifestRequest(key=key_message(key), holder=self._holder)
        reply: pb.GetManifestReply = self._call("Shuffles/GetManifest", request)
        if reply.kind != kind:
            held, method = (
                ("REDUCE", "open_reduce_shuffle") if reply.kind == pb.PARTITION_KIND_REDUCE else ("MAP", "open_shuffle")
            )
            raise ConflictError(f"shuffle {key} has {held} partitions; open it with Session.{method}")
        return replace(key, state=StateId(reply.state)), reply

    def register_reduce_shuffle(
        self,
        partitions: int,
        maps: int | None = None,
        copies: int = 1,
        ack: Ack = Ack.WRITTEN,
        *,
        shuffle_id: int | None = None,
        generation: int = 0,
    ) -> ReduceShuffle:
        """Register a shuffle of REDUCE partitions, to which maps push; idempotent as register_map_shuffle.

        maps: how many, if known; a commit then needs a status of each. 0 says that there are none.
        ack: how safe a batch is when it is acknowledged. Raises as register_map_shuffle.
        """
        key, reply = self._register_shuffle(
            pb.PARTITION_KIND_REDUCE, partitions, maps, copies, ack, shuffle_id, generation
        )
        return ReduceShuffle(
            self.ticket,
            key,
            partitions,
            reply.assignment_array,
            workers_of(reply.workers),
            copies=reply.copies,
            maps=maps,
            ack=ack,
            raft_index=RaftIndex(reply.raft_index),
        )

    def open_reduce_shuffle(self, shuffle_id: int, generation: int = 0) -> ReduceShuffle:
        """Open a committed shuffle that was pushed to, to read it. Raises as open_shuffle."""
        key, reply = self._open_shuffle(shuffle_id, generation, pb.PARTITION_KIND_REDUCE)
        return ReduceShuffle(self.ticket, key, reply.partitions, b"", {})

    def open_shuffle(self, shuffle_id: int, generation: int = 0) -> MapShuffle:
        """Open a committed shuffle of this application to read it. Raises RetryError if it is not committed."""
        key, reply = self._open_shuffle(shuffle_id, generation, pb.PARTITION_KIND_MAP)
        return MapShuffle(self.ticket, key, reply.partitions, None, known_addresses(reply.workers))

    def workers(self) -> list[pb.WorkerInfo]:
        """Return the workers as the masters know them."""
        return list(self._call("Admin/ListWorkers", pb.ListWorkersRequest()).workers)

    def close(self) -> None:
        """Give the lease back. Shuffles go when no lease is left on the application."""
        if self.closed or self._pid != os.getpid():
            return
        runtime().loop.call_soon_threadsafe(self._renewal.cancel)
        try:
            self._call("Shuffles/Detach", pb.DetachRequest(instance=self.instance, holder=self._holder), DETACH_SECONDS)
        except ApplicationGoneError:
            pass  # the lease had ended already
        except RetryError as error:
            _log.warning("the masters do not answer; the lease ends by itself", extra={"error": str(error)})
        finally:
            self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _register(self) -> tuple[str, Instance]:
        instance = Instance(secrets.token_bytes(INSTANCE_BYTES))
        reply = self._call(
            "Shuffles/RegisterApplication",
            pb.RegisterApplicationRequest(
                instance=instance, name=self.app, user=self._user, lease_ms=self._lease_ms, holder=self._holder
            ),
            START_SECONDS,
        )
        self._lease_ms = reply.lease_ms
        self._show(reply.token)
        return reply.cluster_id, instance

    def _attach(self, instance: bytes | None) -> tuple[str, Instance]:
        reply = self._call(
            "Shuffles/Attach",
            pb.AttachRequest(instance=instance or b"", name=self.app, lease_ms=self._lease_ms, holder=self._holder),
            START_SECONDS,
        )
        self._lease_ms = reply.lease_ms
        self.app = reply.name
        cluster_id = runtime().control(self._endpoints, self._credentials).cluster_id
        self._show(reply.token)
        return cluster_id, Instance(reply.instance)

    def _show(self, token: str) -> None:
        """Show the application's token from now on, instead of the user's."""
        if self._credentials is not None and token:
            self._credentials = self._credentials.with_token(token)

    def _next_number(self) -> int:
        if self._numbers is not None:
            return next(number for number in self._numbers if number not in self._chosen)
        return ATTACHED_SHUFFLES_FROM + secrets.randbelow(ATTACHED_SHUFFLES_FROM)

    def _call(self, method: str, request: Any, deadline_s: float = START_SECONDS) -> Any:
        if self._pid != os.getpid():
            raise ConfigError("a session belongs to the process that made it; send tasks a MapShuffle instead")
        if self.closed:
            raise ConfigError("this session is closed; make another one, with attach=True for the shuffles of this one")
        if self._gone is not None:
            raise type(self._gone)(str(self._gone), status=self._gone.status)
        try:
            control = runtime().control(self._endpoints, self._credentials)
            return runtime().run(control.call(method, request, deadline_s=deadline_s))
        except HoldfastError as error:
            raise type(error)(explain(error, self._endpoints), status=error.status) from error

    async def _start_renewal(self) -> asyncio.Task[None]:
        return background(self._renew())

    async def _renew(self) -> None:
        request = pb.RenewLeaseRequest(instance=self.instance, holder=self._holder)
        usual = max(self._lease_ms, 1_000) / 1e3 / _RENEWALS
        while True:
            # Leases may be longer than tokens live, and each renewal brings a new token.
            left = self._credentials.half_life_left_s(time.time()) if self._credentials is not None else usual
            await asyncio.sleep(min(usual, max(left, 1.0)))
            try:
                control = runtime().control(self._endpoints, self._credentials)
                reply = await control.call("Shuffles/RenewLease", request, deadline_s=usual)
                if self._credentials is not None:
                    self._credentials.renew(reply.token)
            except RetryError as error:
                _log.warning("the lease could not be renewed; trying again", extra={"error": str(error)})
            except HoldfastError as error:
                self._gone = error
                _log.error("the application is gone", extra={"error": str(error), "instance": self.instance.hex()})
                return


def _instance(given: bytes | str | None) -> bytes | None:
    if not isinstance(given, str):
        return given
    try:
        return bytes.fromhex(given)
    except ValueError:
        return b""


def _user() -> str:
    try:
        return getpass.getuser().encode(errors="replace").decode()  # the environment may hold any bytes
    except (KeyError, OSError):
        return ""  # a container without an entry for this user
