"""A shuffle as a client sees it: where maps write, what was committed, where to read.

Rules: picklable and light, so that it travels to tasks with everything they need; a task that writes or reads talks
to workers, and to masters only when something is not where it was. Calls are synchronous. Called by users, the
Spark API, the demo, drills and benchmarks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from holdfast.client.checks import compression_of, grace
from holdfast.client.compress import Buffer
from holdfast.client.generation import ClientShuffle
from holdfast.client.read.manifests import Manifest
from holdfast.client.read.reader import RangeReader, read_partitions
from holdfast.client.read.stream_reader import Record
from holdfast.client.write.spool import SPOOL_BYTES
from holdfast.client.write.status import MapStatus, winners_of
from holdfast.client.write.writer import MapWriter
from holdfast.common.errors import ConflictError
from holdfast.common.formats.batch import Codec
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import AttemptId, MapId, PartitionId, ShuffleKey, WorkerId
from holdfast.common.steady import Steady

#: How long a worker may be lost before a file of which it has the only copy counts as lost; as worker.return_grace.
RETURN_GRACE_SECONDS = 30.0


@dataclass(repr=False)
class MapShuffle(ClientShuffle[Manifest]):
    """One generation of a shuffle of MAP partitions."""

    #: None where it was opened to be read
    assignment: MapAssignment | None
    addresses: Mapping[WorkerId, str]
    ack: Ack = Ack.WRITTEN

    _MANIFEST = Manifest
    _manifests: ClassVar[OrderedDict[ShuffleKey, Manifest]] = OrderedDict()
    _MANIFESTS_MAX = 8

    def writer(
        self, map_id: int, attempt: int, *, codec: Codec | str = Codec.NONE, spool_bytes: int = SPOOL_BYTES
    ) -> MapWriter:
        """Start one attempt of one map; `attempt` is unique in the application."""
        if self.assignment is None:
            raise ConflictError(f"shuffle {self.key} was opened to be read")
        compression = compression_of("codec", codec)
        ids = MapId(map_id), AttemptId(attempt)
        return MapWriter(self, self.assignment, *ids, compression=compression, spool_bytes=spool_bytes)

    def commit(self, statuses: Iterable[MapStatus]) -> None:
        """Commit one winning attempt of every map, 0 to m-1. Final; repeatable with the same winners.

        Sets `under_replicated`: maps with missing copies. Raises ConflictError for other winners or a gap, ConfigError
        for other values.
        """
        array = winners_of(statuses, self.key, self.partitions).encode()
        self._say_winners(array)
        self._manifest = Manifest(array, b"", self.addresses)

    def reader(self, partitions: Iterable[int], *, return_grace: float = RETURN_GRACE_SECONDS) -> Iterator[Record]:
        """Yield every (partition, map, payload) of these partitions, verified.

        Records of one map and partition keep their order. Raises CorruptError or DataLostError with the place.
        return_grace: seconds to wait for a lost worker with the last copy.
        """
        return Steady(read_partitions(self, self.manifest(), partitions, grace(return_grace)))

    def read_broadcast(self, map_id: int) -> list[Buffer]:
        """Return the payloads of a map's broadcast region. Raises ConflictError if there is none."""
        manifest = self.manifest()
        if not 0 <= map_id < len(manifest.winners.maps):
            raise ConflictError(f"shuffle {self.key} has {len(manifest.winners.maps)} maps, and no map {map_id}")
        reader = RangeReader(self, manifest, PartitionId(0), PartitionId(1), maps=[MapId(map_id)])
        payloads = [record.payload for record in reader if record.partition >= self.partitions]
        if not payloads:
            raise ConflictError(f"map {map_id} of shuffle {self.key} has no broadcast region")
        return payloads

    def _shape(self) -> dict[str, object]:
        return (
            {"partitions": self.partitions, "copies": self.copies, "ack": self.ack.name}
            if self.assignment is not None
            else {}
        )
