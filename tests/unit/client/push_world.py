"""A push session's core and what is asked of it, for its stories."""

from collections.abc import Iterable
from typing import Any

from holdfast.client.core.write.locations import PartitionLocations
from holdfast.client.core.write.push import Ask, PushSession, Send
from holdfast.common.formats.reduce_layouts import Location
from holdfast.common.ids import Epoch, Incarnation, PartitionId, WorkerId

#: What masters say where no worker has room.
FULL = "no worker has room: worker w1: /data (SSD) 512.0 MiB used of 512.0 MiB"


def at(*workers: int, epoch: int = 0) -> Location:
    return Location(Epoch(epoch), tuple(map(WorkerId, workers)))


def locations(*places: Location, incarnation: int = 1) -> PartitionLocations:
    workers = {worker for place in places for worker in place.workers}
    return PartitionLocations(places, {worker: Incarnation(incarnation) for worker in workers})


def session(*places: Location, **options: Any) -> PushSession:
    """An attempt whose partition 0, 1, … is at these places."""
    return PushSession(locations(*places), where="shuffle s map 3 attempt 9", **options)


def batches(*rows: tuple[int, int, int]) -> list[tuple[PartitionId, int, int]]:
    return [(PartitionId(partition), number, size) for partition, number, size in rows]


def of(kind: type[Any], effects: Iterable[object]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(core: PushSession, effects: Iterable[object]) -> list[Send]:
    """Give all the room that is asked for, until nothing more is."""
    found: list[Send] = []
    queue = list(effects)
    while queue:
        effect = queue.pop(0)
        if isinstance(effect, Send):
            found.append(effect)
        elif isinstance(effect, Ask):
            queue += core.granted(effect.worker, effect.most)
        core.check()
    return found


def numbers(frame: Send) -> list[tuple[int, int, int]]:
    """(partition, epoch, number) of a frame's batches."""
    return [(entry.partition, entry.epoch, entry.number) for entry in frame.entries]


def pushed(core: PushSession, rows: Iterable[tuple[int, int, int]]) -> list[Send]:
    """The frames of an attempt that has only these batches."""
    effects = core.added(batches(*rows))
    return sent(core, [*effects, *core.finished()])
