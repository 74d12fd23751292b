"""A data port with everything behind it, in the process of the test: a real store, real services, a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.common.config.config import parse
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.reduce_messages import ReplicaPlace
from holdfast.common.ids import RaftIndex, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.frames.server import FrameServer, serve
from holdfast.common.security.authority import issue, make_ca
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.security.server import ServerSecurity
from holdfast.worker.server.context import ServerBounds, WorkerContext
from holdfast.worker.server.membership.worker_identity import WorkerAddresses, WorkerIdentity
from holdfast.worker.server.services.data_server import DataServer
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store, prepare
from tests.support.registered import EverythingRegistered
from tests.support.waiting import gone

CLUSTER = "c"
#: what its masters have said before the test begins
INDEX = RaftIndex(7)


class DataWorld:
    """One worker that listens, number 1, as the masters left it."""

    def __init__(self, root: Path, security: ServerSecurity | None = None, env: Env | None = None) -> None:
        settings = StoreSettings(
            cluster_id=CLUSTER, worker_name="w1", directories=(DirectorySettings(path=str(root / "data")),)
        )
        pending = prepare(settings, env)
        self.store = open_store(pending)
        self.security = security
        self.standing = standing = WorkerIdentity(
            CLUSTER, "w1", self.store.incarnation, WorkerId(1), credentials=security
        )
        standing.saw(INDEX)
        bounds = ServerBounds(64 * MIB)
        self.context = WorkerContext(self.store, standing, bounds, asking=EverythingRegistered())
        self.server = DataServer(self.context)
        self.pool = BufferPool(64 * MIB)
        self.frames: FrameServer

    @property
    def place(self) -> ReplicaPlace:
        """This worker as a replica."""
        return ReplicaPlace(self.standing.worker, self.standing.incarnation, self.address)

    @property
    def address(self) -> str:
        """Where it listens."""
        return "{}:{}".format(*self.frames.address)

    @contextlib.asynccontextmanager
    async def client(
        self,
        role: Role = Role.CLIENT,
        *,
        index: int = 0,
        cluster: str = CLUSTER,
        credentials: CredentialsProvider | None = None,
    ) -> AsyncIterator[FrameClient]:
        """A connection that says this in its HELLO."""
        hello = Hello(role=role, cluster_id=cluster, raft_index=RaftIndex(index))
        client = await FrameClient.connect(*self.frames.address, hello, BufferPool(64 * MIB), credentials=credentials)
        try:
            yield client
        finally:
            client.abort()
            await gone(client)


@contextlib.asynccontextmanager
async def data_world(
    root: Path, security: ServerSecurity | None = None, env: Env | None = None
) -> AsyncIterator[DataWorld]:
    """A worker that serves until the end of the block; `disk` is its door to the disk."""
    world = DataWorld(root, security, env)
    world.store.run_on(asyncio.get_running_loop().call_soon_threadsafe)
    world.server.accept(True)
    world.standing.registered = True
    world.server.tick()
    tls = security.listening if security is not None else None
    world.frames = await serve("127.0.0.1", 0, world.server, world.pool, tls)
    world.standing.addresses = WorkerAddresses(data_address=world.address)
    try:
        yield world
    finally:
        world.server.pushes.forwarder.close()
        await world.frames.close()
        world.store.close()


def secured(directory: Path, name: str = "w1") -> ServerSecurity:
    """What a server of a secured cluster has; those of one directory are of one cluster."""
    secret = directory / "secret"
    if not secret.exists():
        make_ca(directory)
        secret.write_bytes(b"a secret of the cluster")
        secret.chmod(0o600)
    certificate, key = issue(directory, name, ("127.0.0.1",))
    text = (
        f'[cluster]\nid = "{CLUSTER}"\nsecret_file = "{secret}"\n'
        f'[security]\nenabled = true\nca = "{directory / "ca.pem"}"\n'
        f'certificate = "{certificate}"\nkey_file = "{key}"\n'
    )
    return ServerSecurity(parse(text), name)
