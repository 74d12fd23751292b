"""What a story about storage is made of, and what is known of a worker's shuffles from outside.

A story is a list of steps, each with a number that everything in it is drawn from, so steps can be left out and the
others stay what they were: that is how a story that ends badly is made short.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage.reduce_layout import EpochKey
from tests.support.reduce_data import Writer

PARTITIONS = 4

#: (map, attempt, number)
Name = tuple[int, int, int]


class Step(NamedTuple):
    """One step of a story, and what it draws from."""

    what: str
    seed: int


@dataclass
class ModelEpoch:
    """What is known of an epoch from outside."""

    key: EpochKey
    ack: Ack
    #: with their checksums: acknowledged, and sent but not acknowledged
    acked: dict[Name, int] = field(default_factory=dict)
    maybe: dict[Name, int] = field(default_factory=dict)
    #: number of its directory, in the start that opened it
    directory: int = -1
    #: why the worker need not vouch for it; "" if nothing excuses it
    excuse: str = ""
    answer: SealedEpoch | None = None
    #: what it was found to have, by name; never changes afterwards
    contents: dict[Name, int] | None = None


@dataclass
class ModelShuffle:
    """One shuffle, as its clients and the masters see it."""

    key: ShuffleKey
    ack: Ack
    #: the newest epoch of each partition
    newest: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    epochs: dict[tuple[int, int], ModelEpoch] = field(default_factory=dict)
    writers: dict[tuple[int, int], Writer] = field(default_factory=dict)
    final: bool = False


WEIGHTS = {
    "push": 24,
    "look": 8,
    "move": 12,
    "seal": 6,
    "seal_final": 2,
    "read": 5,
    "hold": 3,
    "let_go": 2,
    "forget": 2,
    "restart": 2,
    "tick": 2,
    "fill": 2,
    "drain": 2,
    "break_disk": 1,
    "lose_dfs": 1,
    "find_dfs": 2,
    "lose_index": 2,
}


def draw_story(seed: int, length: int) -> list[Step]:
    """A random story."""
    rng = random.Random(seed)
    weights_by_name = WEIGHTS | {"push": 60, "forget": 1, "lose_index": 0} if seed % 3 == 2 else WEIGHTS
    names, weights = list(weights_by_name), list(weights_by_name.values())
    return [Step(name, rng.getrandbits(32)) for name in rng.choices(names, weights, k=length)]


def shorten(steps: list[Step], fails: Callable[[list[Step]], bool], tries: int = 150) -> list[Step]:
    """Leave out as many steps as can be while it still fails."""
    size = max(1, len(steps) // 2)
    while tries > 0:
        at = 0
        while at < len(steps) and tries > 0:
            fewer = steps[:at] + steps[at + size :]
            tries -= 1
            if fails(fewer):
                steps = fewer
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return steps


def must(condition: object, reason: str) -> None:
    """Assert, also where an error is being handled."""
    assert condition, reason
