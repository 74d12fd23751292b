"""The client of the control plane: finds the leader, calls it, and calls the next leader after a change.

Rules
* One client per process and loop; concurrent calls share it. After a fork the child draws a new client id and opens its
  own connections.
* A command keeps its call number over all its tries, so that it is applied once.
* A try ends when the master answers, when its connection fails, or when another master has become the leader, which
  is asked in the background while an answer is awaited; so neither a killed nor a paused leader is waited for.
* While no leader is known all masters are asked, every 50 ms at first and slower later, until the deadline; not where
  every endpoint is an unknown host or answers as something else than a master, and none ever did as one, or where
  masters refuse the token, which ends the call at once.
* Only a status that a master of the cluster answered with is final (answers.py, common/errors.py). Whatever else comes
  from the leader's address means that the leader is looked for.
* Calls go over HTTP unless gRPC is asked for: the same methods at a third of the CPU (ADR 4).
  Requests that are longer than a message over gRPC may be always do.

Used by workers, sessions, drills and the CLI. Endpoints name the masters' HTTP ports; gRPC addresses are learnt there.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Literal, Self

from google.protobuf.message import DecodeError, Message

from holdfast.common.errors import (
    HoldfastError,
    NotLeaderError,
    NotMasterError,
    OtherClusterError,
    ProtocolError,
    RetryError,
    TokenExpiredError,
    UnauthenticatedError,
    error_for,
    worth_another_try,
)
from holdfast.common.log_events import LogEvent
from holdfast.common.net.answers import not_master
from holdfast.common.net.endpoints import parse_endpoints
from holdfast.common.net.http_client import HttpClient, UnknownHostError
from holdfast.common.net.methods import GRPC_MESSAGE_BYTES_MAX, METHODS, Method
from holdfast.common.net.transports import ControlTransport, GrpcTransport
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import awaited, background
from holdfast.common.system.waiting import said

#: How far the numbers of calls under way may be apart; the answer table remembers twice as many calls of a client.
COMMANDS_AT_ONCE_MAX = 64
#: No command is tried for longer: the answer table forgets a client after fifteen minutes.
DEADLINE_S_MAX = 600.0
_PROBE_TIMEOUT_S = 0.5
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 0.5
#: A search for the leader that takes so long logs the cause, and again as often. An election takes a second.
_SAY_S, _SAY_AGAIN_S = 3.0, 30.0
#: While a call is not answered another master is asked for the leader: this often for the time of an election, then
#: ever more slowly, since what waits that long is a long poll.
_WATCH_MIN_S, _WATCH_MAX_S = 0.15, 2.0
_ELECTION_S = 2.0


class ControlClient:
    """Calls methods of the masters by name; see the rules above."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        credentials: CredentialsProvider | None = None,
        *,
        cluster_id: str = "",
        transport: Literal["grpc", "http"] = "http",
        log_missing: bool = True,
    ) -> None:
        """`endpoints` are "host:port" of the masters' HTTP ports, as a list or separated by commas; `credentials`:
        of a secured cluster; `cluster_id` is the cluster that is meant, where it is known; `log_missing`: a
        search for the leader that lasts is logged. Opens nothing."""
        self.endpoints = parse_endpoints(endpoints)
        self._credentials = credentials
        #: the one that is meant, or that answered first; "" before
        self.cluster_id = cluster_id
        #: highest Raft index seen in any answer
        self.raft_index = 0
        self._kind = transport
        self._log_missing = log_missing
        self._pid = 0
        self._begin()

    def _begin(self) -> None:
        """Start afresh in this process: nothing of the parent's connections can be used."""
        self._pid = os.getpid()
        self._http = HttpClient(self._credentials)
        self._transport: ControlTransport = GrpcTransport(self._credentials) if self._kind == "grpc" else self._http
        self._leader = ""  # its HTTP address
        self._known = dict.fromkeys(self.endpoints, "")  # HTTP address -> gRPC address
        #: why each of them was not found to lead when it was asked last
        self._causes: dict[str, HoldfastError] = {}
        self._search: asyncio.Task[str] | None = None
        #: tries under way: at which master, since when
        self._waiting: dict[asyncio.Future[bytes], tuple[str, float]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._numbers = _Numbers(b"", 0)
        #: whether a master of the cluster ever answered
        self._met = False
        self._under_way = 0
        #: when it may be said again that there is no leader
        self._say_at = 0.0
        self._closed = False
        self._http.cluster_id = self._transport.cluster_id = self.cluster_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Calls under way fail."""
        if self._pid != os.getpid():
            return
        self._closed = True
        for task in (self._search, self._watch):
            if task is not None:
                task.cancel()
        await self._transport.close()
        await self._http.close()

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return self._under_way == 0

    async def call(self, method: str, request: Message, deadline_s: float = 30.0, waiting: str = "") -> Any:
        """Call "Service/Method" on the leader; return its reply message. `waiting` is what the log says that a long
        call waits for; by default that is the answer.

        Retries what may succeed later until `deadline_s`, then raises RetryError naming the last cause. A refusal is
        raised at once as the exception of common/errors.py; NOT_COMMITTED is one, though a RetryError.
        """
        if self._pid != os.getpid():
            self._begin()
        if self._closed:
            raise HoldfastError("this control client is closed")
        known = METHODS[method]
        if request.ByteSize() > known.request_bytes_max:
            most = known.request_bytes_max
            raise ProtocolError(f"a request of {method} has at most {most} bytes", status=Status.TOO_LARGE)
        end = asyncio.get_running_loop().time() + min(deadline_s, DEADLINE_S_MAX)
        self._under_way += 1
        try:
            with said(waiting or f"the masters' answer to {method}"):
                if not known.is_command:
                    return await self._until(end, known, request.SerializeToString())
                return await self._command(end, known, request)
        finally:
            self._under_way -= 1

    async def ask(self, address: str, method: str, request: Message, timeout_s: float = 2.0) -> Any:
        """Make one try at exactly the master at this HTTP address; return its reply message."""
        if self._pid != os.getpid():
            self._begin()
        known = METHODS[method]
        answer = await self._http.call(address, known.path, request.SerializeToString(), timeout_s)
        return self._read(address, known, answer)

    async def masters(self, timeout_s: float = 1.0) -> dict[str, pb.DiscoverReply | None]:
        """Ask all endpoints at once for their identity; None for one that did not answer."""
        replies = await asyncio.gather(*(self._discover(each, timeout_s) for each in self.endpoints))
        return dict(zip(self.endpoints, replies, strict=True))

    async def _command(self, end: float, method: Method, request: Message) -> Any:
        numbered = method.request()
        numbered.CopyFrom(request)
        call: pb.CallId = numbered.call  # type: ignore[attr-defined]
        if call.client:
            return await self._until(end, method, numbered.SerializeToString())
        while True:
            if not self._numbers.client:
                await self._find(end)  # so that the id is drawn at an index that is known
            if not self._numbers.client:
                self._numbers = _Numbers(secrets.token_bytes(16), self.raft_index)
            numbers, tries = self._numbers, _Tries()
            call.client, call.number, call.raft_index = numbers.client, await numbers.take(end), numbers.drawn_index
            call.open_from = numbers.open_from
            try:
                return await self._until(end, method, numbered.SerializeToString(), tries)
            except HoldfastError as error:
                # Refused at the first try: it was never sent before, so it was surely not applied, and another id may
                # be drawn.
                if error.status is not Status.CALL_TOO_OLD or tries.count > 1:
                    raise
                if self._numbers is numbers:
                    self._numbers = _Numbers(b"", 0)
            finally:
                numbers.give_back(call.number)

    async def _until(self, end: float, method: Method, request: bytes, tries: _Tries | None = None) -> Any:
        """Try until the deadline. Every way out of a try that is worth another one comes back here."""
        tries = tries or _Tries()
        loop = asyncio.get_running_loop()
        while True:
            leader = self._leader or await self._find(end)
            tries.count += 1
            try:
                return self._read(leader, method, await self._try(leader, method, request, end))
            except HoldfastError as error:
                if not worth_another_try(error) or error.status is Status.NOT_COMMITTED:
                    raise
                tries.last = error
                pause = self._after(error, leader, tries)
            if loop.time() + pause >= end:
                raise RetryError(
                    f"{method.name}: no success in {tries.count} tries: {tries.last}", status=tries.last.status
                )
            if pause:
                await asyncio.sleep(pause)

    def _after(self, error: HoldfastError, leader: str, tries: _Tries) -> float:
        """Learn from a failed try; return the seconds to wait before the next."""
        if error.status is Status.BUSY:
            return tries.pause()
        if self._leader == leader:
            self._leader = ""
        if isinstance(error, NotLeaderError) and error.leader and error.leader != leader:
            if tries.hints < len(self._known):
                tries.hints += 1
                self._leader = error.leader
                return 0.0
            tries.hints = 0
        return 0.0 if tries.count == 1 else tries.pause()

    async def _try(self, leader: str, method: Method, request: bytes, end: float) -> bytes:
        """One try at one master, cancelled as soon as another leader is known."""
        transport = self._http if len(request) > GRPC_MESSAGE_BYTES_MAX else self._transport
        address = leader if transport is self._http else self._known.get(leader, "")
        if not address:
            reply = await self._discover(leader, _PROBE_TIMEOUT_S)
            if reply is None:
                raise RetryError(f"master {self._causes[leader]}")
            address = self._known[leader]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        answered = transport.call(address, method.path, request, max(end - begun, 0.01))
        self._waiting[answered] = (leader, begun)
        if self._watch is None or self._watch.done():
            self._watch = background(self._watch_leaders())
        try:
            return await answered
        finally:
            del self._waiting[answered]

    async def _watch_leaders(self) -> None:
        """While calls wait long for their answers, check that their master is leader; end their tries if not."""
        loop = asyncio.get_running_loop()
        wait = _WATCH_MIN_S
        while self._waiting:
            await asyncio.sleep(wait)
            now = loop.time()
            late = {leader for leader, begun in self._waiting.values() if now - begun >= _WATCH_MIN_S}
            recent = any(now - begun < _ELECTION_S for _, begun in self._waiting.values())
            for leader in late:
                if await self._moved(leader):
                    gone = RetryError(f"master {leader} does not answer and is no longer the leader")
                    for answered, (asked, _) in list(self._waiting.items()):
                        if asked == leader and not answered.done():
                            answered.set_exception(gone)
            wait = _WATCH_MIN_S if recent else min(wait * 1.5, _WATCH_MAX_S)

    async def _moved(self, leader: str) -> bool:
        """Ask one other master for the current leader, and remember it."""
        others = [each for each in self._known if each != leader]
        if not others:
            return False
        reply = await self._discover(random.choice(others), _PROBE_TIMEOUT_S)
        if reply is None or reply.leader_http in ("", leader):
            return False
        self._leader = reply.leader_http
        return True

    async def _find(self, end: float) -> str:
        """Return the HTTP address of the leader; callers at the same time share one search. Raises RetryError."""
        loop = asyncio.get_running_loop()
        pause, begun = _PAUSE_MIN_S, loop.time()
        while True:
            if self._search is None or self._search.done():
                self._search = awaited(self._ask_all())
            search = self._search
            await asyncio.wait((search,), timeout=max(end - loop.time(), 0.01))
            if search.done() and not search.cancelled() and search.result():
                self._leader = search.result()
                return self._leader
            refused = self._refused()
            if refused is not None:
                raise refused
            hopeless = self._hopeless()
            if hopeless or loop.time() + pause >= end:
                raise (hopeless or RetryError)(self._no_leader())
            if self._log_missing and loop.time() >= max(begun + _SAY_S, self._say_at):
                self._say_at = loop.time() + _SAY_AGAIN_S
                log_event(LogEvent.LEADER_MISSING, seconds_max=round(end - loop.time()), reason=self._no_leader())
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(pause * 1.1, _PAUSE_MAX_S)

    def waits_for(self) -> str:
        """Why a call that is under way has no answer yet."""
        return f"the leader, {self._leader}, has not answered" if self._leader else self._no_leader()

    def _no_leader(self) -> str:
        """Why no leader is known: what each master answered last."""
        causes = (str(self._causes.get(each, f"{each}: not asked yet")) for each in self._known)
        return f"there is no leader: {'; '.join(causes)}"

    def _refused(self) -> HoldfastError | None:
        """A master's error about the token, unless another accepts it: they have one secret, so neither asking again
        with the same token nor asking those that are silent would change anything. And where no master of ours ever
        answered: that all answers are of another cluster."""
        causes = [self._causes.get(each) for each in self._known]
        if any(isinstance(each, NotLeaderError) for each in causes):
            return None
        others = [each.cluster_id for each in causes if isinstance(each, OtherClusterError)]
        if not self._met and len(others) == len(causes):
            reason = f"the masters are of cluster {others[0]!r}, not of {self.cluster_id!r}"
            return error_for(Status.WRONG_CLUSTER, reason)
        of_token = (each for each in causes if isinstance(each, UnauthenticatedError | TokenExpiredError))
        return next((each.reworded(str(each)) for each in of_token), None)

    def _hopeless(self) -> type[RetryError] | None:
        """What to raise if no endpoint names a master, nor ever did: neither an election nor a start would change
        that."""
        causes = [self._causes.get(each) for each in self._known]
        if self._met or not all(isinstance(each, UnknownHostError | NotMasterError) for each in causes):
            return None
        return NotMasterError if any(isinstance(each, NotMasterError) for each in causes) else UnknownHostError

    async def _ask_all(self) -> str:
        """Ask all masters at once; return the first that is the leader by its own answer, "" if none is."""
        asked = [awaited(self._discover(each, _PROBE_TIMEOUT_S)) for each in list(self._known)]
        try:
            for answered in asyncio.as_completed(asked):
                reply = await answered
                if (
                    reply is not None
                    and reply.leader_http
                    and any(each.leader and each.name == reply.name for each in reply.masters)
                ):
                    return str(reply.leader_http)
            return ""
        finally:
            for each in asked:
                each.cancel()

    async def _discover(self, address: str, timeout_s: float) -> pb.DiscoverReply | None:
        try:
            reply: pb.DiscoverReply = await self.ask(address, "Shuffles/Discover", pb.DiscoverRequest(), timeout_s)
        except HoldfastError as error:
            self._causes[address] = error
            return None
        if self.cluster_id not in ("", reply.cluster_id):  # the two first answers came from two clusters
            reason = f"{address}: is a master of another cluster, {reply.cluster_id}"
            self._causes[address] = OtherClusterError(reason, cluster_id=reply.cluster_id)
            return None
        self.cluster_id = self._http.cluster_id = self._transport.cluster_id = reply.cluster_id
        self._met = True
        self._causes[address] = NotLeaderError(f"{address}: answers, but has no leader")
        for master in reply.masters:
            if master.name == reply.name and master.http:
                self._known[master.http] = self._known[address] = master.grpc
            elif master.http:
                self._known.setdefault(master.http, "")
        return reply

    def _read(self, address: str, method: Method, data: bytes) -> Any:
        reply = method.reply()
        try:
            reply.ParseFromString(data)
        except DecodeError as error:
            raise not_master(address, f"{method.name}: this is not its reply: {error}") from error
        self.raft_index = max(self.raft_index, getattr(reply, "raft_index", 0))
        return reply


class _Numbers:
    """The call numbers of one client id, and which of them are under way."""

    def __init__(self, client: bytes, drawn_index: int) -> None:
        self.client = client
        self.drawn_index = drawn_index
        self._last = 0
        self._open: dict[int, None] = {}  # lowest first
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()

    async def take(self, end: float) -> int:
        """Return the next number. Waits while the oldest call under way is so far back that its answer might be
        forgotten before it is retried; raises RetryError at `end`."""
        try:
            async with asyncio.timeout_at(end) if self._open else nullcontext(), self._turn:
                while self._open and self._last + 1 - next(iter(self._open)) >= COMMANDS_AT_ONCE_MAX:
                    self._moved.clear()
                    await self._moved.wait()
                self._last += 1
                self._open[self._last] = None
                return self._last
        except TimeoutError:
            raise RetryError(f"{len(self._open)} calls of this client wait for their answers") from None

    @property
    def open_from(self) -> int:
        """The lowest number under way, where there is one: all below are over, and may be forgotten."""
        return next(iter(self._open))

    def give_back(self, number: int) -> None:
        """A call came to its end."""
        del self._open[number]
        self._moved.set()


class _Tries:
    """The history of one call."""

    def __init__(self) -> None:
        self.count = 0
        self.hints = 0
        self.last: HoldfastError = RetryError("never tried")
        self._pause = _PAUSE_MIN_S

    def pause(self) -> float:
        """Return the seconds to wait now; grows to half a second, with jitter."""
        now, self._pause = self._pause, min(self._pause * 1.5, _PAUSE_MAX_S)
        return now * random.uniform(0.75, 1.25)
