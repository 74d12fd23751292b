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
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.client.checks import AckName, ack_of, checked_tags, seconds, text, whole
from holdfast.client.connection.addresses import known_addresses
from holdfast.client.connection.runtime import runtime
from holdfast.client.connection.ticket import Ticket, explain
from holdfast.client.core.write.revivals import NO_ROOM_GRACE_NS
from holdfast.client.core.write.route import pause_ns
from holdfast.client.notebook import table
from holdfast.client.read.fetch_options import FetchOptions
from holdfast.client.reduce_shuffle import ReduceShuffle, workers_of
from holdfast.client.shuffle import MapShuffle
from holdfast.client.worker_info import WorkerInfo, worker_info
from holdfast.common.errors import (
    ApplicationGoneError,
    ConfigError,
    ConflictError,
    HoldfastError,
    NoRoomError,
    RetryError,
    ends,
)
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import INSTANCE_BYTES, Generation, Instance, RaftIndex, ShuffleId, ShuffleKey, StateId
from holdfast.common.limits import COPIES_MAX, MAPS_MAX, NAME_BYTES_MAX, PARTITIONS_MAX, U32_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.net.endpoints import masters_of
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Loop
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background

#: What is said to one who opens a shuffle as one of the other kind.
_OTHER_KIND = {
    pb.PARTITION_KIND_MAP: "has MAP partitions; open it with Session.open_shuffle",
    pb.PARTITION_KIND_REDUCE: "has REDUCE partitions. If the Spark plug-in wrote it, only Spark can read it; otherwise "
    "open it with Session.open_reduce_shuffle",
}
#: Shuffle numbers from here on are drawn at random by sessions that attached.
ATTACHED_SHUFFLES_FROM = 1 << 31
#: Masters that elect a leader need about a second; those of a cluster that a session works with are waited for longer.
CALL_SECONDS = 30.0
#: A session that cannot be opened fails soon: mostly an address is wrong, or no master runs there.
OPEN_SECONDS = 8.0
#: A closing session does not wait long for masters that do not answer; the lease expires by itself.
DETACH_SECONDS = 5.0
#: Renewals per lease, so that two may be lost.
_RENEWALS = 3
#: Between two renewals at least, where a token is about to end.
_PAUSE_SECONDS = 1.0
#: Who waits for room longer than a day waits for something else.
_NO_ROOM_SECONDS_MAX = 86_400.0
#: As the masters have it: 30 days.
_LEASE_SECONDS_MAX = 30 * 86_400.0


class Session:
    """A connection to one application instance. Thread-safe."""

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        app: str = "",
        *,
        attach: bool | bytes | str = False,
        lease_seconds: float | None = None,
        no_room_grace: float = NO_ROOM_GRACE_NS / 1e9,
        user: str | None = None,
        tags: Sequence[str] = (),
        fetch: FetchOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Register the application `app`, or join an existing one.

        endpoints: the masters' HTTP addresses, "host:port,host:port,host:port" or a list; default: HOLDFAST_MASTERS.
        attach: join the newest living application `app`, or this instance id (16 bytes or 32 hex digits).
        lease_seconds: how long shuffles live without a renewal; default: the cluster's.
        no_room_grace: seconds to wait for a worker with room; then NoRoomError.
        user: owner, for quotas; default: this process's user. Only for a new application.
        tags: use only workers with all these tags and those of the user. Only for a new application.
        fetch: how readers choose between copies.
        credentials: CA and user's token of a secured cluster; default: the files that HOLDFAST_CA and
            HOLDFAST_TOKEN_FILE name.
        Raises ConfigError, RetryError if no master answers, ApplicationGoneError if the application does not exist.
        """
        self._endpoints = ",".join(masters_of(endpoints))
        app = text("app", app, "the application's name")
        instance = None if isinstance(attach, bool) else _instance(attach)
        if instance is not None and len(instance) != INSTANCE_BYTES:
            raise ConfigError(
                f"`attach` is True or an instance id of {INSTANCE_BYTES} bytes, or {2 * INSTANCE_BYTES} hex digits as "
                "`holdfast shuffles --json` shows them"
            )
        if len(app.encode()) > NAME_BYTES_MAX or not (app or instance):
            raise ConfigError(f"`app` is the application's name, 1 to {NAME_BYTES_MAX} bytes, not {app!r}")
        if lease_seconds is not None:
            lease_seconds = seconds("lease_seconds", lease_seconds, 0.001, _LEASE_SECONDS_MAX)
        self._no_room_grace = seconds("no_room_grace", no_room_grace, 0, _NO_ROOM_SECONDS_MAX)
        if user is not None and (attach or len(text("user", user, "a name").encode()) > NAME_BYTES_MAX):
            raise ConfigError(f"`user` is for a new application only, and has at most {NAME_BYTES_MAX} bytes")
        self._user = _user() if user is None else user
        self._tags = checked_tags(tags)
        if attach and self._tags:
            raise ConfigError("`tags` are for a new application only: one that exists has its own")
        self._ack_copies = COPIES_MAX
        if not isinstance(fetch, FetchOptions | None):
            raise ConfigError(f"`fetch` is FetchOptions(...), not {fetch!r}")
        self._fetch = fetch or FetchOptions()
        self.app = app
        self.closed = False
        self._pid = os.getpid()
        self._holder = secrets.token_bytes(16)
        self._lease_ms = int(lease_seconds * 1e3) if lease_seconds is not None else 0
        self._gone: HoldfastError | None = None
        if not isinstance(credentials, Credentials | None):
            raise ConfigError(f"`credentials` is Credentials.from_files(ca, token_file), not {credentials!r}")
        #: the user's; the masters give a token for the application
        self._user_credentials = credentials or Credentials.from_environment()
        self._ticket = runtime().run(self._attach(instance) if attach else self._register())
        self.cluster_id, self.instance = self._ticket.cluster_id, self._ticket.instance
        self._peers = runtime().open(self._ticket, self._new_token)
        self._numbers = itertools.count(0) if not attach else None
        #: numbers that the caller chose; counting passes them by, or two shuffles would be one
        self._chosen: set[int] = set()
        self._renewal = runtime().run(self._start_renewal())

    def __repr__(self) -> str:
        """Application, instance as messages name it, and whether it is closed."""
        return f"Session(app={self.app!r}, instance={self.instance.hex()[:8]}{', closed' if self.closed else ''})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        state = "closed" if self.closed else "application gone" if self._gone is not None else "open"
        known = {"instance": self.instance.hex()[:8], "state": state}
        return table(f"Session {self.app}", {**known, "cluster": self.cluster_id, "masters": self._endpoints}.items())

    @property
    def ack_copies(self) -> int:
        """Default of `ack_copies` for later shuffles, 1 to 5. Raises ConfigError."""
        return self._ack_copies

    @ack_copies.setter
    def ack_copies(self, copies: int) -> None:
        self._ack_copies = whole("ack_copies", copies, 1, COPIES_MAX)

    @property
    def ticket(self) -> Ticket:
        """What tasks need of this session."""
        return self._ticket

    def register_map_shuffle(
        self,
        partitions: int,
        maps: int | None = None,
        replication: int = 1,
        ack: Ack | AckName = Ack.WRITTEN,
        *,
        shuffle_id: int | None = None,
        generation: int = 0,
    ) -> MapShuffle:
        """Register a shuffle of MAP partitions; idempotent for the same number and shape.

        replication: copies, 1 to 5, on different hosts; fewer if fewer hosts live.
        ack: how safe unsealed data is when acknowledged; sealed files are synced.
        Raises ConfigError, NoRoomError if no worker has room within `no_room_grace`, QuotaExceededError,
        ConflictError if the number has another shape.
        """
        ack = ack_of(ack)
        key, reply = self._register_shuffle(
            pb.PARTITION_KIND_MAP, partitions, maps, replication, ack, shuffle_id, generation
        )
        assignment = MapAssignment.decode(reply.assignment_array)
        addresses = known_addresses(reply.workers)
        return MapShuffle(
            self.ticket, key, partitions, assignment, addresses, ack, copies_wanted=replication, copies=reply.copies
        )

    def _register_shuffle(
        self,
        kind: pb.PartitionKind,
        partitions: int,
        maps: int | None,
        copies: int,
        ack: Ack,
        shuffle_id: int | None,
        generation: int,
        ack_copies: int = 0,
    ) -> tuple[ShuffleKey, pb.RegisterShuffleReply]:
        partitions = whole("partitions", partitions, 1, PARTITIONS_MAX)
        maps = 0 if maps is None else whole("maps", maps, 0, MAPS_MAX)
        copies = whole("replication", copies, 1, COPIES_MAX)
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
            ack_copies=ack_copies,
            holder=self._holder,
        )
        reply = self._place(key, request)
        if reply.copies < copies:
            log_event(
                LogEvent.SHUFFLE_FEWER_COPIES,
                shuffle=key,
                copies=reply.copies,
                wanted=copies,
                lost_workers=list(reply.lost_workers),
            )
        return key._replace(state=StateId(reply.state)), reply

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
                    log_event(LogEvent.SHUFFLE_WAITING, shuffle=key, seconds_max=self._no_room_grace, reason=error)
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
            raise ConflictError(f"shuffle {key} {_OTHER_KIND[reply.kind]}")
        return key._replace(state=StateId(reply.state)), reply

    def register_reduce_shuffle(
        self,
        partitions: int,
        maps: int | None = None,
        replication: int = 1,
        ack: Ack | AckName = Ack.WRITTEN,
        *,
        ack_copies: int | None = None,
        shuffle_id: int | None = None,
        generation: int = 0,
    ) -> ReduceShuffle:
        """Register a shuffle of REDUCE partitions, to which maps push. Raises as register_map_shuffle.

        maps: how many; the commit then needs a status of each. 0: no maps.
        ack_copies: copies that hold a batch before it is acknowledged, 1 to `replication`; default: the session's.
        """
        replication = whole("replication", replication, 1, COPIES_MAX)
        if ack_copies is None:
            ack_copies = min(self._ack_copies, replication)
        ack_copies = whole("ack_copies", ack_copies, 1, replication)
        ack = ack_of(ack)
        key, reply = self._register_shuffle(
            pb.PARTITION_KIND_REDUCE, partitions, maps, replication, ack, shuffle_id, generation, ack_copies
        )
        return ReduceShuffle(
            self.ticket,
            key,
            partitions,
            reply.assignment_array,
            workers_of(reply.workers),
            copies_wanted=replication,
            copies=reply.copies,
            maps=maps,
            ack=ack,
            ack_copies=ack_copies,
            raft_index=RaftIndex(reply.raft_index),
        )

    def open_reduce_shuffle(self, shuffle_id: int, generation: int = 0) -> ReduceShuffle:
        """Open a committed shuffle of REDUCE partitions. Raises as open_shuffle."""
        key, reply = self._open_shuffle(shuffle_id, generation, pb.PARTITION_KIND_REDUCE)
        return ReduceShuffle(self.ticket, key, reply.partitions, b"", {})

    def open_shuffle(self, shuffle_id: int, generation: int = 0) -> MapShuffle:
        """Open a committed shuffle of MAP partitions. Raises RetryError before the commit, ConflictError for REDUCE."""
        key, reply = self._open_shuffle(shuffle_id, generation, pb.PARTITION_KIND_MAP)
        return MapShuffle(self.ticket, key, reply.partitions, None, known_addresses(reply.workers))

    def workers(self) -> list[WorkerInfo]:
        """Return the workers of the cluster."""
        return list(map(worker_info, self._call("Admin/ListWorkers", pb.ListWorkersRequest()).workers))

    def close(self) -> None:
        """Release the lease. Without any, the shuffles are dropped."""
        if self.closed or self._pid != os.getpid():
            return
        runtime().loop.call_soon_threadsafe(self._renewal.cancel)
        try:
            self._call("Shuffles/Detach", pb.DetachRequest(instance=self.instance, holder=self._holder), DETACH_SECONDS)
        except ApplicationGoneError:
            pass  # the lease had ended already
        except RetryError as error:
            log_event(LogEvent.LEASE_RELEASE_FAILED, instance=self.instance.hex(), reason=error)
        finally:
            self.closed = True
            runtime().run(runtime().release(self._ticket))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _register(self) -> Ticket:
        instance = Instance(secrets.token_bytes(INSTANCE_BYTES))
        request = pb.RegisterApplicationRequest(
            instance=instance,
            name=self.app,
            user=self._user,
            lease_ms=self._lease_ms,
            holder=self._holder,
            tags=self._tags,
        )
        cluster_id, reply = await self._as_user("Shuffles/RegisterApplication", request, self._user_credentials)
        return self._begun(cluster_id, instance, reply)

    async def _attach(self, instance: bytes | None) -> Ticket:
        request = pb.AttachRequest(
            instance=instance or b"", name=self.app, lease_ms=self._lease_ms, holder=self._holder
        )
        cluster_id, reply = await self._as_user("Shuffles/Attach", request, self._user_credentials)
        self.app = reply.name
        return self._begun(cluster_id, Instance(reply.instance), reply)

    async def _as_user(
        self,
        method: str,
        request: Any,
        credentials: Credentials | None,
        cluster_id: str = "",
        deadline_s: float | None = None,
    ) -> tuple[str, Any]:
        """Make a call as the user, before there is a token for the application or when that has ended; return the
        cluster's id and the reply."""
        from holdfast.common.net.control import ControlClient

        try:
            async with ControlClient(self._endpoints, credentials, cluster_id=cluster_id) as control:
                reply = await control.call(method, request, deadline_s=deadline_s or OPEN_SECONDS)
                return control.cluster_id, reply
        except HoldfastError as error:
            raise error.reworded(explain(error, self._endpoints)) from error

    def _begun(self, cluster_id: str, instance: Instance, reply: Any) -> Ticket:
        """The ticket shows the application's token from now on, instead of the user's."""
        self._lease_ms = reply.lease_ms
        credentials = self._user_credentials
        if credentials is not None and reply.token:
            credentials = credentials.with_token(reply.token)
        grace_ns = int(self._no_room_grace * 1e9)
        return Ticket(self._endpoints, cluster_id, instance, self._holder, grace_ns, self._fetch, credentials)

    def _next_number(self) -> int:
        if self._numbers is not None:
            return next(number for number in self._numbers if number not in self._chosen)
        return ATTACHED_SHUFFLES_FROM + secrets.randbelow(ATTACHED_SHUFFLES_FROM)

    def _call(self, method: str, request: Any, deadline_s: float = CALL_SECONDS) -> Any:
        if self._pid != os.getpid():
            raise ConfigError("a session belongs to the process that made it; send tasks a MapShuffle instead")
        if self.closed:
            raise ConfigError("this session is closed; make another one, with attach=True for the shuffles of this one")
        if self._gone is not None:
            raise self._gone.reworded(str(self._gone)) from self._gone
        try:
            return runtime().run(runtime().call(self._ticket, method, request, deadline_s))
        except HoldfastError as error:
            raise error.reworded(explain(error, self._endpoints)) from error

    async def _start_renewal(self) -> asyncio.Task[None]:
        return background(self._renew())

    async def _renew(self) -> None:
        """Renew until the application is gone: while one that lives is not renewed, its data is on the way out, so
        nothing else that anybody answers, and no fault of ours, ends this."""
        usual = max(self._lease_ms, 1_000) / 1e3 / _RENEWALS
        while True:
            # Leases may be longer than tokens live, and each renewal brings a new token.
            credentials = self._peers.credentials
            left = credentials.half_life_left_s(time.time()) if credentials is not None else usual
            await asyncio.sleep(min(usual, max(left, _PAUSE_SECONDS)))
            try:
                await self._renew_within(usual)
            except HoldfastError as error:
                if ends(error, Loop.LEASE):
                    self._gone = error
                    log_event(LogEvent.APPLICATION_GONE, instance=self.instance.hex(), reason=error)
                    return
                log_event(LogEvent.LEASE_RENEWAL_FAILED, instance=self.instance.hex(), reason=error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is logged, and the lease is renewed next time
                log_event(LogEvent.LEASE_INTERNAL_ERROR, instance=self.instance.hex(), trace=error)

    async def _renew_within(self, seconds: float) -> None:
        request = pb.RenewLeaseRequest(instance=self.instance, holder=self._holder)
        reply = await runtime().call(self._ticket, "Shuffles/RenewLease", request, seconds)
        if self._peers.credentials is not None:
            self._peers.credentials.renew(reply.token)

    async def _new_token(self, seconds: float) -> str:
        """Get another token for this application, for the same lease: this process slept past the end of the one that
        it had, or the cluster has another secret by now. The user's token, as its file has it now, brings it."""
        user = self._user_credentials
        request = pb.AttachRequest(instance=self.instance, holder=self._holder, lease_ms=self._lease_ms)
        credentials = None if user is None else user.read_again()
        _, reply = await self._as_user("Shuffles/Attach", request, credentials, self.cluster_id, seconds)
        log_event(LogEvent.TOKEN_REPLACED, instance=self.instance.hex())
        return str(reply.token)


def connect(
    endpoints: str | Sequence[str] | None = None,
    app: str = "",
    *,
    attach: bool | bytes | str = False,
    lease_seconds: float | None = None,
    no_room_grace: float = NO_ROOM_GRACE_NS / 1e9,
    user: str | None = None,
    tags: Sequence[str] = (),
    fetch: FetchOptions | None = None,
    credentials: Credentials | None = None,
) -> Session:
    """Open a session; use it as a context manager, or close it.

    app: the application's name; default of a new one: the name of the running program.
    Other arguments and errors are those of holdfast.client.Session.
    """
    return Session(
        endpoints,
        app if app or attach else _program(),
        attach=attach,
        lease_seconds=lease_seconds,
        no_room_grace=no_room_grace,
        user=user,
        tags=tags,
        fetch=fetch,
        credentials=credentials,
    )


def check_session(given: object) -> None:
    """Raise ConfigError unless this is a session."""
    if not isinstance(given, Session):
        raise ConfigError(f"`session` is a holdfast.client.Session, not {given!r}")


def _instance(given: bytes | str) -> bytes:
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


def _program() -> str:
    """The name of what runs: of the file, or with `python -m` of the package."""
    path = Path((getattr(sys, "argv", None) and sys.argv[0]) or "")
    name = path.parent.name if path.stem == "__main__" else path.stem
    return name.encode(errors="replace").decode() or "python"
