"""One process of a simulated machine: what dies with a kill, and the steps at which it may.

Every call through the door is a step. Before it the process may be dead already, may die now, or its thread may be made
to wait; of a call that writes some part may have happened then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.env.disks import Device, Disks

if TYPE_CHECKING:
    from tests.sim.env.files import SimFiles
    from tests.sim.env.threads import SimThreads


class KilledError(BaseException):
    """The process is gone; nothing in it goes on."""


class Process:
    """A process: its descriptors, its threads, its end."""

    def __init__(self, disks: Disks, rng: random.Random, on_death: Callable[[], None] = lambda: None) -> None:
        self.disks, self.rng = disks, rng
        self.alive = True
        #: steps until it dies in the middle of one; None: it does not
        self.armed: int | None = None
        self.threads: SimThreads | None = None
        self.files: SimFiles
        self.steps = 0
        self._on_death = on_death

    def step(self, device: Device | None = None) -> bool:
        """A call begins. True: the process dies in the middle of it, and `die` is to be called. Raises KilledError."""
        if not self.alive:
            raise KilledError
        if self.threads is not None:
            self.threads.may_wait(device)
            if not self.alive:
                raise KilledError
        self.steps += 1
        if self.armed is None:
            return False
        self.armed -= 1
        return self.armed < 0

    def die(self) -> None:
        """It dies by itself. Raises KilledError."""
        self.armed = None
        self.alive = False
        self._on_death()
        raise KilledError

    def kill(self) -> None:
        """It is killed from outside, while none of its threads runs."""
        self.alive = False
        if self.threads is not None:
            self.threads.end()
