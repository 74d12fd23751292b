"""Draining as the masters see it: three masters as real processes, workers as socket peers (reduce_peers.py)."""

import asyncio
from typing import Any

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.cluster.masters import agree, heartbeat, run
from tests.cluster.reduce_peers import Peer, metric, world
from tests.support.waiting import wait_until_async


async def drain(client: ControlClient, *names: str, cancel: bool = False) -> list[pb.WorkerInfo]:
    """Begin or cancel."""
    request = pb.DrainWorkersRequest(workers=names, cancel=cancel)
    return list((await client.call("Admin/DrainWorkers", request)).workers)


async def reported(client: ControlClient, peer: Peer) -> pb.WorkerInfo:
    """What the leader tells of a worker."""
    listed = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
    return next(each for each in listed.workers if each.worker == peer.number)


async def beat(client: ControlClient, peer: Peer, **changed: Any) -> tuple[bool, bool]:
    """One heartbeat; whether the worker is to take nothing new, and whether nothing open is placed there."""
    directory = pb.Directory(id=peer.name.encode().ljust(16, b"d"), path="/d", tier="SSD", free_bytes=1, healthy=True)
    request = heartbeat(peer.name, peer.registered, directories=[directory], **changed)
    reply = await client.call("Registry/Heartbeat", request)
    return reply.draining, reply.clear


async def until_clear(client: ControlClient, peer: Peer, **changed: Any) -> None:
    """Beat until the leader says that nothing open is placed there; the story's time limit is the deadline."""
    while await beat(client, peer, **changed) != (True, True):
        await wait_until_async(lambda: True, "the next heartbeat")


async def reached_removal(client: ControlClient, peer: Peer) -> None:
    """Wait until it may be removed; the story's time limit is the deadline."""
    while not (await reported(client, peer)).drain.removal:
        await beat(client, peer, emptying=pb.Emptying())


def test_a_draining_worker_is_moved_in_one_command_and_given_nothing(own: LocalCluster):
    """All open epochs with a copy on it move by one command, in all shuffles; it is no place for new partitions,
    revives and maps; when its heartbeats say that nothing is written there it may be restarted, when it keeps nothing
    and no map may come any more, removed."""

    async def story():
        async with world(own, 3) as (driver, peers):
            client, leaver = driver.client, peers[0]
            placed, _ = await driver.open(partitions=30, copies=2)
            await driver.open(shuffle=2, partitions=6)
            hit = [p for p, each in enumerate(placed.partitions) if leaver.number in each.workers]
            assert leaver.number in MapAssignment.decode((await driver.shuffle(5)).assignment_array).workers
            assert [(each.name, each.state) for each in await drain(client, leaver.name)] == [(leaver.name, "draining")]
            await until_clear(client, leaver)
            assert metric(own, "holdfast_master_move_commands") == 1
            assert metric(own, "holdfast_master_moves") == len(hit) + 2
            assert metric(own, "holdfast_master_workers_draining") == 1
            now, _ = await driver.open(partitions=30, copies=2)
            assert all(leaver.number not in each.workers for each in now.partitions)
            revived = await driver.revive([(p, each.epoch) for p, each in enumerate(now.partitions)])
            assert all(leaver.number not in each.workers for each in revived)
            fresh, _ = await driver.open(shuffle=3, partitions=30, copies=2)
            assert all(leaver.number not in each.workers for each in fresh.partitions)
            ring = MapAssignment.decode((await driver.shuffle(4)).assignment_array)
            assert sorted(ring.workers) == sorted(peer.number for peer in peers[1:])
            assert "has not received the drain yet" in (await reported(client, leaver)).drain.waits
            for writing, shuffles, may in ((2, 2, (False, False)), (0, 2, (True, False)), (0, 0, (True, False))):
                await beat(client, leaver, emptying=pb.Emptying(writing=writing, shuffles=shuffles))
                drained = (await reported(client, leaver)).drain
                assert (drained.restart, drained.removal) == may, (writing, shuffles)
            waits = (await reported(client, leaver)).drain.waits
            assert waits == "maps of 1 open shuffle may still come there"
            await client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(5)))
            await reached_removal(client, leaver)
            assert [each.state for each in await drain(client, leaver.name, cancel=True)] == ["alive"]
            assert await beat(client, leaver) == (False, False)
            await agree(client)

    run(story())


def test_a_worker_that_leaves_drains_unless_it_is_alone(own: LocalCluster):
    """A heartbeat that says so makes it drain; the last one that takes data is told that it need not."""

    async def story():
        async with world(own, 2) as (driver, [first, second]):
            placed, _ = await driver.open(partitions=8)
            await until_clear(driver.client, first, leaving=True)
            assert (await reported(driver.client, first)).state == "draining"
            now, _ = await driver.open(partitions=8)
            assert {each.primary for each in now.partitions} == {second.number}
            assert {each.primary for each in placed.partitions} == {first.number, second.number}
            assert await beat(driver.client, second, leaving=True) == (False, False)
            assert (await reported(driver.client, second)).state == "alive"

    run(story())


def test_what_is_being_committed_stays_and_is_waited_for(own: LocalCluster):
    """Open partitions of a generation that is being committed are not moved; the worker is not clear before its end."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open(partitions=8)
            for peer in peers:
                peer.hold = True
            commit = asyncio.create_task(driver.end())
            await wait_until_async(lambda: all(peer.seals for peer in peers), "the seals")
            await drain(driver.client, peers[0].name)

            async def placed() -> int:
                return int((await reported(driver.client, peers[0])).drain.epochs)

            while await placed() != 4:  # the story's time limit is the deadline
                await wait_until_async(lambda: True, "the next look")
            assert await beat(driver.client, peers[0]) == (True, False)
            for peer in peers:
                peer.release()
            await commit
            await until_clear(driver.client, peers[0])
            assert metric(own, "holdfast_master_moves") == 0
            assert not any(each.epoch for each in await driver.reported())

    run(story())
