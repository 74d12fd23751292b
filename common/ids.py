"""The words of Holdfast as types: one NewType or small key per idea (see docs/glossary.md).

Rules: an id is never a plain int in a signature, and an index, a count and a size never share a variable.
Everybody imports this module; it imports nothing of ours.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NewType, Self

#: 16 random bytes drawn by the driver: one run of an application. Shuffles hang below it.
Instance = NewType("Instance", bytes)
#: Number of a shuffle inside one application instance (u32), chosen by the engine.
ShuffleId = NewType("ShuffleId", int)
#: Number of a try at a shuffle (u32); grows, and is never reused within an instance.
Generation = NewType("Generation", int)
#: Index of a map task's slice of the input (u32), the same over all its attempts.
MapId = NewType("MapId", int)
#: Spark's task attempt id (u64), unique within an application instance.
AttemptId = NewType("AttemptId", int)
#: Index of a reduce partition (u32).
PartitionId = NewType("PartitionId", int)
#: Number of a place that a partition or a map file had (u32); grows by one with each move.
Epoch = NewType("Epoch", int)
#: Number of a batch, from 0, per (map, attempt, partition) (u32).
BatchNo = NewType("BatchNo", int)
#: Small number that the masters give a worker at its first registration (u32); survives restarts.
WorkerId = NewType("WorkerId", int)
#: A worker's count of its own starts (u32), synced before it registers; grows at every start.
Incarnation = NewType("Incarnation", int)
#: Id of a state of the masters (u64, random): drawn when a cluster is made, and anew after every restore of a backup.
StateId = NewType("StateId", int)
#: Position in the masters' replicated log (u64).
RaftIndex = NewType("RaftIndex", int)

INSTANCE_BYTES = 16
#: Of a worker's uid, which its directories keep.
UID_BYTES = 16
#: The state of the masters is not known yet: in a call, it means the state of the answering master.
NO_STATE = StateId(0)
#: The "partition" that seeds the CRC of batches in a broadcast region, which belong to every partition.
BROADCAST_PARTITION = PartitionId(0xFFFF_FFFF)
#: The "worker" in arrays in place of a copy that is not there.
NO_WORKER = WorkerId(0xFFFF_FFFF)


_SHUFFLE_NAME = re.compile(r"(?P<application>.+?)/(?P<shuffle>[0-9]{1,10})(/(?P<generation>[0-9]{1,10}))?", re.DOTALL)
_U32_MAX = 0xFFFF_FFFF


def shuffle_name(application: str, shuffle: int, generation: int = 0) -> str:
    """What people call a shuffle, everywhere: `application/shuffle`, and `/generation` behind it after the first one.

    The application is its name, or its instance (how that begins, or in full) where its name is not known or several
    have it. Where the name itself ends like a shuffle's, the generation always follows it.
    """
    name = f"{application}/{shuffle}"
    return f"{name}/{generation}" if generation or _SHUFFLE_NAME.fullmatch(application) else name


def read_shuffle_name(text: str) -> tuple[str, int, int | None]:
    """Return application, shuffle and, where it is named, generation. Raises ValueError for what names no shuffle."""
    found = _SHUFFLE_NAME.fullmatch(text)
    numbers = [int(each) for each in found.group("shuffle", "generation") if each] if found is not None else []
    if found is None or max(numbers) > _U32_MAX:
        raise ValueError(
            f"{text!r} names no shuffle: write APP/SHUFFLE or APP/SHUFFLE/GENERATION; numbers are at most {_U32_MAX}"
        )
    return found["application"], numbers[0], numbers[1] if len(numbers) > 1 else None


class _ShuffleKey(NamedTuple):
    instance: Instance
    shuffle: ShuffleId
    generation: Generation
    state: StateId


class ShuffleKey(_ShuffleKey):
    """One generation of one shuffle of one application instance, as one state of the masters registered it.

    Engines choose the number of a shuffle and masters that of a generation; after a restore both may be given to other
    data. With the id of the state they name one thing only (docs/internals/adr/0030-state-ids.md). A tuple, since every
    batch is looked up by one.
    """

    __slots__ = ()

    def __new__(cls, instance: Instance, shuffle: ShuffleId, generation: Generation, state: StateId = NO_STATE) -> Self:
        if len(instance) != INSTANCE_BYTES:
            raise ValueError(f"an application instance has {INSTANCE_BYTES} bytes, not {len(instance)}")
        return super().__new__(cls, instance, shuffle, generation, state)

    def __str__(self) -> str:
        return shuffle_name(self.instance.hex()[:8], self.shuffle, self.generation)

    @property
    def number(self) -> tuple[ShuffleId, Generation]:
        """What it is called within its application, in whatever state."""
        return self.shuffle, self.generation

    @property
    def any_state(self) -> ShuffleKey:
        """The key for callers that do not know the state."""
        return ShuffleKey(self.instance, self.shuffle, self.generation)


class MapFileKey(NamedTuple):
    """One file of MAP partitions: what one attempt of one map wrote in one epoch."""

    shuffle: ShuffleKey
    map: MapId
    attempt: AttemptId
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.shuffle} map {self.map} attempt {self.attempt} epoch {self.epoch}"
