"""Real masters clean each kind of store, through the death of their leader; two clusters in one store."""

import urllib.request

import pytest

from holdfast.client.cluster.local import Server, local_cluster
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import HoldfastError
from holdfast.common.ids import NO_STATE, Generation, Instance, ShuffleId, ShuffleKey, StateId
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.cluster.masters import CALM, Driver, drawn, run, worker
from tests.support.waiting import wait_until_async

CLUSTER, NEIGHBOUR = "c1", "c2"


def metric(master: Server, name: str) -> float:
    """A number of a master's metrics."""
    with urllib.request.urlopen(f"http://{master.address}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_masters_clean_the_store(world, tmp_path):
    """Files of a forgotten application and of a dropped shuffle go though no worker lives and the leader is killed."""
    cleaning = {**world.table(), "clean_every": "200ms", "clean_grace": "500ms"}
    settings = {**CALM, "cluster": {"id": CLUSTER}, "dfs": cleaning}
    path = tmp_path / "file"
    path.write_bytes(b"sealed" * 1000)
    store, neighbour = DfsStore(world.section(), CLUSTER), DfsStore(world.section(), NEIGHBOUR)
    store.claim()
    neighbour.claim()
    state = NO_STATE

    def put(instance: bytes, shuffle: int, into: DfsStore = store, cluster: str = CLUSTER) -> str:
        key = ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(0), state)
        return into.put(names.file_name(cluster, key, b"w" * 16, "p-1-0.part"), path).name

    def files(of: DfsStore, cluster: str) -> set[str]:
        return {name for name, _ in of.list(cluster) if not name.startswith(names.marker(cluster))}

    with local_cluster(masters=3, workers=0, dir=tmp_path / "c", settings=settings) as cluster:

        async def story():
            async with ControlClient(cluster.endpoints) as client:
                nonlocal state
                state = StateId((await client.call("Registry/RegisterWorker", worker("w1"))).state)
                ends, lives = Driver(client), Driver(client)
                for driver in (ends, lives):
                    await driver.register()
                    for number in (1, 2):
                        await driver.shuffle(number)
                stranger = drawn()
                goes = {put(ends.instance, 1), put(ends.instance, 2), put(lives.instance, 1)}
                stays = {put(lives.instance, 2), put(stranger, 1)}
                theirs = {put(ends.instance, 1, neighbour, NEIGHBOUR)}
                await client.call("Admin/Forget", pb.ForgetRequest(instance=ends.instance))
                dropped = pb.UnregisterShuffleRequest(key=lives.key(1, state=state))
                await client.call("Shuffles/UnregisterShuffle", dropped)
                killed = cluster.leader()
                killed.kill()
                await wait_until_async(lambda: not files(store, CLUSTER) & goes, "the dropped files to go")
                killed.start()
                assert files(store, CLUSTER) == stays
                await wait_until_async(
                    lambda: metric(cluster.leader(), "holdfast_master_dfs_unheard") == 1, "the stranger to be counted"
                )
                await client.call("Admin/Forget", pb.ForgetRequest(instance=stranger))
                await wait_until_async(lambda: len(files(store, CLUSTER)) == 1, "the stranger's file to go")
                assert files(neighbour, NEIGHBOUR) == theirs

        run(story())
    store.close()
    neighbour.close()


def test_masters_live_without_the_store(world, tmp_path):
    """Masters start and serve while their store is gone, end in time, and count that they cannot clean it."""
    DfsStore(world.section(), CLUSTER).claim()
    world.stop()
    cleaning = {**world.table(), "clean_every": "100ms", "call_timeout": "60s", "retry_window": "60s"}
    settings = {**CALM, "cluster": {"id": CLUSTER}, "dfs": cleaning}
    with local_cluster(masters=1, workers=0, dir=tmp_path / "c", settings=settings) as cluster:

        async def story():
            async with ControlClient(cluster.endpoints) as client:
                await Driver(client).register()
                await wait_until_async(
                    lambda: metric(cluster.leader(), "holdfast_master_dfs_failures") >= 1, "a failure to be counted"
                )

        run(story())


def test_a_master_refuses_what_cannot_be_a_store(tmp_path):
    """A wrong [dfs] is told before the master starts, with what to do."""
    settings = {"cluster": {"id": "c/1"}, "dfs": {"url": str(tmp_path)}}
    with (
        pytest.raises(HoldfastError, match="cannot name a folder in the DFS store"),
        local_cluster(masters=1, workers=0, dir=tmp_path / "c", settings=settings),
    ):
        pass
