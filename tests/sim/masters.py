"""The masters: the product's services on a replicated log with the failover that Raft allows.

Raft itself is simulated in tests/raft. Here a cluster has one log; only who leads, and reaches a majority, adds to
it. A leader that was cut off goes on believing that it leads for a while, reads stale state, and hears later that its
proposals have an unknown outcome: some of them, a first part, may have been taken over by the next leader.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar

from holdfast.common.config.config import Config, from_tables
from holdfast.common.dfs.store import DfsStore
from holdfast.master.api.admin import Admin
from holdfast.master.api.registry import Registry
from holdfast.master.api.shuffles import Shuffles
from holdfast.master.control.dfs_cleaning import DfsCleaner
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.late import LateCopies
from holdfast.master.control.locations import Locations
from holdfast.master.control.moving import EpochMover
from holdfast.master.control.restoring import CopyRestorer
from holdfast.master.control.reviving import Reviver
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from holdfast.master.observe.adherence import AdherenceCount
from holdfast.master.observe.explaining import Explainer
from holdfast.master.observe.masters import Masters
from holdfast.master.raft.errors import NotLeader, OutcomeUnknown
from holdfast.master.raft.member import Applied
from holdfast.master.state_machine.codec import join_entry
from holdfast.master.state_machine.state_machine import StateMachine
from tests.sim.clock import Life, Violation, VirtualLoop, here, pause
from tests.sim.env.dfs import DFS_TIMES, Bucket, MasterDfsDoor
from tests.sim.network import Network

T = TypeVar("T")

GRACE_SECONDS = 30


def config_of(name: str, names: list[str], offset: float, dfs: str = "", restore_after: str = "0s") -> Config:
    """The configuration of a master whose clock is off by so many seconds; `dfs`: the URL of the DFS; `restore_after`:
    of a lost worker, "0s" never."""
    peers = [{"name": each, "raft": f"{each}:1", "http": f"{each}:2"} for each in names]
    return from_tables(
        {
            "cluster": {"id": "sim"},
            "master": {"name": name, "directory": "/nowhere", "peers": peers},
            "worker": {
                "return_grace": f"{GRACE_SECONDS}s",
                "restore_after": restore_after,
                "restore_rate": "4KiB",
            },
            "lease": {"worker": "3s", "heartbeat": "500ms", "tick": "200ms", "deletion_grace": "6s"},
            "faults": {"enabled": True, "clock_offset": f"{int(offset * 1000)}ms"},
            **({"dfs": {"url": dfs, **DFS_TIMES}} if dfs else {}),
        }
    )


class SimCleaner(DfsCleaner):
    """Asks the store on the loop, which takes a moment; cleans when it is time for that."""

    def __init__(self, leader: Leader, store: DfsStore, bucket: Bucket) -> None:
        super().__init__(leader, store)
        self._bucket = bucket

    async def _ask(self, act: Callable[[], T]) -> T:
        await pause(0.002)
        return act()

    async def round(self) -> None:
        if self._bucket.may_clean:
            await super().round()


class SimNode:
    """Stands for master/raft/node.RaftNode."""

    def __init__(self, cluster: Cluster, master: SimMaster) -> None:
        self._cluster = cluster
        self._master = master
        self.machine = StateMachine(master.changed)
        self.applied = 0
        self.term = 0

    def local(self, read: Any) -> Any:
        return read(self.machine)

    def status(self) -> Any:
        leader = self._cluster.leader
        known = leader.name if leader is not None else None
        return SimpleNamespace(leader=known, applied_index=self.applied, peers={}, role="member")

    def catch_up(self) -> None:
        """Apply what is committed and not applied here."""
        while self.applied < len(self._cluster.log):
            self.apply_next()

    def apply_next(self) -> Any:
        term, entry = self._cluster.log[self.applied]
        self.applied += 1
        result = self.machine.apply(self.applied, term, entry)
        self._cluster.agree(self._master.name, self.applied, self.machine)
        return result

    def read(self, read: Any) -> Future[Any]:
        future: Future[Any] = Future()
        cluster, floor = self._cluster, len(self._cluster.log)

        def done() -> None:
            if self._master.believes and cluster.works(self._master) and self.applied >= floor:
                future.set_result(read(self.machine))
            elif self._master.believes and not cluster.works(self._master):
                cluster.loop.on(self._master.life, 0.5, lambda: future.set_exception(NotLeader(None)))
            else:
                future.set_exception(NotLeader(None))

        cluster.loop.on(self._master.life, cluster.rng.uniform(0.0005, 0.005), done)
        return future

    def propose(self, entry: bytes) -> Future[Applied]:
        future: Future[Applied] = Future()
        if not self._master.believes:
            future.set_exception(NotLeader(None))
        else:
            self._cluster.propose(self._master, entry, future)
        return future


class SimMaster:
    """One master, over all its starts."""

    def __init__(self, cluster: Cluster, name: str, offset: float) -> None:
        self.cluster, self.name = cluster, name
        url = cluster.bucket.url if cluster.bucket is not None else ""
        self._config = config_of(name, cluster.names, offset, url, cluster.restore_after)
        self.life = Life(name)
        self.life.alive = False
        self.believes = False
        self.node: SimNode | None = None

    def start(self) -> None:
        self.life = Life(self.name)
        self.believes = False
        token = here.set(self.life)
        try:
            self._build()
        finally:
            here.reset(token)

    def _build(self) -> None:
        self.node = node = SimNode(self.cluster, self)
        self.leader = Leader(self._config, node, self._failed)  # type: ignore[arg-type]
        self.leader.draw = lambda: 1 + self.cluster.rng.getrandbits(63)
        fleet = Fleet(self.leader)
        masters, registry, locations = Masters(self._config), Registry(self.leader, fleet), Locations()
        asker = Asker(self.leader)
        self.sealing = Sealing(self.leader, locations, asker)
        early = EarlySeals(self.leader, locations, asker, self.sealing.begun)
        self.late = LateCopies(self.leader, locations, asker)
        self.restorer = CopyRestorer(self.leader, fleet, locations, asker)
        reviver = Reviver(self.leader, fleet, locations, self.sealing, early)
        self.mover = EpochMover(self.leader, fleet, locations, self.sealing, early)
        shuffles = Shuffles(self.leader, masters, registry, fleet, locations, self.sealing, reviver, asker)
        explainer = Explainer(self.leader, fleet, locations)
        adherence = AdherenceCount(self.leader, fleet, explainer)
        admin = Admin(self.leader, masters, registry, fleet, explainer, adherence, self.sealing, lambda: self._config)
        self._services = {"Shuffles": shuffles, "Registry": registry, "Admin": admin}
        if (bucket := self.cluster.bucket) is not None:
            door: Any = MasterDfsDoor(bucket)  # who stores nothing needs no local files
            store = DfsStore(self._config.dfs, "sim", draw=self.cluster.rng.random, door=door)
            self._cleaner = SimCleaner(self.leader, store, bucket)
        node.catch_up()

    def _failed(self, error: BaseException) -> None:
        self.cluster.loop.broken = self.cluster.loop.broken or error

    def changed(self, subjects: Any) -> None:
        """See main.Server: readers that wait look again."""
        if self.leader.waiters.watching:
            self.cluster.loop.call_soon(self.leader.waiters.wake, subjects)

    def lead(self, leads: bool) -> None:
        """Begin or end to serve as leader; who waits at one that ends is sent away."""
        if not leads:
            self.cluster.loop.on(self.life, 0.01, self._nobody_waits)
        self.believes = leads
        token = here.set(self.life)
        try:
            self.leader.leadership(leads, self.cluster.term)
        finally:
            here.reset(token)

    def _nobody_waits(self) -> None:
        if not self.believes and self.leader.waiters.count:
            raise Violation(f"{self.name} does not lead any more, and {self.leader.waiters.count} readers wait there")

    async def call(self, method: str, request: Any) -> Any:
        """See handlers.py: only who leads answers."""
        self.leader.require()
        service, _, name = method.partition("/")
        snake = "".join("_" + each.lower() if each.isupper() else each for each in name).lstrip("_")
        return await getattr(self._services[service], snake)(request)


class Cluster:
    """The log, and who leads."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        network: Network,
        count: int,
        bucket: Bucket | None = None,
        restore_after: str = "0s",
    ) -> None:
        """`bucket`: the DFS, if there is one; `restore_after`: see config_of."""
        self.loop, self.rng, self._network = loop, rng, network
        self.bucket, self.restore_after = bucket, restore_after
        self.names = [f"m{number}" for number in range(1, count + 1)]
        self.log: list[tuple[int, bytes]] = []
        self.term = 0
        self.leader: SimMaster | None = None
        self.isolated: dict[str, None] = {}
        self._pending: list[tuple[SimMaster, Life, bytes, Future[Applied]]] = []
        self._hashes: dict[int, bytes] = {}
        self.masters = {name: SimMaster(self, name, rng.uniform(-5.0, 5.0)) for name in self.names}
        self.elections = 0

    def start(self) -> None:
        for master in self.masters.values():
            self.boot(master)
        self._elect()

    def boot(self, master: SimMaster) -> None:
        if not master.life.alive:
            master.start()
            self._network.servers[master.name] = master  # type: ignore[assignment]

    def crash(self, master: SimMaster) -> None:
        master.life.end()
        master.believes = False
        self._network.host_ended(master.name)
        if self.leader is master:
            self._lost()

    def isolate(self, master: SimMaster, seconds: float) -> None:
        """Cut a master off from the others; clients and workers may reach it still."""
        self.isolated[master.name] = None
        self.loop.call_later(seconds, self.join, master)
        if self.leader is master:
            self.loop.call_later(self.rng.uniform(0.3, seconds + 1.0), self._step_down, master, master.life, self.term)
            self._lost()

    def join(self, master: SimMaster) -> None:
        self.isolated.pop(master.name, None)
        if master.life.alive and master.node is not None:
            if master.believes and self.leader is not master:
                self._step_down(master, master.life, self.term)
            master.node.catch_up()

    def works(self, master: SimMaster) -> bool:
        """Whether it leads and a majority follows."""
        return self.leader is master and master.life.alive and self._majority() and master.name not in self.isolated

    def _up(self) -> list[SimMaster]:
        return [each for each in self.masters.values() if each.life.alive and each.name not in self.isolated]

    def _majority(self) -> bool:
        return len(self._up()) * 2 > len(self.masters)

    def _step_down(self, master: SimMaster, life: Life, term: int) -> None:
        """A leader hears that it is none any more."""
        if master.life is not life or not life.alive or not master.believes or self.leader is master:
            return
        self._deposed(master)

    def _deposed(self, master: SimMaster) -> None:
        """A leader knows that it is none any more: nobody will tell it what became of its proposals."""
        master.lead(False)
        for each in [each for each in self._pending if each[1] is master.life]:
            self._pending.remove(each)
            each[3].set_exception(OutcomeUnknown())

    def _lost(self) -> None:
        """The others wait for an election; the first of what was under way may have reached the next leader."""
        master, self.leader = self.leader, None
        mine = [each for each in self._pending if each[0] is master]
        for _, _, entry, _ in mine[: self.rng.randint(0, len(mine))]:
            self.log.append((self.term, entry))
        self.loop.call_later(self.rng.uniform(0.3, 1.5), self._elect)

    def _elect(self) -> None:
        if self.leader is not None:
            return
        up = self._up()
        if not self._majority():
            self.loop.call_later(0.3, self._elect)
            return
        self.term += 1
        self.elections += 1
        self.leader = master = self.rng.choice(up)
        self._network.note("leads", master.name, self.term)
        if master.believes:  # it had not noticed that it was cut off, and is back
            self._deposed(master)
        assert master.node is not None
        # An entry of its own term; only when that is applied does it serve.
        self.log.append((self.term, join_entry(int((self.loop.now + 1_700_000_000) * 1000), [])))
        life = master.life

        def serve() -> None:
            if self.leader is master and life.alive:
                assert master.node is not None
                master.node.catch_up()
                master.lead(True)

        self.loop.on(life, self.rng.uniform(0.001, 0.1), serve)
        self._spread()

    def propose(self, master: SimMaster, entry: bytes, future: Future[Applied]) -> None:
        place = (master, master.life, entry, future)
        self._pending.append(place)

        def commit() -> None:
            if place not in self._pending or self.leader is not master:
                return  # its outcome is decided with the leadership
            if not self.works(master):
                self.loop.on(master.life, 0.1, commit)  # until enough others are there again
                return
            self._pending.remove(place)
            assert master.node is not None
            self.log.append((self.term, entry))
            result: Any = ()
            while master.node.applied < len(self.log):
                result = master.node.apply_next()
            future.set_result(Applied(len(self.log), self.term, result))
            self._spread()

        self.loop.on(master.life, self.rng.uniform(0.001, 0.02), commit)

    def _spread(self) -> None:
        for master in self._up():
            node = master.node
            assert node is not None
            self.loop.on(master.life, self.rng.uniform(0.001, 0.2), node.catch_up)

    def agree(self, name: str, index: int, machine: StateMachine) -> None:
        """All masters have the same state at the same index."""
        if index % 8:
            return
        problems = machine.state.check()
        if problems:
            raise Violation(f"{name} at index {index}: {problems[0]}")
        found = machine.state_hash()
        if self._hashes.setdefault(index, found) != found:
            raise Violation(f"{name} has another state at index {index}")

    def truth(self) -> State:
        """The state of whoever has applied most."""
        nodes = [each.node for each in self.masters.values() if each.node is not None]
        return max(nodes, key=lambda node: node.applied).machine.state

    def final(self) -> State:
        """All masters are up and have applied everything: they are equal and whole; return their state."""
        hashes = set()
        for master in self.masters.values():
            assert master.node is not None
            master.node.catch_up()
            hashes.add(master.node.machine.state_hash())
            problems = master.node.machine.state.check()
            if problems:
                raise Violation(f"{master.name}: {problems[0]}")
        if len(hashes) != 1:
            raise Violation("the masters' states differ at the end")
        assert master.node is not None
        return master.node.machine.state
