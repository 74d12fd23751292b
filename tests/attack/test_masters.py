"""What masters keep of applications and shuffles that have gone: real masters, as users start them."""

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.client import LocalCluster, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.common.formats.layouts import MapWinner, MapWinners
from holdfast.common.ids import AttemptId, Epoch, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.attack.run import BACK_SECONDS, BACK_SHARE
from tests.attack.target import used
from tests.cluster.masters import CALM, Driver, run, worker

#: What is measured here is the memory of servers as users start them.
pytestmark = pytest.mark.real_starts
#: A shuffle of each kind: what a master works on is large, and so is what its log has of it.
PARTITIONS, MAPS = 100_000, 4_000
WINNERS_BYTES = 1 * MIB


def winners(worker: int) -> bytes:
    """An array of about WINNERS_BYTES."""
    each = [
        MapWinner(
            attempt=AttemptId(number),
            epoch=Epoch(0),
            workers=(WorkerId(worker),),
            batches=1,
            size_bytes=1,
            partitions=os.urandom(WINNERS_BYTES // MAPS),
        )
        for number in range(MAPS)
    ]
    return MapWinners(WINNERS_BYTES // MAPS * 8, tuple(each)).encode()


async def come_and_go(endpoints: list[str], applications: int, shuffles: int) -> None:
    """Applications, each of a client of its own, with a shuffle; some with large shuffles of both kinds."""

    async def small() -> None:
        async with ControlClient(endpoints) as client:
            driver = Driver(client)
            await driver.register()
            await driver.shuffle(0)
            await client.call("Admin/Forget", pb.ForgetRequest(instance=driver.instance))

    async with ControlClient(endpoints) as client:
        number = (await client.call("Registry/RegisterWorker", worker("w"))).worker
        for _ in range(shuffles):
            driver, array = Driver(client), winners(number)
            await driver.register()
            reduces = pb.RegisterShuffleRequest(
                key=driver.key(1), kind=pb.PARTITION_KIND_REDUCE, partitions=PARTITIONS, maps=1, ack=1
            )
            maps = pb.RegisterShuffleRequest(
                key=driver.key(0), kind=pb.PARTITION_KIND_MAP, partitions=WINNERS_BYTES // MAPS * 8, maps=MAPS
            )
            for request in (reduces, maps):
                request.holder = driver.holder
                await client.call("Shuffles/RegisterShuffle", request)
            await driver.commit(0, array)
            await client.call("Admin/Forget", pb.ForgetRequest(instance=driver.instance))
    for _ in range(applications // 10):
        await asyncio.gather(*(small() for _ in range(10)))


def memory(cluster: LocalCluster) -> dict[str, int]:
    """Bytes of each master."""
    return {master.name: used(master)[0] for master in cluster.masters}


def test_24_masters_keep_little_of_applications_and_shuffles_that_are_gone(tmp_path: Path) -> None:
    """After a load of them each master has at most a fifth more memory than before it: of the log it keeps about as
    much as of the state, and of what it worked out for shuffles that are gone nothing. "Before" is after a first
    little of everything, which fills what is filled once."""
    with local_cluster(3, 0, dir=tmp_path / "cluster", settings=CALM) as cluster:
        endpoints = [master.address for master in cluster.masters]
        run(come_and_go(endpoints, 50, 2))
        before = memory(cluster)
        run(come_and_go(endpoints, 100, 14))

        def too_much() -> dict[str, str]:
            now = memory(cluster)
            return {
                name: f"{size / MIB:.1f} MiB, {before[name] / MIB:.1f} before"
                for name, size in now.items()
                if size > BACK_SHARE * before[name]
            }

        wait_until(lambda: not too_much(), BACK_SECONDS)
        assert too_much() == {}
