"""What the tests of the masters share: a driver that calls, and waiting for masters to agree."""

import asyncio
import secrets
import urllib.error
import urllib.request
from collections.abc import Coroutine
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.errors import (
    RetryError,
)
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.support.waiting import wait_until_async

#: Nobody here sends heartbeats, so workers are lost only where a test is about that.
CALM = {"lease": {"worker": "10m"}}
#: Workers away are given up soon.
HASTY = {**CALM, "worker": {"return_grace": "300ms"}}
#: Short leases, so that expiry is seen within a test; the defaults elsewhere.
SHORT = {"lease": {"worker": "1s", "heartbeat": "200ms", "tick": "100ms", "deletion_grace": "500ms"}}
#: The same where only who is silent may be lost, however busy the machine is.
LONGER = {"lease": {**SHORT["lease"], "worker": "10s"}}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


def drawn() -> bytes:
    return secrets.token_bytes(16)


def worker(name: str, incarnation: int = 1, **changed: Any) -> pb.RegisterWorkerRequest:
    directory = pb.Directory(id=name.encode().ljust(16, b"d"), path="/d", tier="SSD", free_bytes=1, healthy=True)
    fields: dict[str, Any] = {"uid": name.encode().ljust(16, b"u"), "name": name, "incarnation": incarnation}
    fields |= {"host": f"host-{name}", "data_address": "127.0.0.1:1", "boot_id": "b", "directories": [directory]}
    return pb.RegisterWorkerRequest(**{**fields, **changed})


def heartbeat(name: str, registered: pb.RegisterWorkerReply, **fields: Any) -> pb.HeartbeatRequest:
    """A heartbeat of the worker that got this answer."""
    known: dict[str, Any] = {"worker": registered.worker, "incarnation": registered.incarnation}
    return pb.HeartbeatRequest(uid=worker(name).uid, state=registered.state, **known, **fields)


class Driver:
    """What a driver does: an application with a lease, shuffles, commits."""

    def __init__(self, client: ControlClient, lease_ms: int = 0) -> None:
        self.client = client
        self.instance, self.holder, self.lease_ms = drawn(), drawn(), lease_ms

    async def register(self) -> None:
        request = pb.RegisterApplicationRequest(instance=self.instance, name="app", holder=self.holder, user="u")
        request.lease_ms = self.lease_ms
        await self.client.call("Shuffles/RegisterApplication", request)

    def key(self, shuffle: int, generation: int = 0, state: int = 0) -> pb.ShuffleKey:
        return pb.ShuffleKey(instance=self.instance, shuffle=shuffle, generation=generation, state=state)

    async def shuffle(self, shuffle: int, copies: int = 1) -> pb.RegisterShuffleReply:
        request = pb.RegisterShuffleRequest(
            key=self.key(shuffle), kind=pb.PARTITION_KIND_MAP, partitions=4, maps=1, copies=copies, holder=self.holder
        )
        return await self.client.call("Shuffles/RegisterShuffle", request)

    async def commit(self, shuffle: int, array: bytes) -> None:
        await self.client.call("Shuffles/Commit", pb.CommitRequest(key=self.key(shuffle), winners_array=array))

    async def manifest(self, shuffle: int, wait_ms: int = 0) -> pb.GetManifestReply:
        request = pb.GetManifestRequest(key=self.key(shuffle), wait_ms=wait_ms, holder=self.holder)
        return await self.client.call("Shuffles/GetManifest", request)


async def hashes(client: ControlClient) -> dict[str, tuple[int, bytes]]:
    """Applied index and state hash of every master that answers."""
    found = {}
    for address in client.endpoints:
        try:
            status = await client.ask(address, "Admin/Status", pb.StatusRequest())
        except RetryError:
            continue
        found[status.name] = (status.applied_index, status.state_hash)
    return found


#: Until masters that have nothing new to apply have all applied the same.
AGREE_SECONDS_MAX = 60.0


async def agree(client: ControlClient, masters: int = 3) -> None:
    """Wait until that many masters have applied the same; their hashes must be equal then."""
    seen: dict[str, tuple[int, bytes]] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + AGREE_SECONDS_MAX
    while loop.time() < end:
        seen = await hashes(client)
        if len(seen) == masters and len({index for index, _ in seen.values()}) == 1:
            break
    assert len(set(seen.values())) == 1, seen
    assert len(seen) == masters


async def silent(seconds: float, what: str) -> None:
    """Let real time pass: leases are about nothing else."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await wait_until_async(lambda: loop.time() >= end, what)


def leader_of(cluster: LocalCluster) -> Server:
    return cluster.leader()


def waiting(cluster: LocalCluster) -> float:
    """Long polls that wait on the leader, by its metrics."""
    with urllib.request.urlopen(f"http://{leader_of(cluster).address}/metrics", timeout=60) as page:
        text = page.read().decode()
    line = next(line for line in text.splitlines() if line.startswith("holdfast_master_long_polls "))
    return float(line.split()[1])


def grpc_address(master: Server) -> str:
    return str(master.wait_ready()["grpc"])


def post(
    address: str, method: str, body: bytes, content: str = "application/json"
) -> tuple[int, dict[str, str], bytes]:
    """What curl does."""
    url = f"http://{address}/holdfast.v1.{method}"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": content})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()
