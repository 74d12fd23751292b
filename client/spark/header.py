"""The header of a Spark shuffle: what another driver needs to read it, kept beside the data.

Rules: after the map stage the driver writes one more map, the last one, that has no partitions, only a broadcast region
with the header as JSON. So it is committed, copied, checked and forgotten with the data, readers of the data never see
it, and a shuffle without any map still has one. Called by api.py.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass

from holdfast.client.shuffle import MapShuffle
from holdfast.client.write.status import MapStatus
from holdfast.common.errors import ConflictError
from holdfast.common.strict_json import read_json

FORMAT = "holdfast-spark-1"
#: Attempts of drivers have the highest bit, so that they never meet one of Spark's.
_DRIVER_ATTEMPT = 1 << 63


@dataclass(frozen=True, slots=True)
class Header:
    """What the rows of a shuffle are."""

    #: the DataFrame's schema as Spark's JSON
    spark_schema: str
    #: the Arrow schema of the batches as an IPC message; empty if there were no rows
    arrow_schema: bytes
    row_count: int
    size_bytes: int
    #: the columns' names where `spark_schema` is empty, since Spark has no such types
    names: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the header as UTF-8 JSON."""
        return json.dumps(
            {
                "format": FORMAT,
                "spark_schema": self.spark_schema,
                "rows": self.row_count,
                "bytes": self.size_bytes,
                "arrow_schema": base64.b64encode(self.arrow_schema).decode(),
                **({"names": self.names} if self.names else {}),
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Header:
        """Undo to_json. Raises ConflictError if the shuffle was written by something else."""
        try:
            found = read_json(data)
            if found["format"] != FORMAT:
                raise ConflictError(f"the shuffle has the format {found['format']!r}, this version reads {FORMAT!r}")
            arrow_schema = base64.b64decode(found["arrow_schema"], validate=True)
            names = tuple(map(str, found.get("names", ())))
            return cls(found["spark_schema"], arrow_schema, int(found["rows"]), int(found["bytes"]), names)
        except (ValueError, KeyError, TypeError) as error:
            raise ConflictError(
                f"the shuffle has no Arrow rows, for it was not written by shuffle() or write_table() ({error}): read "
                "its records with MapShuffle.reader"
            ) from error


def write_header(shuffle: MapShuffle, map_id: int, header: Header) -> MapStatus:
    """Write the header as map `map_id`, one behind the last map with rows."""
    with shuffle.writer(map_id, _DRIVER_ATTEMPT | secrets.randbits(63)) as writer:
        writer.write_broadcast([header.to_json()])
        return writer.close()


def read_header(shuffle: MapShuffle) -> Header:
    """Return the header of a committed shuffle. Raises ConflictError if it has none."""
    maps = len(shuffle.manifest().winners.maps)
    try:
        if not maps:
            raise ConflictError("it has no maps")
        data = b"".join(bytes(payload) for payload in shuffle.read_broadcast(maps - 1))
    except ConflictError as error:
        raise ConflictError(
            f"shuffle {shuffle.key} has no Arrow rows, for it was not written by shuffle() or write_table() ({error}): "
            "read its records with MapShuffle.reader"
        ) from error
    return Header.from_json(data)
