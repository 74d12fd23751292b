"""What push_service.py keeps of a push: as it came, and while its answer waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.batch import HEADER_BYTES
from holdfast.common.formats.frame import FrameHeader
from holdfast.common.formats.reduce_messages import Push
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.worker.core.write.credits import Credits
from holdfast.worker.core.write.epochs import EpochState, Life
from holdfast.worker.core.write.seen_batches import Decision


class Came(NamedTuple):
    """A frame that nobody has decided on, and the window that its body is in."""

    connection: ServerConnection
    header: FrameHeader
    meta: bytes
    request: Push
    body: Body
    account: Credits


@dataclass(slots=True, eq=False)
class OnItsWay:
    """A frame on its way to its answer."""

    connection: ServerConnection
    header: FrameHeader
    credits: Credits
    size: int
    body: Body
    decision: Decision
    #: statuses that came after the decision
    failures: dict[int, int] = field(default_factory=dict)
    #: what the answer waits for: syncs, the replica, first arrivals; and since when
    waits: int = 0
    since_ns: int = 0
    #: directories whose sync it waits for
    syncing: set[int] = field(default_factory=set)
    landed: asyncio.Future[None] | None = None
    answered: bool = False


def may_grow(state: EpochState | None) -> bool:
    """Whether what was acknowledged may still be written to this epoch: it takes nothing new and is not sealed."""
    return state is not None and state.life is Life.HARD


def check_sizes(request: Push, size: int) -> None:
    """The batches make up the body, and none is shorter than a header."""
    sizes = [entry[3] for entry in request.entries]
    if sum(sizes) != size or min(sizes) < HEADER_BYTES:
        raise ProtocolError(f"{request.shuffle}: the batches of a push do not make up its {size} bytes")
