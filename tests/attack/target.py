"""What an attacker has: a secured cluster's addresses, its CA, and the tokens of a tenant and of a viewer."""

from __future__ import annotations

import os
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from holdfast.client import Credentials, LocalCluster
from holdfast.client.cluster.server import Server
from holdfast.common.formats.messages import Hello
from holdfast.common.ids import Instance
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.common.system.idle import resident_bytes

#: Shape of an attack; see the package.
Attack = Callable[["Target", Callable[[], bool]], Coroutine[Any, Any, Counter[str]]]
_LIFE_S = 3_600


@dataclass(frozen=True)
class Target:
    """A cluster with security on, and what its attacker may show. Make one with `target_of`."""

    cluster: LocalCluster
    cluster_id: str
    #: the attacker's own application, which is registered
    instance: Instance
    #: who the attacker is: as its application, as the user that owns it, and as somebody who may only look
    application: Credentials
    user: Credentials
    viewer: Credentials

    @property
    def context(self) -> ssl.SSLContext:
        """For bare TLS connections."""
        return self.application.context

    @property
    def raft(self) -> list[tuple[str, int]]:
        """Host and port of every master's Raft port."""
        return [("127.0.0.1", master.ports["raft"]) for master in self.cluster.masters]

    @property
    def grpc(self) -> list[str]:
        """Addresses of every master's gRPC port."""
        return [f"127.0.0.1:{master.ports['grpc']}" for master in self.cluster.masters]

    async def worker(self, server: Server) -> FrameClient:
        """A connection to a worker that shows the application's token."""
        host, _, port = server.address.rpartition(":")
        hello = Hello(cluster_id=self.cluster_id)
        pool = BufferPool(64 * MIB)
        return await FrameClient.connect(host, int(port), hello, pool, shown=self.application)

    async def register(self, shuffle: int, *, kind: pb.PartitionKind, partitions: int, maps: int) -> pb.ShuffleKey:
        """Register a shuffle of the attacker's own; its key is what workers are shown."""
        key = pb.ShuffleKey(instance=self.instance, shuffle=shuffle, generation=0)
        async with ControlClient(self.cluster.endpoints, self.application) as control:
            request = pb.RegisterShuffleRequest(
                key=key, kind=kind, partitions=partitions, maps=maps, ack=1, holder=self.instance
            )
            key.state = (await control.call("Shuffles/RegisterShuffle", request)).state
        return key


def facts_of(cluster: LocalCluster) -> dict[str, Any]:
    """What another process needs to attack this cluster, as JSON takes it; see `cluster_of`."""
    assert cluster.credentials is not None, "attacks are tried where security is on"
    servers = [
        {"role": each.role, "name": each.name, "address": each.address, "http": each.http, "ports": dict(each.ports)}
        for each in cluster.servers
    ]
    shown = {"ca": cluster.credentials.ca_pem, "token": cluster.credentials.token}
    return {"directory": str(cluster.directory), "servers": servers, **shown}


def cluster_of(facts: dict[str, Any]) -> LocalCluster:
    """Handles on a cluster that another process has started; good for addresses alone."""
    directory = Path(facts["directory"])
    credentials = Credentials(facts["ca"], facts["token"])
    launcher = ThreadPoolExecutor(1)  # starts nothing
    servers = [
        Server(
            role=each["role"],
            name=each["name"],
            address=each["address"],
            http=each["http"],
            config=directory,
            log=directory / "logs" / f"{each['name']}.log",
            launcher=launcher,
            ports=each["ports"],
        )
        for each in facts["servers"]
    ]
    masters, workers = ([each for each in servers if each.role == role] for role in ("master", "worker"))
    return LocalCluster(directory, masters, workers, credentials)


def shown_by(cluster: LocalCluster, kind: TokenKind, subject: bytes) -> Credentials:
    """What somebody of this kind shows to the cluster."""
    assert cluster.credentials is not None, "attacks are tried where security is on"
    keeper = Keeper((cluster.directory / "secret").read_bytes().strip(), (cluster.directory / "cluster").read_text())
    return cluster.credentials.with_token(keeper.mint(kind, subject, int(time.time()), _LIFE_S))


async def target_of(cluster: LocalCluster, name: str = "mallory") -> Target:
    """Register an application of the user `name`, and return what that user can attack the cluster with."""
    instance = Instance(os.urandom(16))
    user = shown_by(cluster, TokenKind.USER, name.encode())
    async with ControlClient(cluster.endpoints, user) as control:
        request = pb.RegisterApplicationRequest(instance=instance, name=name, user=name, holder=instance)
        reply = await control.call("Shuffles/RegisterApplication", request)
    application = user.with_token(reply.token)
    viewer = shown_by(cluster, TokenKind.VIEWER, b"onlooker")
    cluster_id = (cluster.directory / "cluster").read_text()
    return Target(cluster, cluster_id, instance, application, user, viewer)


def used(server: Server) -> tuple[int, int]:
    """Bytes of memory of a server's process that are no file's, and descriptors that it has open."""
    return resident_bytes(server.pid), psutil.Process(server.pid).num_fds()


def log_of(server: Server) -> str:
    """All that a server has written."""
    return server.log.read_text("utf-8", "replace")
