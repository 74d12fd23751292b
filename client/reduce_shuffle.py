"""A shuffle of REDUCE partitions as a client sees it: where maps push, which attempts won, where to read.

Rules: as shuffle.py: picklable and light, a task needs nothing else. Where partitions are now is learnt once per
process and shared by its attempts. Called by users, drills and benchmarks.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.client.checks import compression_of, grace, map_range, partition_list, whole
from holdfast.client.connection.addresses import Addresses
from holdfast.client.connection.runtime import runtime
from holdfast.client.core.write.locations import PartitionLocations
from holdfast.client.generation import ClientShuffle, keep
from holdfast.client.read.manifests import PushManifest
from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.read.stream_reader import Record
from holdfast.client.shuffle import RETURN_GRACE_SECONDS
from holdfast.client.write.push_writer import BUFFER_BYTES, BUFFER_BYTES_MIN, PushWriter, Routes
from holdfast.client.write.status import PushStatus, push_winners_of
from holdfast.common.errors import ConfigError, ConflictError, HoldfastError
from holdfast.common.formats.batch import Codec
from holdfast.common.formats.messages import NO_INDEX, Ack
from holdfast.common.formats.reduce_layouts import NO_ATTEMPT, ReduceLocations
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapId, PartitionId, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.limits import MAPS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.steady import Steady
from holdfast.common.system.log import log_event

#: The masters answer when all workers have sealed: they may wait the return grace for one, and then move on.
COMMIT_SECONDS = 180.0
#: Shuffles of which a process keeps the places and the manifest.
_KEPT_MAX = 16
#: Larger buffers than this are a mistake.
_BUFFER_BYTES_MAX = 1 << 40
#: Bits of an attempt number that is drawn at random: two of an application will not be the same.
_RANDOM_BITS = 63
#: Lost partitions that a warning names; there may be many.
_NAMED_MAX = 10


@dataclass(repr=False)
class ReduceShuffle(ClientShuffle[PushManifest]):
    """One generation of a shuffle of REDUCE partitions."""

    #: the places at registration (REDUCE_LOCATIONS); empty where it was opened to be read
    locations_array: bytes
    #: (incarnation, data address) of every worker that was named
    workers: Mapping[WorkerId, tuple[Incarnation, str]]
    #: how many, None where it was not said
    maps: int | None = None
    ack: Ack = Ack.WRITTEN
    #: so many copies hold a batch before it is acknowledged, 0: all; the others have it before its map ends, or are
    #: called incomplete, and are made again
    ack_copies: int = 0
    raft_index: RaftIndex = NO_INDEX
    #: what this object commits for its readers if it is not committed yet (REDUCE_WINNERS)
    _winners: bytes = field(default=b"", repr=False)

    _MANIFEST = PushManifest
    _manifests: ClassVar[OrderedDict[ShuffleKey, PushManifest]] = OrderedDict()
    _MANIFESTS_MAX = _KEPT_MAX

    def writer(
        self,
        map_id: int,
        attempt: int | None = None,
        *,
        codec: Codec | str = Codec.NONE,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> PushWriter:
        """Start one attempt of one map.

        attempt: unique in the application, 0 to 2^64 - 2; random by default.
        buffer_bytes: unacknowledged bytes at which `write` waits.
        Raises ConfigError for invalid numbers, or if this process had this map and attempt.
        """
        if not self.locations_array:
            raise ConflictError(f"shuffle {self.key} was opened to be read")
        map_id = whole("map_id", map_id, 0, (MAPS_MAX if self.maps is None else self.maps) - 1)
        buffer_bytes = whole("buffer_bytes", buffer_bytes, BUFFER_BYTES_MIN, _BUFFER_BYTES_MAX)
        compression = compression_of("codec", codec)
        if attempt is None:
            attempt = secrets.randbits(_RANDOM_BITS)
        else:
            attempt = whole("attempt", attempt, 0, NO_ATTEMPT - 1)
            self._claim(map_id, attempt)
        return PushWriter(self, MapId(map_id), AttemptId(attempt), compression=compression, buffer_bytes=buffer_bytes)

    def commit(self, statuses: Iterable[PushStatus]) -> None:
        """Commit one winning attempt of every map, 0 to m-1, and wait for the seals. Final, as of MapShuffle.

        Sets `under_replicated`: epochs with missing copies; `lost` has those without any. Raises as MapShuffle.commit.
        """
        winners = self._winners_of(statuses)
        self._commit(winners)
        self._winners = winners
        lost = self.lost()
        if lost:
            named = [f"partition {partition} epoch {epoch}" for partition, epoch in lost[:_NAMED_MAX]]
            log_event(LogEvent.SHUFFLE_DATA_LOST, shuffle=self.key, epochs=len(lost), first=named)

    def offer(self, statuses: Iterable[PushStatus]) -> None:
        """Leave the commit of these winners to the first reader through this object."""
        self._winners = self._winners_of(statuses)

    def lost(self) -> list[tuple[PartitionId, Epoch]]:
        """Return the (partition, epoch) recorded as lost; waits for the commit."""
        return [(epoch.partition, epoch.epoch) for epoch in self.manifest().lost]

    def reader(
        self,
        partitions: Iterable[int],
        *,
        maps: range | None = None,
        return_grace: float = RETURN_GRACE_SECONDS,
    ) -> Iterator[Record]:
        """Yield every (partition, map, payload) of these partitions, verified, once each, in any order.

        maps: only records of these maps, a range with step 1.
        return_grace: seconds to wait for a lost worker with the last copy.
        Raises ConfigError for invalid partitions or maps, CorruptError or DataLostError with the place.
        """
        wanted = partition_list(partitions, self.partitions)
        map_range(maps, self.maps)
        return_grace = grace(return_grace)
        manifest = self.manifest()
        if not {epoch.partition for epoch in manifest.lost}.isdisjoint(wanted):
            # They are found again when a worker comes back after all.
            self.forget_manifest()
            manifest = self.manifest()
        maps = map_range(maps, len(manifest.winners.attempts))
        return Steady(iter(PartitionReader(self, manifest, wanted, maps, return_grace)))

    def forget_manifest(self) -> None:
        """Fetch the manifest again at its next use."""
        self._manifests.pop(self.key, None)
        self._manifest = None

    def routes(self) -> Routes:
        """The routes of this process."""
        found = _routes.get(self.key)
        if found is None:
            incarnations = {worker: incarnation for worker, (incarnation, _) in self.workers.items()}
            locations = PartitionLocations(ReduceLocations.decode(self.locations_array).partitions, incarnations)
            addresses = Addresses(self.ticket, self.addresses)
            found = keep(_routes, self.key, Routes(locations, addresses), _KEPT_MAX)
        return found

    @property
    def addresses(self) -> dict[WorkerId, str]:
        """Data addresses of the workers named at registration."""
        return {worker: address for worker, (_, address) in self.workers.items()}

    def _shape(self) -> dict[str, object]:
        if not self.locations_array:
            return {}
        maps = "not said" if self.maps is None else self.maps
        shape: dict[str, object] = {"partitions": self.partitions, "maps": maps, "copies": self.copies}
        shape["ack"] = self.ack.name
        if 0 < self.ack_copies < self.copies_wanted:
            shape["ack_copies"] = self.ack_copies
        return shape

    def _claim(self, map_id: int, attempt: int) -> None:
        """Two writers with one number would mix their batches, and the result would be the output of neither."""
        mine = object()
        if self.routes().attempts.setdefault((map_id, attempt), mine) is not mine:
            raise ConfigError(
                f"shuffle {self.key} had a writer of map {map_id} attempt {attempt} in this process already; "
                "give every attempt a number of its own, or leave `attempt` out"
            )

    def _winners_of(self, statuses: Iterable[PushStatus]) -> bytes:
        return push_winners_of(statuses, self.key, self.partitions, self.maps).encode()

    def _commit(self, winners: bytes) -> None:
        waiting = f"the workers to seal what was pushed, for the commit of shuffle {self.key}"
        self._say_winners(winners, COMMIT_SECONDS, waiting)

    def _fetch_manifest(self) -> PushManifest:
        try:
            return runtime().run(self._poll_manifest(offers_winners=bool(self._winners)))
        except HoldfastError as error:
            if error.status is not Status.NEED_WINNERS or not self._winners:
                raise
            self._commit(self._winners)
            return runtime().run(self._poll_manifest())


_routes: OrderedDict[ShuffleKey, Routes] = OrderedDict()


def workers_of(workers: Iterable[pb.WorkerAddress]) -> dict[WorkerId, tuple[Incarnation, str]]:
    """Return incarnations and addresses that a reply of the masters names."""
    return {WorkerId(each.worker): (Incarnation(each.incarnation), each.address) for each in workers}
