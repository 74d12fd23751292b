"""How long a commit of REDUCE partitions waits for a worker that is away, full or unable, and what it says then; and
what is sealed before it.

Three masters as real processes; the workers are socket peers that answer seals as a test wants them to, and real ones
in the last test.
"""

import asyncio

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import HoldfastError, NoRoomError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import CALM, HASTY, agree, heartbeat, leader_of, run
from tests.cluster.reduce_peers import Peer, ReduceDriver, metric, push_one_each, world
from tests.support.waiting import wait_until_async


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_worker_that_stays_away_is_recorded_as_lost(own: LocalCluster):
    """After the grace the commit goes on without it: its epochs without another copy are LOST, by name."""

    async def story():
        async with world(own, 2) as (driver, peers):
            placed, _ = await driver.open(partitions=6)
            await peers[0].stop()
            await driver.end(partitions=6)
            lost = {each.partition for each in await driver.reported() if each.lost}
            assert lost == {p for p, each in enumerate(placed.partitions) if each.primary == peers[0].number}
            info = await driver.info()
            assert (info.state, info.lost) == ("committed", 3)
            await peers[0].start(driver.client)

    run(story())


def test_second_copy_is_not_waited_for(own: LocalCluster):
    """With the other copy sealed a worker that is away costs `copy_grace` (5 s) and not the grace of an only copy (30 s
    here); one that failed costs nothing."""

    async def story():
        async with world(own, 3) as (driver, peers):
            placed, _ = await driver.open(copies=2)
            gone, failed, good = (peer.number for peer in peers)
            pairs = [set(each.workers) for each in placed.partitions]
            peers[1].statuses = {(p, 0): Status.FAILED_COPY for p, pair in enumerate(pairs) if pair == {failed, good}}
            await peers[0].stop()
            loop = asyncio.get_running_loop()
            begin = loop.time()
            await driver.end()
            assert loop.time() - begin < 15, "the grace was waited for"
            results = await driver.reported()
            assert not any(each.lost for each in results)
            statuses = {copy.status for each in results for copy in each.copies if copy.worker == gone}
            assert statuses == {Status.UNAVAILABLE}
            await peers[0].start(driver.client)

    run(story())


def test_copy_that_was_never_written_to_is_not_waited_for(own: LocalCluster):
    """A worker died before anything was pushed to it: its replica never had a batch, so nothing can be lost, and the
    commit neither waits the grace (30 s here) nor calls anything lost."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open(copies=2)
            peers[1].statuses = {(p, 0): Status.UNKNOWN_FILE for p in range(8)}
            await peers[0].stop()
            begin = asyncio.get_running_loop().time()
            await driver.end()
            assert asyncio.get_running_loop().time() - begin < 15, "the grace was waited for"
            results = await driver.reported()
            assert [(each.readable, each.lost) for each in results] == [((), False)] * 8
            assert (await driver.info()).lost == 0
            await peers[0].start(driver.client)

    run(story())


def test_worker_that_lives_and_never_answers_is_left_where_there_is_another_copy(own: LocalCluster):
    """A disk may hang without an error: the worker goes on with its heartbeats, and its seal never ends."""

    async def story():
        async with world(own, 2, beat_s=1.0) as (driver, peers):
            await driver.open(copies=2)
            peers[0].hold = True
            await driver.end()
            assert peers[0].seals, "it was asked"
            results = await driver.reported()
            assert not any(each.lost for each in results)
            statuses = {copy.status for each in results for copy in each.copies}
            assert statuses == {Status.OK, Status.UNAVAILABLE}

    run(story())


def test_worker_that_comes_back_is_waited_for(own: LocalCluster):
    """A commit waits for a worker that is restarting and records what it recovered."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open()
            await peers[0].stop()
            commit = asyncio.create_task(driver.end())
            await wait_until_async(lambda: peers[1].seals, "the other worker's seal")
            assert not commit.done()
            await peers[0].start(driver.client)
            await commit
            assert not any(each.lost for each in await driver.reported())

    run(story())


#: So long a commit waits for a worker that gives no sign of life.
GRACE_SECONDS = 1


@pytest.mark.parametrize("own", [{**CALM, "worker": {"return_grace": f"{GRACE_SECONDS}s"}}], indirect=True)
def test_a06_worker_that_is_back_and_not_registered_yet_is_waited_for(own: LocalCluster):
    """A worker was away for longer than the grace, and its next start answers at its address before it has registered:
    that is a sign of life. The commit waits for it, where it called every epoch LOST that the worker was about to
    seal."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open()
            await peers[0].stop()
            hellos = peers[0].hellos
            await peers[0].listen(peers[0].port)
            loop = asyncio.get_running_loop()
            commit, begun = asyncio.create_task(driver.end()), loop.time()

            def asked_past_the_grace() -> bool:
                return peers[0].hellos >= hellos + 3 and loop.time() - begun > 2 * GRACE_SECONDS

            await wait_until_async(lambda: commit.done() or asked_past_the_grace(), "the leader to ask")
            assert not commit.done()
            await peers[0].register(driver.client)
            await commit
            assert not any(each.lost for each in await driver.reported())

    run(story())


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_worker_with_a_full_disk_is_waited_for(own: LocalCluster):
    """A worker that refuses a seal because its disk is full, or is busy, has the data: no grace ends the commit."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open()
            full = HoldfastError("the disk is full", status=Status.DISK_FULL)
            peer.refusals = [full, HoldfastError("not now", status=Status.BUSY), *[full] * 4]
            await driver.end()
            assert len(peer.seals) == 7
            assert not any(each.lost for each in await driver.reported())

    run(story())


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_worker_that_never_has_room_fails_the_commit(own: LocalCluster):
    """A worker that has the only copy and refuses every seal: the commit ends with NO_ROOM and names it, nothing is
    recorded, and once there is room the same commit goes through."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open()
            refusals = [HoldfastError("no room here", status=status) for status in (Status.DISK_FULL, Status.BUSY)]
            peer.refusals = refusals * 1000
            with pytest.raises(NoRoomError, match=f'"{peer.name}".*no room here') as full:
                await driver.end()
            assert full.value.status is Status.NO_ROOM
            assert (await driver.info()).state == "open"
            peer.refusals = []
            await driver.end()
            assert not any(each.lost for each in await driver.reported())

    run(story())


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_worker_that_never_has_room_is_not_needed_with_another_copy(own: LocalCluster):
    """While a commit waits for another worker, one that refuses every seal ends nothing: its epochs have a copy."""

    async def story():
        async with world(own, 3) as (driver, peers):
            placed, _ = await driver.open(partitions=2, copies=2)
            first, second = (set(each.workers) for each in placed.partitions)
            full, slow = (next(p for p in peers if {p.number} == only) for only in (first - second, second - first))
            full.refusals = [HoldfastError("no room here", status=Status.DISK_FULL)] * 1000
            slow.hold = True
            commit = asyncio.create_task(driver.end(partitions=2))
            given_up = "holdfast_master_commits_without_worker"
            await wait_until_async(lambda: commit.done() or metric(own, given_up) == 1, "the end of patience")
            slow.release()
            await commit
            assert [len(each.readable) for each in await driver.reported()] == [1, 2]

    run(story())


@pytest.mark.parametrize("own", [HASTY], indirect=True)
def test_worker_that_cannot_seal_is_given_up(own: LocalCluster):
    """One that answers a seal with an error that is no reason to wait is given up after the grace, by name."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open()
            peer.refusals = [HoldfastError("broken", status=Status.INTERNAL)] * 1000
            await driver.end()
            assert all(each.lost for each in await driver.reported())

    run(story())


def test_what_a_start_finds_is_sealed_before_the_commit(own: LocalCluster):
    """A worker that comes back is asked to seal what its earlier start had open, and nothing else, before any commit,
    and asked again where it would not; no command is needed for it beyond the worker's registration and the move, and
    the commit asks for everything."""

    async def story():
        async with world(own, 2) as (driver, peers):
            placed, _ = await driver.open(partitions=6)
            mine = [(p, 0) for p, each in enumerate(placed.partitions) if each.primary == peers[0].number]
            commands = metric(own, "holdfast_master_commands_proposed")
            await peers[0].stop()
            peers[0].refusals = [HoldfastError("not registered yet", status=Status.BUSY)]
            await peers[0].start(driver.client)
            await wait_until_async(lambda: metric(own, "holdfast_master_early_seals") == len(mine), "the early seal")
            assert [(each.flags & SealFlag.FINAL, each.epochs) for each in peers[0].seals] == [(0, mine)] * 2
            assert not peers[1].seals
            assert metric(own, "holdfast_master_commands_proposed") == commands + 2
            assert (await driver.info()).state == "open"
            await driver.end(partitions=6)
            final = {epoch for each in peers[0].seals if each.flags & SealFlag.FINAL for epoch in each.epochs}
            assert final >= set(mine)
            assert not any(each.lost for each in await driver.reported())

    run(story())


def test_next_leader_seals_what_starts_have_left(own: LocalCluster):
    """What is to be sealed early is read from the state: the leader dies while the worker refuses, the next one asks
    again for the same, and for a worker that was never started again it asks nothing."""

    async def story():
        async with world(own, 2) as (driver, peers):
            placed, _ = await driver.open(partitions=6)
            mine = [(p, 0) for p, each in enumerate(placed.partitions) if each.primary == peers[0].number]
            await peers[0].stop()
            peers[0].refusals = [HoldfastError("not now", status=Status.BUSY)] * 1000
            await peers[0].start(driver.client)
            await wait_until_async(lambda: peers[0].seals, "the early seal")
            old = leader_of(own)
            old.kill()
            asked = len(peers[0].seals)
            await wait_until_async(lambda: len(peers[0].seals) > asked, "the next leader's")
            assert {(each.flags & SealFlag.FINAL, tuple(each.epochs)) for each in peers[0].seals} == {(0, tuple(mine))}
            assert not peers[1].seals
            old.start()
            await agree(driver.client)

    run(story())


def test_without_room_nothing_is_made_and_full_epochs_are_sealed_once(own: LocalCluster):
    """While all workers say that they are full a revive makes nothing, costs no command and tells the limits, and so
    does registering; the full epoch is sealed early, once, however often clients ask; room at one of them is used."""

    async def story():
        async with world(own, 2) as (driver, peers):
            placed, _ = await driver.open()

            async def beat(peer: Peer, full: str) -> None:
                directory = pb.Directory(path="/d", tier="SSD", free_bytes=1, healthy=True, full=full)
                beat = heartbeat(peer.name, peer.registered, directories=[directory])
                await driver.client.call("Registry/Heartbeat", beat)

            for peer in peers:
                await beat(peer, "9 MiB used of 9 MiB")
            commands = metric(own, "holdfast_master_commands_proposed")
            failed = [pb.FailedEpoch(partition=2, epoch=0, status=Status.HARD_SPLIT)]
            request = pb.ReviveRequest(key=driver.key(1), failed=failed, holder=driver.holder)
            for _ in range(3):
                reply = await driver.client.call("Shuffles/Revive", request)
                assert not reply.locations
                assert f"worker {peers[1].name}: /d (SSD) 9 MiB used of 9 MiB" in reply.room
            holder = next(peer for peer in peers if peer.number == placed.partitions[2].primary)
            await wait_until_async(lambda: metric(own, "holdfast_master_early_seals") == 1, "the early seal")
            assert [(each.flags & SealFlag.FINAL, each.epochs) for each in holder.seals] == [(0, [(2, 0)])]
            with pytest.raises(NoRoomError, match="9 MiB used of 9 MiB"):
                await driver.open(shuffle=2)
            assert metric(own, "holdfast_master_commands_proposed") == commands
            await beat(holder, "")
            reply = await driver.client.call("Shuffles/Revive", request)
            assert [(each.epoch, list(each.workers)) for each in reply.locations] == [(1, [holder.number])]
            assert not reply.room

    run(story())


def test_real_worker_has_sealed_what_it_found_before_the_commit(cluster: LocalCluster):
    """Kill -9 of a worker with acknowledged batches: its next start seals them while the shuffle is open, and the
    commit repeats those answers: everything is there with its size."""

    async def story():
        async with ControlClient(cluster.endpoints) as client:
            driver = ReduceDriver(client)
            await driver.register()
            placed, reply = await driver.open(partitions=6)
            await push_one_each(driver, placed, reply, Ack.WRITTEN)
            cluster.workers[0].kill()
            await asyncio.to_thread(cluster.workers[0].start)
            await wait_until_async(lambda: metric(cluster, "holdfast_master_early_seals") == 3, "the early seal")
            assert (await driver.info()).state == "open"
            await driver.end(partitions=6)
            results = [each for each in await driver.reported() if each.epoch == 0]
            assert [(each.copies[0].size_bytes, each.lost) for each in results] == [(1028, False)] * 6

    run(story())
