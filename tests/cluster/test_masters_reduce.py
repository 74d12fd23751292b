"""REDUCE partitions on three masters as real processes: placing, reviving, moving, sealing, committing.

The workers are socket peers that answer seals as a test wants them to (reduce_peers.py); the tests at the end have real
workers.
"""

import asyncio
import secrets

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import ConflictError, GiveUpError, HoldfastError, ProtocolError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import ReduceLocations, ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.ids import (
    AttemptId,
)
from holdfast.common.limits import COMMAND_PART_BYTES
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import LONGER, SHORT, agree, leader_of, run, waiting
from tests.cluster.reduce_peers import ReduceDriver, metric, push_one_each, world
from tests.support.waiting import wait_until_async


def test_partitions_are_spread_and_revived_once(own: LocalCluster):
    """Primaries are spread evenly and replicas on other hosts; a revive makes the next epoch elsewhere, asked again or
    by another client it only tells it, and so does registering again."""

    async def story():
        async with world(own, 3) as (driver, peers):
            placed, reply = await driver.open(partitions=12, copies=2)
            numbers = sorted(peer.number for peer in peers)
            assert sorted(each.primary for each in placed.partitions) == sorted(numbers * 4)
            assert sorted(each.workers[1] for each in placed.partitions) == sorted(numbers * 4)
            assert all(len(set(each.workers)) == 2 for each in placed.partitions)
            assert (reply.copies, sorted(each.worker for each in reply.workers)) == (2, numbers)

            first = await driver.revive([(3, 0), (7, 0)], Status.SOFT_SPLIT)
            assert [(each.partition, each.epoch) for each in first] == [(3, 1), (7, 1)]
            assert all(each.workers[0] != placed.partitions[each.partition].primary for each in first)
            commands = metric(own, "holdfast_master_commands_proposed")
            assert await driver.revive([(3, 0), (7, 0)], Status.UNAVAILABLE) == first
            now, _ = await driver.open(partitions=12, copies=2)
            assert metric(own, "holdfast_master_commands_proposed") == commands, "what is known is only read"
            assert [each.epoch for each in now.partitions] == [1 if p in (3, 7) else 0 for p in range(12)]
            second = await driver.revive([(3, 0), (3, 1)], Status.UNAVAILABLE, unusable=[first[0].workers[0]])
            assert [each.epoch for each in second] == [2, 2]
            assert second[0].workers[0] != first[0].workers[0]
            with pytest.raises(ProtocolError, match="never made"):
                await driver.revive([(3, 9)])
            info = await driver.info()
            assert (info.kind, info.epochs, info.moves) == (pb.PARTITION_KIND_REDUCE, 15, 3)
            await agree(driver.client)

    run(story())


def test_a09_a_generation_avoids_a_worker_that_readers_cannot_use_for_as_long_as_it_lives(own: LocalCluster):
    """A generation that was registered without one worker stays away from it: when writers ask for new places, when a
    worker drains, and when another master leads. Where nobody else takes data it is used, and nothing fails."""

    async def story():
        async with world(own, 4) as (driver, peers):
            *others, blamed = (peer.number for peer in peers)
            await driver.open(partitions=24)
            await driver.end(24)
            placed, _ = await driver.open(partitions=24, generation=1, unusable=[blamed])
            assert {each.primary for each in placed.partitions} == set(others)

            async def revived(epoch: int) -> set[int]:
                failed = [(partition, epoch) for partition in range(24)]
                return {each.workers[0] for each in await driver.revive(failed, Status.HARD_SPLIT, generation=1)}

            assert blamed not in await revived(0)
            over = await driver.client.call("Admin/HandOver", pb.HandOverRequest())
            assert over.leader != over.before
            assert blamed not in await revived(1)

            await driver.open(partitions=24, generation=1, unusable=[others[0]])
            assert await revived(2) == set(others[1:]), "what other readers blame later counts, too"

            left = {peer.number for peer in peers}
            for peer in peers[:-1]:
                await driver.client.call("Admin/DrainWorkers", pb.DrainWorkersRequest(workers=[peer.name]))
                left.remove(peer.number)
                while peer.number in (
                    now := {each.primary for each in (await driver.open(partitions=24, generation=1))[0].partitions}
                ):
                    await wait_until_async(lambda: True, "the next look")
                assert now <= (left - {blamed} or left)

    run(story())


def test_commit_seals_every_epoch_and_is_final(own: LocalCluster):
    """The commit names every epoch, wakes readers, is OK again with the same winners and CONFLICT with others; a revive
    afterwards is COMMITTED."""

    async def story():
        async with world(own, 3) as (driver, peers):
            with pytest.raises(GiveUpError):
                await driver.end()
            placed, _ = await driver.open(copies=2)
            moved = await driver.revive([(5, 0)], Status.SOFT_SPLIT)
            with pytest.raises(GiveUpError) as needs:
                await driver.reported(offers=True, wait_ms=30_000)
            assert needs.value.status is Status.NEED_WINNERS
            with pytest.raises(ConflictError):
                await driver.end(partitions=9)
            assert not any(peer.seals for peer in peers), "nothing was sealed for winners that do not fit"
            reader = asyncio.create_task(driver.reported(wait_ms=30_000))
            await wait_until_async(lambda: waiting(own) == 1, "the reader to wait")
            await asyncio.gather(driver.end(), driver.end())
            reported = await reader
            assert [(each.partition, each.epoch) for each in reported] == sorted([*((p, 0) for p in range(8)), (5, 1)])
            for each in reported:
                place = moved[0] if each.epoch else placed.partitions[each.partition]
                assert [copy.worker for copy in each.copies] == list(place.workers)
                assert (each.copies[0].status, each.copies[0].size_bytes, each.lost) == (Status.OK, 100, False)
            assert all(seal.flags & SealFlag.FINAL for peer in peers for seal in peer.seals)
            asked = sum(len(peer.seals) for peer in peers)
            await driver.end()
            assert sum(len(peer.seals) for peer in peers) == asked, "a committed generation is not sealed again"
            with pytest.raises(ConflictError):
                await driver.end(attempt=6)
            with pytest.raises(GiveUpError) as committed:
                await driver.revive([(1, 0)])
            assert committed.value.status is Status.COMMITTED
            info = await driver.info()
            assert (info.state, info.bytes, info.epochs, info.lost) == ("committed", 900, 9, 0)
            assert await driver.reported(offers=True) == reported

    run(story())


def test_revives_wait_while_a_commit_runs(own: LocalCluster):
    """A revive during a commit is answered after it, with COMMITTED; a reader with winners is not asked for them."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open()
            peer.hold = True
            commit = asyncio.create_task(driver.end())
            await wait_until_async(lambda: peer.seals, "the seal")
            revive = asyncio.create_task(driver.revive([(1, 0)]))
            reader = asyncio.create_task(driver.reported(offers=True, wait_ms=30_000))
            await wait_until_async(lambda: waiting(own) == 1, "the reader to wait")
            assert not revive.done()
            peer.release()
            await commit
            with pytest.raises(GiveUpError) as committed:
                await revive
            assert committed.value.status is Status.COMMITTED
            assert len(await reader) == 8

    run(story())


def test_commit_survives_the_leader(own: LocalCluster):
    """Kill -9 of the leader while workers seal: the commit goes on under the next one, which asks again, and all
    masters agree on one manifest."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open(copies=2)
            await driver.revive([(2, 0)], Status.SOFT_SPLIT)
            for peer in peers:
                peer.hold = True
            commit = asyncio.create_task(driver.end())
            await wait_until_async(lambda: all(peer.seals for peer in peers), "both seals")
            old = leader_of(own)
            old.kill()
            await wait_until_async(lambda: all(len(peer.seals) > 1 for peer in peers), "the next leader's seals")
            for peer in peers:
                peer.release()
            await commit
            reported = await driver.reported()
            assert len(reported) == 9
            assert not any(each.lost for each in reported)
            old.start()
            await agree(driver.client)

    run(story())


@pytest.mark.parametrize("own", [LONGER], indirect=True)
def test_lost_worker_is_moved_in_one_command_and_a_storm_reads(own: LocalCluster):
    """All open epochs of a lost worker, as primary or replica and in all shuffles, move by one command; a hundred
    clients that then revive them cost no command."""

    async def story():
        async with world(own, 3, beat_s=0.2) as (driver, peers):
            placed, _ = await driver.open(partitions=30, copies=2)
            await driver.open(shuffle=2, partitions=6)
            gone = peers[0].number
            hit = [p for p, each in enumerate(placed.partitions) if gone in each.workers]
            await peers[0].stop()
            await wait_until_async(lambda: metric(own, "holdfast_master_moves") > 0, "the move")
            assert metric(own, "holdfast_master_move_commands") == 1
            assert metric(own, "holdfast_master_moves") == len(hit) + 2
            before = metric(own, "holdfast_master_commands_proposed")
            answers = await asyncio.gather(*(driver.revive([(p, 0) for p in hit]) for _ in range(100)))
            assert metric(own, "holdfast_master_commands_proposed") == before
            assert all(answer == answers[0] for answer in answers)
            assert all(gone not in each.workers for each in answers[0])
            assert all(len(each.workers) == 2 for each in answers[0]), "two hosts are left"
            await peers[0].start(driver.client)

    run(story())


def test_g11_clients_that_revive_the_same_epochs_at_once_share_them(own: LocalCluster):
    """Clients that find out before the masters do share the command of the first."""

    async def story():
        async with world(own, 3) as (driver, _):
            await driver.open(partitions=20)
            before = metric(own, "holdfast_master_revive_commands")
            asked = [(p, 0) for p in range(20)]
            answers = await asyncio.gather(*(driver.revive(asked) for _ in range(50)))
            assert all([each.epoch for each in answer] == [1] * 20 for answer in answers)
            assert metric(own, "holdfast_master_revive_commands") == before + 1

    run(story())


def test_restarted_worker_gets_new_epochs(own: LocalCluster):
    """A new incarnation never takes batches for an old epoch: all of its open ones move as it registers, even if it is
    the only worker there is."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open(partitions=5)
            await peer.stop()
            await peer.start(driver.client)
            await wait_until_async(lambda: metric(own, "holdfast_master_moves") == 5, "the move")
            now, reply = await driver.open(partitions=5)
            assert {(each.epoch, each.primary) for each in now.partitions} == {(1, peer.number)}
            assert [each.incarnation for each in reply.workers] == [2]
            await driver.end(partitions=5)
            assert peer.sealed == {(p, e) for p in range(5) for e in (0, 1)}

    run(story())


@pytest.mark.parametrize(
    ("ack", "boot_id", "lost"),
    [
        (Ack.MEMORY, "b", False),
        (Ack.MEMORY, "another", True),
        (Ack.WRITTEN, "b", False),
        (Ack.WRITTEN, "another", True),
        (Ack.SYNCED, "another", False),
    ],
    ids=["memory", "memory-rebooted", "written", "written-rebooted", "synced-rebooted"],
)
def test_restarted_worker_that_knows_nothing(own: LocalCluster, ack: Ack, boot_id: str, lost: bool):
    """An epoch that a later start does not know is lost, unless the first batch of it must have left a note."""

    async def story():
        async with world(own, 1) as (driver, [peer]):
            await driver.open(partitions=2, ack=ack)
            await peer.stop()
            await peer.start(driver.client, boot_id=boot_id)
            peer.statuses = dict.fromkeys([(0, 0), (1, 0)], Status.UNKNOWN_FILE)
            await driver.end(partitions=2)
            reported = [each for each in await driver.reported() if each.epoch == 0]
            assert [each.lost for each in reported] == [lost] * 2
            assert {each.copies[0].status for each in reported} == {Status.DATA_LOST if lost else Status.UNKNOWN_FILE}

    run(story())


def test_hard_split_epochs_are_sealed_early(own: LocalCluster):
    """An epoch that was hard-split is sealed before the commit, without FINAL; one that was soft-split is not."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open()
            await driver.revive([(1, 0)], Status.SOFT_SPLIT)
            await driver.revive([(2, 0)], Status.HARD_SPLIT)
            await wait_until_async(lambda: any(peer.seals for peer in peers), "the early seal")
            seals = [seal for peer in peers for seal in peer.seals]
            assert [(seal.flags & SealFlag.FINAL, seal.epochs) for seal in seals] == [(0, [(2, 0)])]

    run(story())


def test_next_generation_opens_when_a_reader_found_data_lost(own: LocalCluster):
    """An open generation is followed by the next one only if a reader said that it failed and it has lost data."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open(ack=Ack.MEMORY)
            with pytest.raises(GiveUpError) as closed:
                await driver.open(ack=Ack.MEMORY, generation=1)
            assert closed.value.status is Status.GENERATION_CLOSED
            with pytest.raises(GiveUpError):
                await driver.open(ack=Ack.MEMORY, generation=1, failed_before=True)
            await peers[0].stop()
            await peers[0].start(driver.client)
            with pytest.raises(GiveUpError):
                await driver.open(ack=Ack.MEMORY, generation=1)
            await driver.open(ack=Ack.MEMORY, generation=1, failed_before=True)
            await driver.open(ack=Ack.MEMORY, generation=1)

    run(story())


def test_generation_to_write_is_the_newest_that_takes_data(own: LocalCluster):
    """Who asks where to write is told the open generation, and the next one where the newest is final or dropped; all
    who ask at once get the same one. Reading what is known costs no command."""

    async def story():
        async with world(own, 2) as (driver, _):

            async def reported(generation: int = 0) -> int:
                placed, reply = await driver.open(generation=generation, to_write=True)
                assert len(placed.partitions) == 8
                return reply.generation

            assert await reported() == 0
            commands = metric(own, "holdfast_master_commands_proposed")
            assert await reported() == 0
            assert metric(own, "holdfast_master_commands_proposed") == commands
            await driver.end()
            assert await asyncio.gather(*(reported() for _ in range(5))) == [1] * 5
            assert await reported(1) == 1
            _, exact = await driver.open()
            assert exact.generation == 0, "who names a generation gets that one"
            dropped = pb.UnregisterShuffleRequest(key=driver.key(1, 1))
            await driver.client.call("Shuffles/UnregisterShuffle", dropped)
            assert await reported() == 2
            with pytest.raises(ConflictError):
                await driver.open(partitions=9, to_write=True)

    run(story())


def test_large_winners_go_in_parts(own: LocalCluster):
    """Winners and manifest above the size of a command arrive whole, as sent."""

    async def story():
        async with world(own, 2) as (driver, _):
            await driver.open(partitions=20_000)
            bitmaps = tuple([secrets.token_bytes(2_500) for _ in range(2_000)])
            winners = ReduceWinners(20_000, tuple(map(AttemptId, range(2_000))), bitmaps).encode()
            assert len(winners) > COMMAND_PART_BYTES
            request = pb.CommitRequest(key=driver.key(1), winners_array=winners, holder=driver.holder)
            await driver.client.call("Shuffles/Commit", request)
            ask = pb.GetManifestRequest(key=driver.key(1))
            reply = await driver.client.call("Shuffles/GetManifest", ask)
            assert reply.winners_array == winners
            assert len(ReduceManifest.decode(reply.manifest_array).epochs) == 20_000

    run(story())


def test_generation_dropped_during_its_commit(own: LocalCluster):
    """A commit of what was unregistered meanwhile ends with UNKNOWN_GENERATION, and leaves nothing under way."""

    async def story():
        async with world(own, 2) as (driver, peers):
            await driver.open()
            await peers[0].stop()
            commit = asyncio.create_task(driver.end())
            await wait_until_async(lambda: peers[1].seals, "the seal")
            await driver.client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(1)))
            with pytest.raises(GiveUpError) as dropped:
                await commit
            assert dropped.value.status is Status.UNKNOWN_GENERATION
            await peers[0].start(driver.client)

    run(story())


def test_every_epoch_that_a_client_heard_of_is_in_the_manifest(own: LocalCluster):
    """However revives and the commit fall together: a location that was given out is sealed and named."""

    async def story():
        async with world(own, 3) as (driver, _):
            await driver.open(partitions=40)

            async def revive(partition: int) -> list[pb.NewLocation]:
                try:
                    return await driver.revive([(partition, 0)], Status.SOFT_SPLIT)
                except GiveUpError as error:
                    if error.status is not Status.COMMITTED:
                        raise
                    return []

            revives = [asyncio.ensure_future(revive(partition)) for partition in range(20)]
            commit = asyncio.ensure_future(driver.end(partitions=40))
            revives += [asyncio.ensure_future(revive(partition)) for partition in range(20, 40)]
            given = {(each.partition, each.epoch) for answer in await asyncio.gather(*revives) for each in answer}
            await commit
            assert given <= {(each.partition, each.epoch) for each in await driver.reported()}

    run(story())


@pytest.mark.parametrize("own", [SHORT], indirect=True)
def test_next_leader_moves_what_the_last_one_did_not(own: LocalCluster):
    """A worker and the leader die together: the next leader finds out by itself, and moves all open epochs once."""

    async def story():
        async with world(own, 2, beat_s=0.2) as (driver, peers):
            placed, _ = await driver.open()
            old = leader_of(own)
            await peers[0].stop()
            old.kill()
            await wait_until_async(lambda: leader_of(own) is not old, "the next leader")
            await wait_until_async(lambda: metric(own, "holdfast_master_moves") > 0, "the move")
            now, _ = await driver.open()
            for before, after in zip(placed.partitions, now.partitions, strict=True):
                hit = before.primary == peers[0].number
                assert (after.epoch, after.primary) == ((1, peers[1].number) if hit else (0, before.primary))
            old.start()
            await agree(driver.client)
            await peers[0].start(driver.client)

    run(story())


@pytest.mark.parametrize("own", [SHORT], indirect=True)
def test_without_workers_nothing_is_placed_and_revives_wait(own: LocalCluster):
    """Registering without a worker is NO_ROOM at once, so that the engine may fall back; reviving waits for one."""

    async def story():
        async with world(own, 1, beat_s=0.2) as (driver, [peer]):
            await driver.open()
            await peer.stop()
            await wait_until_async(lambda: metric(own, "holdfast_master_workers_alive") == 0, "the loss")
            with pytest.raises(GiveUpError) as none:
                await driver.open(shuffle=2)
            assert none.value.status is Status.NO_ROOM
            revive = asyncio.create_task(driver.revive([(1, 0)]))
            asked = metric(own, "holdfast_master_revives")
            await wait_until_async(lambda: metric(own, "holdfast_master_revives") > asked + 1, "some tries")
            assert not revive.done()
            await peer.start(driver.client, beat_s=0.2)
            assert [(each.partition, each.epoch, list(each.workers)) for each in await revive] == [
                (1, 1, [peer.number])
            ]

    run(story())


@pytest.mark.parametrize("copies", [1, 2])
def test_real_workers_seal_what_was_pushed(cluster: LocalCluster, copies: int):
    """Through real workers: what was pushed is sealed on every copy, with its size; partitions without a batch are
    empty and not lost; nothing is accepted afterwards."""

    async def story():
        async with ControlClient(cluster.endpoints) as client:
            driver = ReduceDriver(client)
            await driver.register()
            placed, reply = await driver.open(partitions=6, copies=copies)
            await push_one_each(driver, ReduceLocations(placed.partitions[:5]), reply, Ack.WRITTEN)
            await asyncio.gather(driver.end(partitions=6), driver.end(partitions=6))
            reported = await driver.reported()
            assert [len(each.readable) for each in reported] == [copies] * 5 + [0]
            assert {copy.size_bytes for each in reported for copy in each.readable} == {1028}
            assert not any(each.lost for each in reported)
            with pytest.raises(HoldfastError) as refused:
                await push_one_each(driver, placed, reply, Ack.WRITTEN)
            assert refused.value.status is Status.COMMITTED

    run(story())


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN], ids=["memory", "written"])
def test_real_worker_killed_before_the_commit(cluster: LocalCluster, ack: Ack):
    """Kill -9 of a worker with acknowledged batches, and its return: WRITTEN is sealed by the new start, MEMORY is lost
    by name; partitions that have no copy lost are whole."""

    async def story():
        async with ControlClient(cluster.endpoints) as client:
            driver = ReduceDriver(client)
            await driver.register()
            placed, reply = await driver.open(partitions=6, ack=ack)
            await push_one_each(driver, placed, reply, ack)
            victim = cluster.workers[0]
            number = next(each.worker for each in await listed(client) if each.name == victim.name)
            victim.kill()
            commit = asyncio.create_task(driver.end(partitions=6))
            await wait_until_async(lambda: metric(cluster, "holdfast_master_calls_under_way") > 0, "the commit")
            await asyncio.to_thread(victim.start)
            await commit
            reported = [each for each in await driver.reported() if each.epoch == 0]
            hit = [each.primary == number for each in placed.partitions]
            assert [each.lost for each in reported] == [was and ack is Ack.MEMORY for was in hit]
            assert any(hit)
            assert {each.copies[0].size_bytes for each in reported if not each.lost} == {1028}

    run(story())


async def listed(client: ControlClient) -> list[pb.WorkerInfo]:
    return list((await client.call("Admin/ListWorkers", pb.ListWorkersRequest())).workers)
