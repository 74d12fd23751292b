"""Clusters to look at: three real masters, and workers, applications and shuffles that are only told of.

`empty` has nothing; `busy` a day's work on three racks; `degraded` the same with a lost worker, a failing disk, a full
one, a DFS that does not answer, a drain, lost data, a name that is meant to do harm, and a master that is gone. `hosts`
is real: three hosts with three workers each, of which one is lost, one host that is to go away, and shuffles with three
copies, confined to a pool, and with a copy less than was asked for.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.session import Session
from holdfast.common.limits import GIB, MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.worker_states import LOST
from tests.cluster.reduce_peers import metric
from tests.support.waiting import wait_until
from tests.unit.master.build import winners

#: Heartbeats come from a story that ends, so nobody may be lost but where it says so.
SETTINGS = {"lease": {"worker": "2m", "heartbeat": "1s"}}
#: An application whose name is markup: whoever shows it unescaped runs it.
EVIL = '<script>document.title="hurt"</script><img src=x onerror=alert(1)>"\'&'
LONG = "ad-hoc: customers by region, with a name that goes on and on and on until it is cut"
#: Three hosts, of which two have fast disks.
HOSTS: dict[str, Any] = {
    "hosts": 3,
    "workers_per_host": 3,
    "own": {
        f"w{host}{number}": {"worker": {"rack": f"/hall-{host}/r{host}", "tags": tags}}
        for host, tags in ((1, ["nvme"]), (2, ["nvme", "spot"]), (3, ["archive"]))
        for number in ("", "-2", "-3")
    },
}
_RACKS = ("/hall-1/r1", "/hall-1/r2", "/hall-2/r7")
_TIERS = (
    ("MEMORY", "/dev/shm/holdfast", 16 * GIB),
    ("SSD", "/data/nvme0", 1700 * GIB),
    ("HDD", "/data/disk1", 7300 * GIB),
)


@dataclass
class Worker:
    """A worker that sends heartbeats and does nothing."""

    number: int
    name: str
    id: int = 0
    state: int = 0
    pushed: int = 0
    fetched: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    full: dict[str, str] = field(default_factory=dict)
    dfs_problem: str = ""
    share: float = 0.4

    @property
    def uid(self) -> bytes:
        """What it is, whatever number it has."""
        return self.name.encode().ljust(16, b"u")

    def directories(self) -> list[pb.Directory]:
        """Three tiers, fuller the later the worker's number."""
        made = []
        for place, (tier, path, size) in enumerate(_TIERS):
            used = int(size * min(self.share + 0.06 * self.number - 0.12 * place, 0.97))
            problem = self.problems.get(path, "")
            made.append(
                pb.Directory(
                    id=f"{self.name}{tier}".encode().ljust(16, b".")[:16],
                    path=path,
                    tier=tier,
                    capacity_bytes=size,
                    used_bytes=max(used, 0),
                    free_bytes=size - max(used, 0),
                    healthy=not problem,
                    problem=problem,
                    full=self.full.get(path, ""),
                    state="critical" if problem else "well",
                )
            )
        return made

    def dfs(self) -> pb.Dfs:
        """Its files on a DFS."""
        state = "failing" if self.dfs_problem else "well"
        problem_ms = 185_000 if self.dfs_problem else 0
        return pb.Dfs(
            url="s3://shuffle/holdfast",
            state=state,
            bytes=(self.number + 1) * 310 * GIB,
            files=4_000,
            problem=self.dfs_problem,
            problem_ms=problem_ms,
        )

    def registration(self) -> pb.RegisterWorkerRequest:
        """Its start."""
        return pb.RegisterWorkerRequest(
            uid=self.uid,
            name=self.name,
            incarnation=3,
            host=f"{self.name}.example.net",
            rack=_RACKS[self.number % len(_RACKS)],
            data_address=f"10.1.{self.number % 3}.{10 + self.number}:7080",
            http_address=f"10.1.{self.number % 3}.{10 + self.number}:7081",
            directories=self.directories(),
            boot_id="b",
            version="0.1.0",
            dfs=self.dfs(),
        )

    def heartbeat(self) -> pb.HeartbeatRequest:
        """What it tells now."""
        return pb.HeartbeatRequest(
            worker=self.id,
            uid=self.uid,
            state=self.state,
            incarnation=3,
            directories=self.directories(),
            memory_bytes=900 * MIB + self.number * 37 * MIB,
            files=1_200 + 310 * self.number,
            counters={"push_bytes": self.pushed, "stream_bytes": self.fetched},
            dfs=self.dfs(),
        )


class World:
    """Tells the masters of `cluster` of workers and shuffles."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self.workers = [Worker(number, f"w{number + 1:02}") for number in range(8)]

    async def register(self) -> None:
        """Have all workers registered and heard once."""
        for worker in self.workers:
            registered = await self.client.call("Registry/RegisterWorker", worker.registration())
            worker.id, worker.state = registered.worker, registered.state
        await self.beat()

    async def beat(self, seconds: float = 0.0, but: str = "") -> None:
        """Heartbeats of all, for so long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            for worker in self.workers:
                worker.pushed += (worker.number + 2) * 9 * MIB
                worker.fetched += (10 - worker.number) * 14 * MIB
                if worker.name != but:
                    await self.client.call("Registry/Heartbeat", worker.heartbeat())
            if loop.time() >= end:
                return
            await asyncio.wait([loop.create_future()], timeout=0.5)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Heartbeats of all, beside what is done meanwhile."""
        beats = asyncio.ensure_future(self.beat(math.inf))
        try:
            yield
        finally:
            beats.cancel()
            with suppress(asyncio.CancelledError):
                await beats

    async def lose(self, name: str) -> None:
        """Heartbeats of the others, until this worker is lost."""
        for _ in range(120):
            reply = await self.client.call("Admin/ListWorkers", pb.ListWorkersRequest())
            if any(worker.name == name and worker.state == LOST for worker in reply.workers):
                return
            await self.beat(0.5, but=name)
        raise AssertionError(f"{name} was not lost")

    async def application(self, name: str, user: str, shuffles: int, committed: int) -> bytes:
        """An application with shuffles, of which some are committed; return its instance."""
        instance = secrets.token_bytes(16)
        request = pb.RegisterApplicationRequest(instance=instance, name=name, user=user, holder=instance)
        await self.client.call("Shuffles/RegisterApplication", request)
        for number in range(shuffles):
            reduces = number % 2 == 1
            key = pb.ShuffleKey(instance=instance, shuffle=number)
            asked = pb.RegisterShuffleRequest(
                key=key,
                kind=pb.PARTITION_KIND_REDUCE if reduces else pb.PARTITION_KIND_MAP,
                partitions=200,
                maps=40 + number,
                copies=2 if reduces else 1,
                ack=1,
                holder=instance,
            )
            registered = await self.client.call("Shuffles/RegisterShuffle", asked)
            if number < committed and not reduces:
                at = registered.workers[0].worker
                array = winners(at, maps=40 + number, partitions=200, size=(number + 1) * 3 * MIB)
                await self.client.call("Shuffles/Commit", pb.CommitRequest(key=key, winners_array=array))
        return instance


async def busy(client: ControlClient, seconds: float = 6.0, ad_hoc: str = LONG) -> World:
    """A day's work; `ad_hoc` names one of its applications."""
    world = World(client)
    await world.register()
    async with world.beating():
        await world.application("nightly-orders", "etl", 9, 7)
        await world.application(ad_hoc, "ana", 3, 1)
        instance = await world.application("features-v2", "ml", 4, 4)
        attach = pb.AttachRequest(instance=instance, holder=secrets.token_bytes(16), lease_ms=1_800_000)
        await client.call("Shuffles/Attach", attach)
    await world.beat(seconds)
    return world


async def degraded(cluster: LocalCluster, client: ControlClient) -> World:
    """A problem to look at."""
    world = await busy(client, 1.0)
    async with world.beating():
        await world.application(EVIL, '"><b>user</b>', 2, 1)
    world.workers[1].problems = {"/data/disk1": "OSError: [Errno 5] Input/output error: '/data/disk1/p/000017'"}
    world.workers[7].full = {"/data/nvme0": "it is used to 97 %, and keeps 64.0 GiB free"}
    world.workers[4].dfs_problem = "GetObject: the server did not answer within 10 s"
    drain = pb.DrainWorkersRequest(workers=["w06"])
    await world.beat()
    await client.call("Admin/DrainWorkers", drain)
    follower = next(each for each in cluster.masters if each.address != cluster.leader().address)
    follower.kill()
    await world.lose("w03")
    return world


async def hosts(cluster: LocalCluster, client: ControlClient) -> None:
    """A host without one of its workers, and one that goes away."""
    await _job(cluster, client, "nightly-orders", 3)
    await _job(cluster, client, "features-v2", 2, ["nvme"])
    cluster.workers[1].kill()
    short = partial(metric, cluster, "holdfast_master_epochs_short")
    await asyncio.to_thread(wait_until, short, "the masters to miss copies")
    await client.call("Admin/DrainWorkers", pb.DrainWorkersRequest(workers=["h2"], within_ms=2 * 3_600_000))
    await _job(cluster, client, "ad-hoc", 3)


async def _job(cluster: LocalCluster, client: ControlClient, name: str, copies: int, tags: Sequence[str] = ()) -> None:
    """An application that has committed one shuffle, has another one open, and is there when this returns."""
    with await asyncio.to_thread(Session, cluster.endpoints, app=name, user="etl", tags=tags) as session:
        await asyncio.to_thread(_shuffles, session, copies)
        attach = pb.AttachRequest(instance=session.instance, holder=secrets.token_bytes(16), lease_ms=1_800_000)
        await client.call("Shuffles/Attach", attach)


def _shuffles(session: Session, copies: int) -> None:
    """One shuffle is committed, one stays open. Blocks."""
    committed, _ = (session.register_reduce_shuffle(partitions=40, maps=1, replication=copies) for _ in range(2))
    writer = committed.writer(0)
    for partition in range(40):
        writer.write(partition, bytes(MIB // 4))
    committed.commit([writer.close()])
