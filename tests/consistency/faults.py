"""What is done to the cluster: a schedule drawn from the seed, and the hand that carries it out.

Everything that is done is in the history, with whom it was done to and when it was over: the judge allows only what
that explains. Servers that are down or cut off are left alone until they are back, so that no more is done to one than
the schedule says; faults of different servers overlap.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.errors import HoldfastError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.drills.support.network import CLIENT
from tests.consistency.ground import Ground
from tests.consistency.history import History

#: The longest that anything is kept from the others: well below the grace and the leases.
FAULT_SECONDS_MAX = 8.0
_BETWEEN_SECONDS = (0.5, 5.0)
_BACK_SECONDS_MAX = 90.0
#: What is done, and how often.
WEIGHTS = {
    "kill worker": 6,
    "kill workers": 2,
    "kill master": 3,
    "kill masters": 2,
    "kill client": 1,
    "stop worker": 4,
    "stop master": 2,
    "stop client": 2,
    "restart worker": 2,
    "restart master": 1,
    "rolling": 1,
    "drain": 2,
    "cut worker": 5,
    "cut master": 3,
    "cut from masters": 2,
    "cut workers": 3,
    "fill": 3,
}


class Fault(NamedTuple):
    """One, as drawn: numbers of servers are taken modulo how many there are."""

    after: float
    what: str
    number: int
    seconds: float
    one_way: bool


def schedule(seed: int, without: Collection[str] = ()) -> Iterator[Fault]:
    """Without end; the same for the same seed."""
    chance = random.Random(f"{seed}/faults")
    weights = {what: weight for what, weight in WEIGHTS.items() if what not in without}
    while True:
        (what,) = chance.choices(list(weights), list(weights.values()))
        seconds = chance.choice((0.0, chance.uniform(0.2, 2.0), chance.uniform(2.0, FAULT_SECONDS_MAX)))
        yield Fault(chance.uniform(*_BETWEEN_SECONDS), what, chance.randrange(64), seconds, chance.random() < 0.3)


class Target(Protocol):
    """What something is done to: a server, a client, the network."""

    @property
    def name(self) -> str: ...


class Victim(Protocol):
    """A client process."""

    name: str

    def kill(self, number: int = signal.SIGKILL) -> None: ...


V = TypeVar("V", bound=Victim)


class Hand(Generic[V]):
    """Carries the schedule out until it is stopped, and leaves everything whole."""

    def __init__(
        self,
        cluster: LocalCluster,
        ground: Ground,
        history: History,
        clients: Callable[[], list[V]],
        replace: Callable[[V], None],
    ) -> None:
        self._cluster = cluster
        self._ground = ground
        self._history = history
        self._clients = clients
        self._replace = replace
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._touched: set[str] = set()
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="faults")

    def run(self, seed: int, seconds: float, without: Collection[str] = ()) -> None:
        """Do what the seed says for so long, then wait until everything is whole. Raises what went wrong in that."""
        end = time.monotonic() + seconds
        running: list[Future[None]] = []
        for fault in schedule(seed, without):
            if self._stop.wait(min(fault.after, max(0.0, end - time.monotonic()))) or time.monotonic() >= end:
                break
            running = [one for one in running if not one.done() or one.result()]
            running.append(self._pool.submit(self._do, fault))
        for one in running:
            one.result()
        self._pool.shutdown()
        self._ground.join()

    def stop(self) -> None:
        """No more faults."""
        self._stop.set()

    def _do(self, fault: Fault) -> None:
        what, number = fault.what, fault.number
        worker = self._cluster.workers[number % len(self._cluster.workers)]
        master = self._cluster.masters[number % len(self._cluster.masters)]
        match what:
            case "kill worker":
                self._with(fault, [worker], self._kill)
            case "kill workers":
                self._with(fault, self._cluster.workers, self._kill)
            case "kill master":
                self._with(fault, [self._leader() if number % 2 else master], self._kill)
            case "kill masters":
                self._with(fault, self._cluster.masters, self._kill)
            case "stop worker":
                self._with(fault, [worker], self._halt)
            case "stop master":
                self._with(fault, [self._leader()], self._halt)
            case "kill client" | "stop client":
                self._to_client(fault)
            case "restart worker":
                self._with(fault, [worker], self._restart)
            case "restart master":
                self._with(fault, [master], self._restart)
            case "rolling":
                for each in self._cluster.workers:
                    self._with(fault, [each], self._restart)
            case "drain":
                self._with(fault, [worker], self._drain)
            case "fill":
                if worker.name in self._ground.small:
                    self._with(fault, [worker], self._fill)
            case _:
                self._cut(fault, worker, master)

    @contextmanager
    def _reported(self, fault: Fault, targets: Sequence[Target], **more: object) -> Iterator[bool]:
        """Whether nothing else is being done to any of them; if so the history has it, and nothing else will be."""
        names = [target.name for target in targets]
        with self._guard:
            free = not self._touched.intersection(names)
            if free:
                self._touched.update(names)
        if not free:
            yield False
            return
        self._history.say(fault=fault.what, servers=names, seconds=round(fault.seconds, 2), **more)
        try:
            yield True
        finally:
            self._history.say(over=fault.what, servers=names)
            with self._guard:
                self._touched.difference_update(names)

    def _with(self, fault: Fault, servers: Sequence[Server], work: Callable[[Fault, Sequence[Server]], None]) -> None:
        with self._reported(fault, servers) as free:
            if free:
                work(fault, servers)

    def _leader(self) -> Server:
        try:
            return self._cluster.leader()
        except HoldfastError:
            return self._cluster.masters[0]

    # What is done.

    def _kill(self, fault: Fault, servers: Sequence[Server]) -> None:
        for server in servers:
            server.kill(signal.SIGSTOP)  # all at the same moment
        for server in servers:
            server.kill()
        self._stop.wait(fault.seconds)
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait_ready()
        self._back(servers)

    def _halt(self, fault: Fault, servers: Sequence[Server]) -> None:
        for server in servers:
            server.kill(signal.SIGSTOP)
        self._stop.wait(fault.seconds)
        for server in servers:
            server.kill(signal.SIGCONT)
        self._back(servers)

    def _restart(self, fault: Fault, servers: Sequence[Server]) -> None:
        for server in servers:
            server.stop(90.0)
            server.start()
        self._back(servers)

    def _to_client(self, fault: Fault) -> None:
        clients = self._clients()
        client = clients[fault.number % len(clients)]
        with self._reported(fault, [client]) as free:
            if free and fault.what == "kill client":
                client.kill()
                self._replace(client)
            elif free:
                client.kill(signal.SIGSTOP)
                self._stop.wait(fault.seconds)
                client.kill(signal.SIGCONT)

    def _drain(self, fault: Fault, servers: Sequence[Server]) -> None:
        names = [server.name for server in servers]
        for cancel in (False, True):
            self._ask_leader("Admin/DrainWorkers", pb.DrainWorkersRequest(workers=names, cancel=cancel))
            self._stop.wait(0.0 if cancel else fault.seconds)

    def _ask_leader(self, method: str, request: pb.DrainWorkersRequest) -> None:
        """Ask until one that leads has heard it."""

        def said() -> bool:
            try:
                ask(self._cluster.leader().address, method, request, pb.DrainWorkersReply)
            except HoldfastError:
                return False
            return True

        wait_until(said, _BACK_SECONDS_MAX)

    def _fill(self, fault: Fault, servers: Sequence[Server]) -> None:
        for server in servers:
            self._ground.fill(server.name)
        self._stop.wait(fault.seconds)
        for server in servers:
            self._ground.empty(server.name)

    def _cut(self, fault: Fault, worker: Server, master: Server) -> None:
        """One cut at a time: joining joins everybody."""
        everybody = [server.name for server in self._cluster.servers]
        masters = [server.name for server in self._cluster.masters]
        match fault.what:
            case "cut worker":
                some, others, touched = [worker.name], [*everybody, CLIENT], [worker]
            case "cut master":
                leader = self._leader() if fault.number % 2 else master
                some, others, touched = [leader.name], [*everybody, CLIENT], [leader]
            case "cut from masters":
                some, others, touched = [worker.name], masters, [worker]
            case _:
                workers = self._cluster.workers
                some, others, touched = [worker.name], [server.name for server in workers], workers
        others = [name for name in others if name not in some]
        reported = {"some": some, "others": others, "one_way": fault.one_way}
        with self._reported(fault, [*touched, _Network()], **reported) as free:
            if free:
                self._ground.cut(some, others, one_way=fault.one_way)
                self._stop.wait(fault.seconds)
                self._ground.join()
                self._back(touched)

    def _back(self, servers: Sequence[Server]) -> None:
        """Wait until the masters have these workers again."""
        for server in servers:
            if server.role == "worker" and not wait_until(partial(registered, server), _BACK_SECONDS_MAX):
                self._history.say(say="not back", server=server.name, seconds=_BACK_SECONDS_MAX)


class _Network:
    """In place of a server: the network, to which one thing is done at a time."""

    name = "network"


def registered(server: Server) -> bool:
    """Whether a worker has heard that the masters have it."""
    try:
        return bool(worker_status(server.http, 2.0)["registered"])
    except (HoldfastError, ValueError):
        return False
