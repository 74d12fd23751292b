"""One epoch of a REDUCE partition on this worker: its life, and what is known of it while it is open. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey


class Life(Enum):
    """Where an epoch is in its life on this worker."""

    OPEN = "open"
    SOFT = "soft-split"  #: accepts, and asks for the next epoch
    HARD = "hard-split"  #: accepts nothing more, and is not sealed yet
    SEALING = "being sealed"
    SEALED = "sealed"
    FAILED = "failed"
    GONE = "dropped"


#: From each state the states that may follow.
LEGAL: dict[Life, tuple[Life, ...]] = {
    Life.OPEN: (Life.SOFT, Life.HARD, Life.SEALING, Life.FAILED, Life.GONE),
    Life.SOFT: (Life.HARD, Life.SEALING, Life.FAILED, Life.GONE),
    Life.HARD: (Life.SEALING, Life.FAILED, Life.GONE),
    Life.SEALING: (Life.SEALED, Life.HARD, Life.FAILED, Life.GONE),
    Life.SEALED: (),
    Life.FAILED: (Life.GONE,),
    Life.GONE: (),
}


@dataclass(slots=True, eq=False)
class EpochState:
    """One epoch of one partition that this incarnation opened."""

    shuffle: ShuffleKey
    partition: PartitionId
    epoch: Epoch
    ack: Ack
    #: number of the directory that holds it
    directory: int
    #: size at which somebody has to look: a flush or a split is due
    mark: int
    life: Life = Life.OPEN
    #: open, and nothing to say about it: the hot path
    plain: bool = True
    size_bytes: int = 0
    #: batches of it were acknowledged from memory and found no room on the disk: it is sealed when they have
    owed: bool = False
    #: another copy lacks something that was acknowledged: this one accepts nothing more
    short: bool = False

    def become(self, life: Life) -> None:
        assert life in LEGAL[self.life], f"{self}: {self.life.name} -> {life.name}"
        self.life = life
        self.plain = life is Life.OPEN and not self.short

    def __str__(self) -> str:
        return f"{self.shuffle} partition {self.partition} epoch {self.epoch}"
