"""Simulation of a Raft cluster under faults.

    python -m tests.raft.sim --seeds 0-19999 [--library-as-is [--power-loss]] [--out FILE]

Each seed is one cluster: about 12 simulated seconds of faults (delays, connections lost with what they carried,
one-way cuts, pauses, crashes between and inside disk steps, restarts of one or all), then all faults end and the
cluster must agree again. The oracles of `world` look after every step. With --out the run can be stopped and
continued. The verdict is the exit status: 0 when every seed passed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.raft.as_is import LibraryPeer
from tests.raft.hardened import HardenedPeer
from tests.raft.world import Stuck, Violation, World

FAULT_SECONDS = 12.0
CALM_SECONDS = 30.0
TIGHT = 10_000
REMEMBERED = Path(__file__).with_name("seeds.txt")
FAULTS = ("crash", "inside", "all", "pause", "hold", "cut", "slow", "isolate", "transfer")


class Scenario:
    """The faults and clients of one seed."""

    def __init__(
        self,
        seed: int,
        peer: Callable[[str, World], HardenedPeer | LibraryPeer],
        nodes: int,
        power_loss: float | None = None,
    ) -> None:
        self.world = world = World(seed, [f"m{n}" for n in range(1, nodes + 1)])
        self.rng = world.rng
        self.pace = self.rng.choice((0.15, 0.4, 1.0))  # mean seconds between faults
        world.power_loss = self.rng.random() if power_loss is None else power_loss
        for name in world.names:
            world.add(name, peer(name, world))
        self.calm = False
        self.commands = 0
        self.turns = 0  # commands proposed in peace

    def run(self) -> None:
        """Faults, then peace, then the last checks; raises Violation."""
        world = self.world
        for name in world.names:
            world.start(name)
        world.at(1.0, self._fault)
        world.at(0.5, self._client)
        world.run(FAULT_SECONDS)
        self.calm = True
        world.heal()
        for name in world.names:
            world.hosts[name].peer.arm(1 << 60)
            world.start(name)
        world.at(world.now + 3.0, self._insist)
        world.run(world.now + CALM_SECONDS, stop=self._agreed)
        if not self._agreed():
            raise Stuck("the cluster does not agree again although all faults have ended")
        self._final()

    def _agreed(self) -> bool:
        """A command proposed in peace was acknowledged, and all nodes have applied it and nothing else since."""
        acked = self.world.oracle.acked
        if not any(b"last%d" % turn in acked for turn in range(1, self.turns + 1)):
            return False
        states = [self.world.hosts[name].peer.state() for name in self.world.names]
        return len({state[-1] if state else None for state in states}) == 1

    def _final(self) -> None:
        states = [self.world.hosts[name].peer.state() for name in self.world.names]
        if any(state != states[0] for state in states):
            raise Violation("the states differ at the end")
        commands = [command for _, command in states[0]]
        if len(set(commands)) != len(commands):
            raise Violation("a command was applied twice")
        missing = set(self.world.oracle.acked) - set(commands)
        if missing:
            raise Violation(f"acknowledged and gone: {sorted(missing)[:5]}")

    def _insist(self) -> None:
        """Propose in peace, again under another name if nothing was acknowledged."""
        if self._agreed():
            return
        leader = next((n for n in self.world.names if self.world.hosts[n].peer.leads), None)
        if leader is not None:
            self.turns += 1
            command = b"last%d" % self.turns
            self.world.act(leader, lambda: self.world.hosts[leader].peer.propose(command))
        self.world.at(self.world.now + 4.0, self._insist)

    def _client(self) -> None:
        if self.calm:
            return
        world, rng = self.world, self.rng
        leaders = [n for n in world.names if world.hosts[n].up and world.hosts[n].peer.leads]
        name = rng.choice(leaders) if leaders and rng.random() < 0.9 else rng.choice(world.names)
        for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
            self.commands += 1
            command = b"c%d" % self.commands
            world.act(name, lambda command=command: world.hosts[name].peer.propose(command))  # type: ignore[misc]
        for reader in leaders:  # those who think so, the deposed ones too
            if rng.random() < 0.6:
                world.act(reader, world.hosts[reader].peer.read)
        world.at(world.now + rng.expovariate(8.0), self._client)

    def _fault(self) -> None:
        if self.calm:
            return
        world, rng = self.world, self.rng
        one = rng.choice(world.names)
        other = rng.choice([name for name in world.names if name != one])
        kind = rng.choices(FAULTS, (4, 4, 1, 3, 3, 3, 3, 2, 1))[0]
        if kind == "crash":
            self._crash(one)
        elif kind == "inside" and world.hosts[one].up:
            world.hosts[one].peer.arm(rng.randrange(6))
        elif kind == "all":
            for name in world.names:
                self._crash(name)
        elif kind == "pause":
            world.pause(one, rng.choice((0.1, 0.5, 1.5, 3.0)))
        elif kind == "hold":
            world.hold(one, other, rng.uniform(0.05, 2.5))
            if rng.random() < 0.4:
                world.at(world.now + rng.uniform(0.0, 2.5), lambda: world.cut(one, other, rng.random() < 0.5))
        elif kind == "cut":
            world.cut(one, other, rng.random() < 0.5)
        elif kind == "slow":
            world.slow(one, other, (0.0, rng.choice((0.02, 0.2, 1.5))), rng.uniform(0.2, 2.0))
        elif kind == "isolate":
            seconds = rng.uniform(0.3, 2.5)
            for name in world.names:
                if name != one:
                    world.hold(one, name, seconds)
                    world.hold(name, one, seconds)
        elif kind == "transfer" and world.hosts[one].up:
            world.act(one, world.hosts[one].peer.transfer)
        world.at(world.now + rng.expovariate(1 / self.pace), self._fault)

    def _crash(self, name: str) -> None:
        self.world.crash(name, hard=self.rng.random() < self.world.power_loss)
        self.world.at(self.world.now + self.rng.uniform(0.05, 2.0), lambda: self.world.start(name))


def hardened(seed: int) -> Scenario:
    """A cluster of the product's members; from seed TIGHT on, what a log lacks never fits in a message or a window."""
    limits = {"compact_entries": (8, 20, 60, 100_000)[seed % 4]}
    if seed >= TIGHT:
        limits.update(batch_entries=2, window_messages=3)
    return Scenario(seed, lambda name, world: HardenedPeer(name, world, **limits), 5 if seed % 8 == 7 else 3)


def as_is_killed(seed: int) -> Scenario:
    """A cluster of the library as it is; crashes keep each journal operation one by one, as kill -9 does."""
    return Scenario(seed, LibraryPeer, 3, power_loss=0.0)


def as_is_unplugged(seed: int) -> Scenario:
    """A cluster of the library as it is; crashes lose what was not written back."""
    return Scenario(seed, LibraryPeer, 3, power_loss=1.0)


def run_seed(make: Callable[[int], Scenario], seed: int) -> tuple[str | None, Scenario]:
    """What went wrong, if anything, and the scenario as it ended."""
    scenario = make(seed)
    try:
        scenario.run()
    except Violation as violation:
        return str(violation), scenario
    return None, scenario


def remembered() -> list[int]:
    """Seeds that failed once, for the product or for the oracles."""
    lines = REMEMBERED.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def main() -> int:
    """Run seeds and print a verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.raft.sim", description=__doc__)
    parser.add_argument("--seeds", default="0-199", help="A-B, both included")
    parser.add_argument("--library-as-is", action="store_true", help="with crashes as by kill -9")
    parser.add_argument("--power-loss", action="store_true", help="with it: crashes lose what was not synced")
    parser.add_argument("--out", type=Path, help="one JSON line per seed; seeds already in it are not run again")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    make = (as_is_unplugged if args.power_loss else as_is_killed) if args.library_as_is else hardened
    done: dict[int, str | None] = {}
    if args.out and args.out.exists():
        done = {line["seed"]: line["violation"] for line in map(json.loads, args.out.read_text().splitlines())}
    started, events, acked, reads, ran = time.monotonic(), 0, 0, 0, 0
    for seed in range(int(first), int(last or first) + 1):
        if seed in done:
            continue
        violation, scenario = run_seed(make, seed)
        done[seed] = violation
        ran += 1
        oracle = scenario.world.oracle
        events, acked, reads = events + scenario.world.events, acked + len(oracle.acked), reads + oracle.reads
        if violation:
            print(f"seed {seed}: {violation}", flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps({"seed": seed, "violation": violation, "digest": scenario.world.digest()}) + "\n")
        if ran % 100 == 0:
            bad, rate = sum(v is not None for v in done.values()), ran / (time.monotonic() - started)
            print(f"{len(done)} seeds, {bad} unsafe, {rate:.1f} seeds/s", flush=True)
    unsafe = sum(violation is not None for violation in done.values())
    print(f"this run: {ran} seeds, {events} events, {acked} commands acknowledged, {reads} confirmed reads")
    print(f"VERDICT: {len(done)} seeds, {unsafe} unsafe")
    return 1 if unsafe else 0


if __name__ == "__main__":
    sys.exit(main())
