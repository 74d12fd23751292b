"""A shuffle of REDUCE partitions as a client sees it: where maps push, which attempts won, where to read.

Rules: as shuffle.py: picklable and light, a task needs nothing else. Where partitions are now is learnt once per
process and shared by its attempts. Called by users, drills and benchmarks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast.client.addresses import Addresses, known_addresses
from holdfast.client.core.locations import Locations
from holdfast.client.push_reader import read_pushed
from holdfast.client.push_writer import BUFFER_BYTES, PushWriter
from holdfast.client.runtime import runtime
from holdfast.client.shuffle import MANIFEST_CARRIED_BYTES_MAX, RETURN_GRACE_SECONDS, Shuffle
from holdfast.client.status import PushStatus, push_winners_of
from holdfast.client.stream_reader import Record
from holdfast.common.batch import Codec
from holdfast.common.errors import ConflictError, HoldfastError, Status
from holdfast.common.ids import AttemptId, Incarnation, MapId, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.messages import NO_INDEX, Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.reduce_layouts import ReduceLocations, ReduceManifest, ReduceWinners

#: The masters answer when all workers have sealed: they may wait the return grace for one, and then move on.
COMMIT_SECONDS = 180.0
#: Shuffles of which a process keeps the places and the manifest.
_KEPT_MAX = 16


@dataclass(frozen=True, slots=True)
class Routes:
    """What all attempts of a process know of a shuffle's places."""

    locations: Locations
    addresses: Addresses


@dataclass(frozen=True)
class PushManifest:
    """What was committed: the winner of every map, what became of every epoch, and where the workers were."""

    winners_array: bytes
    manifest_array: bytes
    addresses: Mapping[WorkerId, str]

    @cached_property
    def winners(self) -> ReduceWinners:
        """The winners, decoded; raises ProtocolError."""
        return ReduceWinners.decode(self.winners_array)

    @cached_property
    def epochs(self) -> ReduceManifest:
        """Every epoch, decoded; raises ProtocolError."""
        return ReduceManifest.decode(self.manifest_array)


@dataclass
class ReduceShuffle(Shuffle):
    """One generation of one shuffle of REDUCE partitions. Make one with Session.register_reduce_shuffle."""

    #: the places at registration (REDUCE_LOCATIONS); empty where it was opened to be read
    locations_array: bytes
    #: (incarnation, data address) of every worker that was named
    workers: Mapping[WorkerId, tuple[Incarnation, str]]
    copies: int = 1
    ack: Ack = Ack.WRITTEN
    raft_index: RaftIndex = NO_INDEX
    #: what this object would commit if nobody did (REDUCE_WINNERS)
    _winners: bytes = field(default=b"", repr=False)
    _manifest: PushManifest | None = field(default=None, repr=False)

    def writer(
        self, map_id: int, attempt: int, *, codec: Codec = Codec.NONE, buffer_bytes: int = BUFFER_BYTES
    ) -> PushWriter:
        """Begin the output of one attempt of one map; `attempt` is unique in the application.

        buffer_bytes: what may be unacknowledged before `write` waits.
        """
        if not self.locations_array:
            raise ConflictError(f"shuffle {self.key} was opened to be read")
        return PushWriter(self, MapId(map_id), AttemptId(attempt), codec=codec, buffer_bytes=buffer_bytes)

    def commit(self, statuses: Iterable[PushStatus]) -> None:
        """Say which attempt of every map counts: the masters' final word. Returns when the workers have sealed.

        Maps are 0 to m-1. The same winners again are fine. Raises ConflictError for others or for a gap.
        """
        self.offer(statuses)
        self._commit()

    def offer(self, statuses: Iterable[PushStatus]) -> None:
        """Remember the winners without saying so: whoever reads through this object commits them if nobody has."""
        self._winners = push_winners_of(statuses, self.key, self.partitions).encode()

    def reader(
        self,
        partitions: Iterable[int],
        *,
        maps: range | None = None,
        return_grace: float = RETURN_GRACE_SECONDS,
    ) -> Iterator[Record]:
        """Yield every record of these partitions as (partition, map, payload), verified, each once, in any order.

        maps: only records of these maps, a range with step 1. return_grace: seconds that the last worker with an
        epoch may be gone before the epoch is called lost. Raises CorruptError or DataLostError, naming shuffle,
        partition, epoch and chunk, where the data is not exactly what was pushed.
        """
        return read_pushed(self, self.manifest(), partitions, maps, return_grace)

    def manifest(self) -> PushManifest:
        """Return what was committed, waiting up to COMMIT_WAIT_SECONDS for it; kept in this process."""
        found = _manifests.get(self.key)
        if found is None:
            found = self._manifest or self._fetch_manifest()
            _keep(_manifests, self.key, found)
        self._manifest = found
        return found

    def routes(self) -> Routes:
        """The places of this process, made when first needed. On the loop or off it."""
        found = _routes.get(self.key)
        if found is None:
            incarnations = {worker: incarnation for worker, (incarnation, _) in self.workers.items()}
            locations = Locations(ReduceLocations.decode(self.locations_array).partitions, incarnations)
            found = Routes(locations, Addresses(self.ticket.endpoints, self.ticket.cluster_id, self.addresses))
            _keep(_routes, self.key, found)
        return found

    @property
    def addresses(self) -> dict[WorkerId, str]:
        """Data addresses of the workers that were named at registration."""
        return {worker: address for worker, (_, address) in self.workers.items()}

    def _commit(self) -> None:
        request = pb.CommitRequest(key=self.key_message(), winners_array=self._winners, holder=self.ticket.holder)
        self._call("Shuffles/Commit", request, COMMIT_SECONDS)

    def _fetch_manifest(self) -> PushManifest:
        try:
            reply = runtime().run(self._poll_manifest(offers_winners=bool(self._winners)))
        except HoldfastError as error:
            if error.status is not Status.NEED_WINNERS or not self._winners:
                raise
            self._commit()
            reply = runtime().run(self._poll_manifest())
        return PushManifest(reply.winners_array, reply.manifest_array, known_addresses(reply.workers))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        manifest = self._manifest
        if manifest is not None and (
            len(manifest.winners_array) + len(manifest.manifest_array) > MANIFEST_CARRIED_BYTES_MAX
        ):
            state["_manifest"] = None
        return state


_routes: OrderedDict[ShuffleKey, Routes] = OrderedDict()
_manifests: OrderedDict[ShuffleKey, PushManifest] = OrderedDict()


def _keep(kept: OrderedDict[ShuffleKey, Any], key: ShuffleKey, value: object) -> None:
    kept[key] = value
    while len(kept) > _KEPT_MAX:
        kept.popitem(last=False)


def workers_of(workers: Iterable[pb.WorkerAddress]) -> dict[WorkerId, tuple[Incarnation, str]]:
    """Return incarnations and addresses that a reply of the masters names."""
    return {WorkerId(each.worker): (Incarnation(each.incarnation), each.address) for each in workers}
