"""A worker that answers no seal, and what the masters go on doing meanwhile: real processes, the worker stopped."""

import asyncio
import signal
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.reduce_layouts import ReduceWinners
from holdfast.common.ids import AttemptId
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import HASTY, leader_of, run
from tests.cluster.reduce_peers import ReduceDriver, metric, world
from tests.support.waiting import wait_until, wait_until_async

#: Nobody is called lost in these tests: the worker that hangs goes on being waited for.
NOBODY_LOST = {"lease": {"worker": "10m"}}
APPLICATIONS, SHUFFLES = 5, 205


async def registered(client: ControlClient) -> ReduceDriver:
    driver = ReduceDriver(client)
    await driver.register()
    return driver


async def commit(driver: ReduceDriver, master: str, shuffle: int, partitions: int) -> int:
    """Commit once, without trying again; return the status of the answer."""
    array = ReduceWinners(partitions, (AttemptId(5),)).encode()
    request = pb.CommitRequest(key=driver.key(shuffle), winners_array=array, holder=driver.holder)
    try:
        await driver.client.ask(master, "Shuffles/Commit", request, 100)
    except HoldfastError as error:
        return error.status
    return Status.OK


async def only_on(driver: ReduceDriver, worker: int) -> int:
    """Open shuffles of one partition until one stands on this worker; return its number."""
    for shuffle in range(10_000, 10_100):
        placed, _ = await driver.open(shuffle=shuffle, partitions=1)
        if placed.partitions[0].primary == worker:
            return shuffle
    raise AssertionError("no partition is placed there")


def test_a30_a_worker_that_answers_nothing_stops_no_other_tenant(tmp_path: Path):
    """More than 1,024 commits of five applications wait for a worker that is stopped. Whoever needs other workers
    commits at once; when the applications leave, every one of their commits ends, though the worker stays as it is."""

    async def story(cluster: LocalCluster) -> None:
        async with ControlClient(cluster.endpoints) as client:
            other = await registered(client)
            workers = (await client.call("Admin/ListWorkers", pb.ListWorkersRequest())).workers
            healthy = next(each.worker for each in workers if each.name == cluster.workers[1].name)
            tenant = await only_on(other, healthy)
            drivers = [await registered(client) for _ in range(APPLICATIONS)]
            for driver in drivers:
                for at in range(0, SHUFFLES, 16):
                    batch = range(at, min(at + 16, SHUFFLES))
                    await asyncio.gather(*(driver.open(shuffle=each, partitions=2) for each in batch))
            cluster.workers[0].kill(signal.SIGSTOP)
            try:
                master = leader_of(cluster).address
                tasks = [
                    asyncio.create_task(commit(driver, master, shuffle, 2))
                    for driver in drivers
                    for shuffle in range(SHUFFLES)
                ]

                def all_there() -> bool:
                    waiting = metric(cluster, "holdfast_master_calls_under_way")
                    return waiting + sum(task.done() for task in tasks) >= len(tasks)

                await wait_until_async(all_there, "every commit to wait or to be refused", 60)
                assert await commit(other, master, tenant, 1) == Status.OK
                for driver in drivers:
                    await client.call(
                        "Shuffles/Detach", pb.DetachRequest(instance=driver.instance, holder=driver.holder)
                    )
                ended = set(await asyncio.wait_for(asyncio.gather(*tasks), 60))
                assert ended == {Status.BUSY, Status.UNKNOWN_GENERATION}
            finally:
                cluster.workers[0].kill(signal.SIGCONT)

    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=NOBODY_LOST) as cluster:
        run(story(cluster))


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_a36_busy_and_failure_by_turns_end_a_commit(own: LocalCluster):
    """A worker with the only copy that is busy and fails by turns is asked for five graces, and then the commit fails
    by name: neither answer makes the count of the other begin anew."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open()
            turns = [
                HoldfastError(text, status=status)
                for text, status in (("full", Status.DISK_FULL), ("broken", Status.INTERNAL))
            ]
            peer.refusals = turns * 1000
            with pytest.raises(HoldfastError, match=f'"{peer.name}"') as ended:
                await driver.end()
            assert ended.value.status is Status.NO_ROOM

    run(story())


def test_a36_a_worker_that_answers_no_early_seal_delays_no_other(own: LocalCluster):
    """Two workers start again with open epochs. One of them takes the seal of what it found and never answers: the
    other one is asked all the same."""

    async def story():
        async with world(own, 2) as (driver, peers):
            placed, _ = await driver.open(partitions=6)
            first, second = sorted(peers, key=lambda peer: peer.number)
            await first.stop()
            await second.stop()
            first.hold = True
            await first.start(driver.client)
            await wait_until_async(lambda: first.seals, "the seal that is not answered")
            await second.start(driver.client)
            await wait_until_async(lambda: second.seals, "the other worker's")
            mine = {(p, 0) for p, each in enumerate(placed.partitions) if each.primary == second.number}
            assert second.sealed >= mine

    run(story())


def test_a_master_ends_though_its_resolver_hangs(tmp_path: Path):
    """A script that says where hosts are hangs for a worker's host: the worker registers all the same, and a master
    that is asked to end does so, with 0."""
    script, asked = tmp_path / "places", tmp_path / "asked"
    script.write_text(f"#!/bin/sh\n[ $# -eq 0 ] && exit 0\ntouch {asked}\nexec sleep 600\n")
    script.chmod(0o755)
    placement = {"resolver": "script", "resolver_path": str(script), "script_timeout": "10m"}
    settings = {"placement": placement}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster:
        wait_until(asked.exists, "the script to be asked")
        assert cluster.masters[0].stop() == 0
