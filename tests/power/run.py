"""Cuts the power of machines while maps push: `tox -e power` (root, Linux), or by hand

    unshare --mount --propagation private python -m tests.power.run --cuts 100 --seed 1

Three machines, each a master and a worker on an ext4, an xfs and a btrfs of their own (machines.py), whose disks keep
what was written until they are told to flush (device.py). Every round pushes shuffles at SYNCED, WRITTEN and MEMORY,
with one copy and two, so that the log rolls, is used again, and files move down a tier. In the middle of it the power
of one machine, two or all goes: its processes get SIGKILL, of what its disk was not told to flush some is dropped and
some is torn, it starts with another boot id; often its power goes again while it recovers. Then the maps go on, the
shuffles are committed, and an oracle makes every byte again:

* a SYNCED shuffle, and one with two copies of which one machine was cut, names nothing lost and is read exactly;
* any other partition is read exactly, or is LOST by name;
* what was committed stays what it was, cut after cut (but for what is not SYNCED and lay in memory);
* the masters know every shuffle and every commit that they acknowledged.

A seed repeats load and cuts, not their interleaving. With a planted mistake, a worker that skips its syncs, this has to
find lost data: tests/power/test_power.py.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from holdfast.client import PushStatus, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.common.errors import DataLostError, HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.limits import MIB
from tests.power.machines import Machine, Machines, machines, skip_reason

PLANT = Path(__file__).parent / "plant"
MAPS = 2
#: Rounds whose shuffles are read again before they are dropped.
KEPT = 2
_SECONDS_MAX = 180.0
#: Within so many seconds after a start the power may go again.
_AGAIN_S = 3.0


@dataclass
class Shape:
    """What one shuffle of a round is like."""

    ack: Ack
    copies: int
    partitions: int
    mib: float


SHAPES = (
    Shape(Ack.SYNCED, 1, 8, 2),
    Shape(Ack.WRITTEN, 1, 40, 24),
    Shape(Ack.WRITTEN, 2, 12, 3),
    Shape(Ack.SYNCED, 2, 4, 1),
    Shape(Ack.MEMORY, 1, 6, 1),
)


class LostError(Exception):
    """Something that was promised is not there."""


@dataclass
class Load:
    """The maps of one shuffle; everything follows from the seed."""

    shuffle: ReduceShuffle
    shape: Shape
    seed: int
    #: let the maps go on that wait in the middle, where all that they pushed is acknowledged
    go: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0
    statuses: dict[int, PushStatus] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    #: partitions that were read exactly
    exact: set[int] = field(default_factory=set)
    #: numbers of cuts of the machine with memory at the commit
    memory_cuts: int = 0

    def records(self, map_id: int) -> Iterator[tuple[int, bytes]]:
        """What a map pushes: (partition, payload)."""
        rng = random.Random(f"{self.seed}/{map_id}")
        left = int(self.shape.mib * MIB / MAPS)
        while left > 0:
            payload = rng.randbytes(rng.choice((200, 1_500, 3_000, 3_000)))
            left -= len(payload)
            yield rng.randrange(self.shape.partitions), payload

    def begin(self) -> None:
        """Push in threads."""
        self.threads = [threading.Thread(target=self._push, args=(map_id,), daemon=True) for map_id in range(MAPS)]
        for thread in self.threads:
            thread.start()

    def _push(self, map_id: int) -> None:
        try:
            rng = random.Random(f"{self.seed}/{map_id}/stop")
            stop = int(self.shape.mib * MIB / MAPS * rng.uniform(0.2, 1.3))  # some never wait
            with self.shuffle.writer(map_id, map_id, buffer_bytes=1 * MIB) as writer:
                for partition, payload in self.records(map_id):
                    writer.write(partition, payload)
                    stop -= len(payload)
                    if stop < 0 and not self.go.is_set():
                        writer.flush()
                        self.waiting += 1
                        self.go.wait(_SECONDS_MAX)
                self.statuses[map_id] = writer.close()
        except Exception as error:  # noqa: BLE001 - raised by end()
            self.errors.append(error)

    def end(self) -> None:
        """Let the maps push the rest, and commit. Raises what a map was told."""
        self.go.set()
        for thread in self.threads:
            thread.join(_SECONDS_MAX)
        if self.errors:
            raise self.errors[0]
        if len(self.statuses) != MAPS:
            raise LostError(f"{self.shuffle.key}: a map still pushes")
        self.shuffle.commit(self.statuses.values())

    def judge(self, *, nothing_lost: bool) -> None:
        """Read every partition: exact, or LOST by name; raises LostError."""
        wanted: dict[int, Counter[tuple[int, bytes]]] = {n: Counter() for n in range(self.shape.partitions)}
        for map_id in range(MAPS):
            for partition, payload in self.records(map_id):
                wanted[partition][map_id, payload] += 1
        lost = {partition for partition, _ in self.shuffle.lost()}
        if nothing_lost and lost:
            raise LostError(f"{self} names partitions lost: {sorted(lost)}")
        for partition in range(self.shape.partitions):
            try:
                found = Counter((int(one.map), bytes(one.payload)) for one in self.shuffle.reader([partition]))
            except HoldfastError as error:
                named = isinstance(error, DataLostError) and f"partition {partition} epoch" in str(error)
                if nothing_lost or not named:
                    raise LostError(f"{self} partition {partition}: {error}") from error
                self.exact.discard(partition)
                continue
            if found != wanted[partition]:
                missing = (wanted[partition] - found).total()
                raise LostError(f"{self} partition {partition}: {missing} of {wanted[partition].total()} are missing")
            self.exact.add(partition)

    def __str__(self) -> str:
        return f"{self.shuffle.key} ({self.shape.ack.name}, {self.shape.copies} copies)"


class Rig:
    """The rounds."""

    def __init__(self, cluster: LocalCluster, ground: Machines, rng: random.Random) -> None:
        self.cluster = cluster
        self.ground = ground
        self.rng = rng
        self.session = Session(cluster.endpoints, app="power", lease_seconds=600.0)
        self.kept: list[list[Load]] = []
        self.cuts: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self._over = threading.Event()

    def round(self) -> None:
        """Push, cut, go on, commit, and look at everything."""
        loads = []
        for shape in SHAPES:
            shuffle = self.session.register_reduce_shuffle(shape.partitions, MAPS, shape.copies, shape.ack)
            loads.append(Load(shuffle, shape, self.rng.getrandbits(32)))
        for load in loads:
            load.begin()
        deadline = time.monotonic() + self.rng.uniform(0.5, 6.0)
        while time.monotonic() < deadline and any(thread.is_alive() for load in loads for thread in load.threads):
            if sum(load.waiting for load in loads) >= len(loads):
                break
            loads[0].go.wait(0.02)
        hit = self.rng.sample(self.ground.all, self.rng.choice((1, 1, 1, 2, 3, 3)))
        self.cut(hit)
        for load in loads:
            load.end()
            load.memory_cuts = self.cuts[self.ground.all[-1].number]
            synced = load.shape.ack is Ack.SYNCED
            load.judge(nothing_lost=synced or (load.shape.copies == 2 and len(hit) == 1))
            self.counts["exact" if len(load.exact) == load.shape.partitions else "lost by name"] += 1
        for load in [load for loads in self.kept for load in loads]:
            self.again(load)
        self.kept.append(loads)
        while len(self.kept) > KEPT:
            for load in self.kept.pop(0):
                load.shuffle.unregister()

    def again(self, load: Load) -> None:
        """What was committed is what it was."""
        before = set(load.exact)
        load.shuffle.forget_manifest()
        load.judge(nothing_lost=load.shape.ack is Ack.SYNCED)
        in_memory = load.shape.ack is not Ack.SYNCED and load.memory_cuts != self.cuts[self.ground.all[-1].number]
        if before - load.exact and not in_memory:
            raise LostError(f"{load}: partitions {sorted(before - load.exact)} were there at the commit")
        self.counts["read again"] += 1

    def cut(self, hit: list[Machine]) -> None:
        """The power of machines goes at once, and often again while they start."""
        while True:
            servers = [self._server(role, machine) for machine in hit for role in "wm"]
            for server in servers:
                server.kill()
            for machine in hit:
                self.ground.write_back(machine)
                kept, of = self.ground.cut(machine)
                self.cuts[machine.number] += 1
                self.counts["writes dropped"] += of - kept
                self.counts["writes kept"] += kept
            self.counts["cuts"] += 1
            for machine in hit:
                self.ground.switch_on(machine)
            for server in reversed(servers):
                server.start(wait=False)
            if self.rng.random() < 0.5:
                break
            self._over.wait(self.rng.uniform(0.0, _AGAIN_S))
            self.counts["cuts while starting"] += 1
        for server in servers:
            server.wait_ready(_SECONDS_MAX)
        self.cluster.wait_ready(_SECONDS_MAX)

    def _server(self, role: str, machine: Machine) -> Server:
        servers = self.cluster.workers if role == "w" else self.cluster.masters
        return servers[machine.number - 1]


def settings_of(ground: Machines) -> dict[str, dict[str, dict[str, object]]]:
    """Where each server keeps its things: on its machine."""
    own: dict[str, dict[str, dict[str, object]]] = {}
    for machine in ground.all:
        directories: list[dict[str, object]] = [
            {"path": f"{machine.place}/ssd", "tier": "SSD", "capacity": "48MiB"},
            {"path": f"{machine.place}/hdd", "tier": "HDD", "capacity": "256MiB"},
        ]
        if machine is ground.all[-1]:
            directories.insert(0, {"path": str(machine.memory), "tier": "MEMORY", "capacity": "24MiB"})
        for each in ("ssd", "hdd"):
            (machine.place / each).mkdir()
        os.sync()
        own[f"w{machine.number}"] = {"worker": {"directories": directories}}
        own[f"m{machine.number}"] = {"master": {"directory": f"{machine.place}/master"}}
    return own


def rehearse(root: Path, seed: int, cuts: int, mistake: str = "") -> Counter[str]:
    """Run rounds until there were so many cuts; what was counted. Raises LostError."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        ground = stack.enter_context(machines(root / "power", rng))
        path = os.pathsep.join([str(PLANT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        names = {"HOLDFAST_TEST_BOOTS": str(ground.boots), "HOLDFAST_TEST_MISTAKE": mistake, "PYTHONPATH": path}
        stack.enter_context(patch.dict(os.environ, names))
        shared: dict[str, dict[str, object]] = {
            "raft": {"snapshot_entries": 50},
            "lease": {"worker": "3s", "heartbeat": "500ms"},
        }
        cluster = stack.enter_context(
            local_cluster(3, 3, dir=root / "cluster", settings=shared, own=settings_of(ground))
        )
        rig = Rig(cluster, ground, rng)
        began = time.monotonic()
        while rig.counts["cuts"] < cuts:
            rig.round()
            rig.counts["rounds"] += 1
            reported = ", ".join(f"{what} {count}" for what, count in rig.counts.items())
            print(f"{time.monotonic() - began:6.0f} s: {reported}", flush=True)
        rig.session.close()
        return rig.counts


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="cut the power of machines while maps push")
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--mistake", default="", help="a mistake of tests/drills/mistakes.py to plant in the servers")
    given = parser.parse_args()
    if reason := skip_reason():
        print(reason, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # by way of all that unmounts and detaches
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-power-") as root:
        try:
            rehearse(Path(root), given.seed, given.cuts, given.mistake)
        except (LostError, HoldfastError) as error:
            print(f"LOST: {error}\nagain: tox -e power -- --seed {given.seed}", flush=True)
            return 1
    print("nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
