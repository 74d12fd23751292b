"""What all parts of a worker's server stand on. Made by process.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.common.limits import GIB
from holdfast.common.system.descriptors import WorkerDescriptors
from holdfast.worker.core.write.reduce import SplitLimits
from holdfast.worker.server.membership.asking import Asking
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.request import Running
from holdfast.worker.storage.store import Store


@dataclass(frozen=True, slots=True)
class ServerBounds:
    """What a worker takes at most."""

    #: bytes of bodies on their way, those of replica traffic included
    memory: int = GIB
    #: bytes that stay free on a disk
    disk_reserve: int = 0
    split: SplitLimits = SplitLimits()
    #: each as many as a process of usual bounds has
    descriptors: WorkerDescriptors = WorkerDescriptors.of(1 << 14)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What its services share with what keeps it known and what shows it."""

    store: Store
    standing: WorkerIdentity
    bounds: ServerBounds = ServerBounds()
    counters: Counters = field(default_factory=Counters)
    faults: Faults = field(default_factory=Faults)
    #: what the masters have
    asking: Asking = field(default_factory=Asking)
    #: seals, and whatever else waits for a disk, that an orderly end waits for
    running: Running = field(default_factory=Running)
