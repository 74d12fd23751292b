"""One process of a simulated machine: what dies with a kill, and the steps at which it may.

Every call through the door is a step. Before it the process may be dead already, may die now, or its thread may be made
to wait; of a call that writes some part may have happened then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.env.disks import Device, Disks

if TYPE_CHECKING:
    from tests.sim.env.files import SimFiles
    from tests.sim.env.threads import SimThreads


class KilledError(BaseException):
    """The process is gone; nothing in it goes on."""


@dataclass(slots=True)
class Aim:
    """A step that changes something: its path has this part, and so many others like it come first."""

    part: str
    left: int

    def hits(self, path: str) -> bool:
        """Whether this is the one."""
        if self.part not in path:
            return False
        self.left -= 1
        return self.left < 0


class Process:
    """A process: its descriptors, its threads, its end."""

    def __init__(self, disks: Disks, rng: random.Random, on_death: Callable[[], None] = lambda: None) -> None:
        self.disks, self.rng = disks, rng
        self.alive = True
        #: steps until it dies in the middle of one; None: it does not
        self.armed: int | None = None
        #: where it dies; a write for which there is no room; a sync that fails
        self.aim: Aim | None = None
        self.full_at: Aim | None = None
        self.unsynced_at: Aim | None = None
        #: nothing can be opened
        self.no_descriptors = False
        #: so many steps after that sync it dies
        self.unsynced: int | None = None
        #: so many steps after the next use of a spare segment of a log it dies
        self.reused: int | None = None
        self.threads: SimThreads | None = None
        self.files: SimFiles
        self.steps = 0
        self._on_death = on_death

    def step(self, device: Device | None = None, path: str = "") -> bool:
        """A call begins; `path`: of what it changes. True: the process dies in the middle of it, and `die` is to be
        called. Raises KilledError."""
        if not self.alive:
            raise KilledError
        if self.threads is not None:
            self.threads.may_wait(device)
            if not self.alive:
                raise KilledError
        self.steps += 1
        if self.aim is not None and path and self.aim.hits(path):
            return True
        if self.armed is None:
            return False
        self.armed -= 1
        return self.armed < 0

    def die(self) -> None:
        """It dies by itself. Raises KilledError."""
        self.armed = self.aim = None
        self.alive = False
        self._on_death()
        raise KilledError

    def kill(self) -> None:
        """It is killed from outside, while none of its threads runs."""
        self.alive = False
        if self.threads is not None:
            self.threads.end()
