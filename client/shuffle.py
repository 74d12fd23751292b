"""A shuffle as a client sees it: where maps write, what was committed, where to read.

Rules: picklable and light, so that it travels to tasks with everything they need; a task that writes or reads talks
to workers, and to masters only when something is not where it was. Calls are synchronous. Called by users, the
Spark API, the demo, drills and benchmarks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from holdfast.client.addresses import known_addresses, sights_of
from holdfast.client.carried import seal, share_with_active, unseal
from holdfast.client.compress import Buffer
from holdfast.client.core.read_book import Sight
from holdfast.client.core.revivals import NO_ROOM_GRACE_NS
from holdfast.client.fetch_options import FetchOptions
from holdfast.client.reader import RangeReader, read_partitions
from holdfast.client.reads import reads_of
from holdfast.client.runtime import runtime
from holdfast.client.spool import SPOOL_BYTES
from holdfast.client.status import MapStatus, winners_of
from holdfast.client.stream_reader import Record
from holdfast.client.writer import MapWriter
from holdfast.common.batch import Codec
from holdfast.common.errors import (
    ApplicationGoneError,
    ConflictError,
    GiveUpError,
    HoldfastError,
    RetryError,
    Status,
    TokenExpiredError,
)
from holdfast.common.ids import AttemptId, Instance, MapId, PartitionId, ShuffleKey, WorkerId
from holdfast.common.layouts import MapAssignment, MapWinners
from holdfast.common.limits import KIB, LONG_POLL_MS_MAX
from holdfast.common.messages import Ack
from holdfast.common.net.keys import key_message
from holdfast.common.net.waiting import said
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.shown import Credentials
from holdfast.common.sizes import fewer_copies
from holdfast.common.steady import Steady

_log = logging.getLogger(__name__)

#: Manifests up to this size travel with the shuffle to its tasks; larger ones are fetched once per process.
MANIFEST_CARRIED_BYTES_MAX = 256 * KIB
#: Manifests that a process keeps.
_MANIFESTS_MAX = 8
#: How long a worker may be gone before a file of which it has the only copy is called lost; as worker.return_grace.
RETURN_GRACE_SECONDS = 30.0
#: How long reader() waits for the commit.
COMMIT_WAIT_SECONDS = 60.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a process needs to act for an application: who the masters are, and under whose lease."""

    endpoints: str
    cluster_id: str
    instance: Instance
    holder: bytes
    #: how long pushes wait while no worker has room
    no_room_grace_ns: int = NO_ROOM_GRACE_NS
    #: how readers choose between copies
    fetch: FetchOptions = FetchOptions()
    #: what a secured cluster wants to see
    credentials: Credentials | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """With the token sealed: what is pickled is kept, shown and copied by others."""
        shown, carried = self.credentials, None
        if shown is not None:
            share_with_active()
            carried = shown.ca_pem, seal(shown.token)
        plain = self.endpoints, self.cluster_id, self.instance, self.holder, self.no_room_grace_ns, self.fetch
        return _unpickled, (plain, carried)


def _unpickled(plain: tuple[Any, ...], carried: tuple[str, bytes] | None) -> Ticket:
    """The ticket whose fields these are. Raises ConfigError where its token cannot be opened."""
    ticket = Ticket(*plain)
    return ticket if carried is None else replace(ticket, credentials=Credentials(carried[0], unseal(carried[1])))


@dataclass(frozen=True)
class Manifest:
    """What was committed: the winner of every map, and where the workers were at that time."""

    winners_array: bytes
    addresses: Mapping[WorkerId, str]
    #: what the masters said of these workers then
    sights: Mapping[WorkerId, Sight] = field(default_factory=dict)

    @cached_property
    def winners(self) -> MapWinners:
        """The winners, decoded; raises ProtocolError."""
        return MapWinners.decode(self.winners_array)


@dataclass
class Shuffle:
    """One generation of one shuffle, whatever kind its partitions are of."""

    ticket: Ticket
    key: ShuffleKey
    partitions: int
    #: copies that were asked for, and those that could be placed; 0 where it was opened to be read: not known
    copies_wanted: int = field(default=0, kw_only=True)
    copies: int = field(default=0, kw_only=True)
    #: epochs that had fewer copies than asked for when this object committed; of MAP partitions each map has one
    under_replicated: int = field(default=0, init=False)

    def why_dropped(self) -> HoldfastError | None:
        """Return the masters' word that the shuffle was dropped, None if it was not or they do not answer."""
        request = pb.GetManifestRequest(key=self.key_message(), holder=self.ticket.holder)
        try:
            self._call("Shuffles/GetManifest", request)
        except (ApplicationGoneError, GiveUpError) as error:
            return error
        except HoldfastError:
            return None
        return None

    def forget_manifest(self) -> None:
        """Ask for the manifest anew when it is needed next: more copies may have been sealed since it was read."""

    def unregister(self) -> None:
        """Forget the shuffle: workers delete its files."""
        request = pb.UnregisterShuffleRequest(key=self.key_message(), holder=self.ticket.holder)
        self._call("Shuffles/UnregisterShuffle", request)

    def key_message(self) -> pb.ShuffleKey:
        """The key as the control plane writes it."""
        return key_message(self.key)

    async def _poll_manifest(self, *, offers_winners: bool = False) -> pb.GetManifestReply:
        """Ask until the shuffle is committed, for up to COMMIT_WAIT_SECONDS; raises what the masters refuse."""
        wait_ms = min(LONG_POLL_MS_MAX, 5_000)
        request = pb.GetManifestRequest(
            key=self.key_message(), wait_ms=wait_ms, holder=self.ticket.holder, offers_winners=offers_winners
        )
        end = asyncio.get_running_loop().time() + COMMIT_WAIT_SECONDS
        deadline_s = wait_ms / 1e3 + _ANSWER_SECONDS
        reply: pb.GetManifestReply | None = None
        with said(f"the commit of shuffle {self.key}"):
            while reply is None:
                try:
                    reply = await runtime().call(self.ticket, "Shuffles/GetManifest", request, deadline_s)
                except RetryError as error:
                    if error.status is not Status.NOT_COMMITTED or asyncio.get_running_loop().time() > end:
                        raise
        if reply.partitions != self.partitions:
            raise GiveUpError(f"shuffle {self.key} has {reply.partitions} partitions, not {self.partitions}")
        return reply

    def _say_winners(self, winners: bytes, deadline_s: float = 30.0, waiting: str = "") -> None:
        """Commit these winners, and tell of copies that are missing."""
        request = pb.CommitRequest(key=self.key_message(), winners_array=winners, holder=self.ticket.holder)
        reply: pb.CommitReply = self._call("Shuffles/Commit", request, deadline_s, waiting)
        self.under_replicated = reply.under_replicated
        if reply.under_replicated:
            told = fewer_copies(reply.under_replicated, reply.awaited)
            away = f" (waits for {', '.join(reply.waits_for)})" if reply.waits_for else ""
            _log.warning("shuffle %s was committed; %s%s", self.key, told, away)

    def _call(self, method: str, request: Any, deadline_s: float = 30.0, waiting: str = "") -> Any:
        """`waiting` is what the log says that a long call waits for."""
        try:
            return runtime().run(runtime().call(self.ticket, method, request, deadline_s, waiting))
        except HoldfastError as error:
            raise error.reworded(explain(error, self.ticket.endpoints)) from error


@dataclass
class MapShuffle(Shuffle):
    """One generation of one shuffle of MAP partitions. Make one with Session.register_map_shuffle or open_shuffle."""

    #: None where it was opened to be read
    assignment: MapAssignment | None
    addresses: Mapping[WorkerId, str]
    ack: Ack = Ack.WRITTEN
    _manifest: Manifest | None = field(default=None, repr=False)

    def writer(
        self, map_id: int, attempt: int, *, codec: Codec = Codec.NONE, spool_bytes: int = SPOOL_BYTES
    ) -> MapWriter:
        """Begin the output of one attempt of one map; `attempt` is unique in the application."""
        if self.assignment is None:
            raise ConflictError(f"shuffle {self.key} was opened to be read")
        return MapWriter(self, self.assignment, MapId(map_id), AttemptId(attempt), codec=codec, spool_bytes=spool_bytes)

    def commit(self, statuses: Iterable[MapStatus]) -> None:
        """Say which attempt of every map counts: the masters' final word, readers may begin.

        Maps are 0 to m-1. The same winners again are fine. Of how many maps there are fewer copies than asked for is
        logged, and told by `under_replicated`. Raises ConflictError for others or for a gap, ConfigError for anything
        that is no status.
        """
        array = winners_of(statuses, self.key, self.partitions).encode()
        self._say_winners(array)
        self._manifest = Manifest(array, self.addresses)

    def reader(self, partitions: Iterable[int], *, return_grace: float = RETURN_GRACE_SECONDS) -> Iterator[Record]:
        """Yield every record of these partitions as (partition, map, payload), verified; a range is read at once.

        Records of one map and partition come in the order they were written. Raises CorruptError or DataLostError,
        naming shuffle, partition, map, attempt, epoch and worker, where the data is not exactly what was written.
        return_grace: seconds that the last worker with a file may be gone before the file is called lost.
        """
        return Steady(read_partitions(self, self.manifest(), partitions, return_grace))

    def read_broadcast(self, map_id: int) -> list[Buffer]:
        """Return the payloads of a map's broadcast region; ConflictError if it or the map is missing."""
        manifest = self.manifest()
        if not 0 <= map_id < len(manifest.winners.maps):
            raise ConflictError(f"shuffle {self.key} has {len(manifest.winners.maps)} maps, and no map {map_id}")
        reader = RangeReader(self, manifest, PartitionId(0), PartitionId(1), maps=[MapId(map_id)])
        payloads = [record.payload for record in reader if record.partition >= self.partitions]
        if not payloads:
            raise ConflictError(f"map {map_id} of shuffle {self.key} has no broadcast region")
        return payloads

    def manifest(self) -> Manifest:
        """Return what was committed, waiting up to COMMIT_WAIT_SECONDS for it; kept in this process."""
        found = _manifests.get(self.key)
        if found is None:
            found = _manifests[self.key] = self._manifest or runtime().run(self._fetch_manifest())
            reads_of(self.ticket).learn(found.sights)
            while len(_manifests) > _MANIFESTS_MAX:
                _manifests.popitem(last=False)
        self._manifest = found
        return found

    async def _fetch_manifest(self) -> Manifest:
        reply = await self._poll_manifest()
        return Manifest(reply.winners_array, known_addresses(reply.workers), sights_of(reply.workers))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._manifest is not None and len(self._manifest.winners_array) > MANIFEST_CARRIED_BYTES_MAX:
            state["_manifest"] = None
        return state


_manifests: OrderedDict[ShuffleKey, Manifest] = OrderedDict()


def explain(error: HoldfastError, endpoints: str) -> str:
    """Return a sentence that says what to do about an error of the control plane."""
    if error.status is Status.APPLICATION_GONE:
        return (
            f"{error}. Is the name right? Else its lease ended: its session was closed, or its process stopped for "
            "longer than the lease, or somebody had it forgotten"
        )
    if isinstance(error, RetryError) and not isinstance(error, TokenExpiredError):
        return f"{error}{'' if str(error).endswith('?') else '.'} Try `holdfast status --masters {endpoints}`."
    return str(error)
