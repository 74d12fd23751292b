"""A master that asks again for seals that were answered, at any time: the answer is the same for ever (oracle.py)."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_messages import SealFlag
from tests.sim.clock import pause
from tests.sim.network import Dialer

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario


async def ask_again(world: Scenario) -> None:
    """Ask until faults have ended, and somewhat longer."""
    rng = random.Random(f"asker {world.seed}")
    while not world.long_calm:
        await pause(rng.uniform(0.05, 0.5))
        if not world.oracle.asked:
            continue
        worker, seal = rng.choice(world.oracle.asked)
        if world.oracle.truth().shuffle(seal.shuffle) is None:
            continue
        with suppress(HoldfastError):
            link = await Dialer.connect(worker.name, 1, Hello(role=Role.MASTER, cluster_id="sim"))
            again = replace(seal, flags=seal.flags & ~SealFlag.NEW)  # that was of the start that was asked then
            await link.request(FrameType.SEAL, again.encode())
