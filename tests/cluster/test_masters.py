"""Three masters as real processes: what is replicated, retried, and kept through kills and restarts.

Rows 38 to 40 of the acceptance list are tests named after them; the redirects of row 38 are in test_master_doors.py,
row 40 in full in tests/unit/common/test_control_client.py.
"""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import (
    ApplicationGoneError,
    ConflictError,
    GiveUpError,
    HoldfastError,
    IncarnationTooLowError,
    RetryError,
)
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import (
    CALM,
    SHORT,
    Driver,
    agree,
    drawn,
    heartbeat,
    leader_of,
    run,
    silent,
    waiting,
    worker,
)
from tests.support.waiting import wait_until_async
from tests.unit.master.build import winners


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters for one test that kills or stops some."""
    with local_cluster(masters=3, workers=0, dir=tmp_path / "masters", settings=CALM) as started:
        yield started


@pytest.fixture
def short(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters with short leases."""
    with local_cluster(masters=3, workers=0, dir=tmp_path / "masters", settings=SHORT) as started:
        yield started


def test_row_38_commands_reach_all_masters_and_need_a_quorum(own: LocalCluster):
    """Each command ends in the same state on three masters; without a quorum writes fail, reads too, and come back."""

    async def story():
        async with ControlClient(own.endpoints) as client:
            for number in range(1, 4):
                await client.call("Registry/RegisterWorker", worker(f"w{number}"))
            driver = Driver(client)
            await driver.register()
            for number in range(20):
                ring = MapAssignment.decode((await driver.shuffle(number)).assignment_array).workers
                await driver.commit(number, winners(ring[0]))
            await client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(3)))
            await client.call("Admin/Forget", pb.ForgetRequest(instance=driver.instance, one_shuffle=True, shuffle=4))
            await agree(client)

            left = leader_of(own)
            for master in own.masters:
                if master is not left:
                    master.kill()
            with pytest.raises(RetryError):
                await client.call("Shuffles/Attach", pb.AttachRequest(name="app", holder=drawn()), deadline_s=1.5)
            with pytest.raises(RetryError):
                await client.call("Shuffles/GetManifest", pb.GetManifestRequest(key=driver.key(99)), deadline_s=1.5)
            status = await client.ask(left.address, "Admin/Status", pb.StatusRequest())
            assert status.shuffles == 18, "Status is answered without a quorum"
            for master in own.masters:
                if master is not left:
                    master.start()
            await client.call("Shuffles/Attach", pb.AttachRequest(name="app", holder=drawn()))
            await agree(client)

    run(story())


def test_row_39_restart_and_snapshot_give_equal_states(tmp_path: Path):
    """Masters that compact while serving, restart, or lag behind a snapshot hold the same state as the others."""
    settings = {"raft": {"snapshot_entries": 50}}
    with local_cluster(masters=3, workers=0, dir=tmp_path / "masters", settings=settings) as cluster:

        async def story():
            async with ControlClient(cluster.endpoints) as client:
                driver = Driver(client)
                await driver.register()
                lagging = next(master for master in cluster.masters if master is not leader_of(cluster))
                lagging.kill()
                for _ in range(150):
                    await client.call("Shuffles/Attach", pb.AttachRequest(instance=driver.instance, holder=drawn()))
                status = await client.ask(leader_of(cluster).address, "Admin/Status", pb.StatusRequest())
                assert status.snapshot_index > 50, "the log was compacted while serving"
                lagging.start()
                await agree(client)
                for master in cluster.masters:
                    master.kill()
                for master in cluster.masters:
                    master.start()
                await client.call("Shuffles/RenewLease", pb.RenewLeaseRequest(instance=driver.instance))
                await agree(client)

        run(story())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_row_40_calls_survive_the_leader(own: LocalCluster, number):
    """While the leader is killed or stopped under many calls, each call is answered, and applied exactly once."""

    async def story():
        async with ControlClient(own.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("w"))
            driver = Driver(client)
            await driver.register()
            old = leader_of(own)
            calls = [asyncio.ensure_future(driver.shuffle(shuffle)) for shuffle in range(200)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            old.kill(number)
            assert all(reply.assignment_array for reply in await asyncio.gather(*calls))
            drops = [
                client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(shuffle)))
                for shuffle in range(200)
            ]
            assert [reply.dropped for reply in await asyncio.gather(*drops)] == [1] * 200, (
                "a second apply would drop none"
            )
            if number == signal.SIGSTOP:
                old.kill(signal.SIGCONT)
            else:
                old.start()
            await agree(client)

    run(story())


def test_row_40_long_poll_moves_to_the_next_leader(own: LocalCluster):
    """A reader that waits when the leader dies gets the manifest that is committed under the next one."""

    async def story():
        async with ControlClient(own.endpoints) as client, ControlClient(own.endpoints) as other:
            number = (await client.call("Registry/RegisterWorker", worker("w"))).worker
            driver = Driver(client, lease_ms=60_000)
            await driver.register()
            await driver.shuffle(1)
            reader = asyncio.ensure_future(Driver.manifest(driver, 1, wait_ms=30_000))
            await wait_until_async(lambda: waiting(own) == 1, "the reader to wait")
            leader_of(own).kill()
            request = pb.CommitRequest(key=driver.key(1), winners_array=winners(number))
            await other.call("Shuffles/Commit", request)
            assert (await reader).winners_array == winners(number)

    run(story())


def test_retried_call_is_answered_once_from_the_table(own: LocalCluster):
    """The same call number at the next leader gets the recorded answer; another request under it is refused."""

    async def story():
        async with ControlClient(own.endpoints) as client:
            driver = Driver(client)
            await driver.register()
            await client.call("Registry/RegisterWorker", worker("w"))
            await driver.shuffle(1)
            call = pb.CallId(client=drawn(), number=1, raft_index=client.raft_index)
            drop = pb.UnregisterShuffleRequest(call=call, key=driver.key(1))
            assert (await client.call("Shuffles/UnregisterShuffle", drop)).dropped == 1
            leader_of(own).kill()
            assert (await client.call("Shuffles/UnregisterShuffle", drop)).dropped == 1
            drop.key.shuffle = 2
            with pytest.raises(GiveUpError) as reused:
                await client.call("Shuffles/UnregisterShuffle", drop)
            assert reused.value.status is Status.CALL_REUSED

    run(story())


def test_all_masters_killed_forget_nothing(own: LocalCluster):
    """Kill -9 of all three at once: every acknowledged registration and commit is there after the restart."""

    async def story():
        async with ControlClient(own.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("w", incarnation=3))
            driver = Driver(client)
            await driver.register()
            ring = MapAssignment.decode((await driver.shuffle(1)).assignment_array).workers
            await driver.commit(1, winners(ring[0]))
            await asyncio.gather(*(driver.shuffle(number) for number in range(2, 40)))
            for master in own.masters:
                master.kill()
            for master in own.masters:
                master.start(wait=False)
            assert (await driver.manifest(1)).winners_array == winners(ring[0])
            status = await client.call("Admin/Status", pb.StatusRequest())
            assert (status.shuffles, status.applications, status.workers) == (39, 1, 1)
            with pytest.raises(IncarnationTooLowError) as low:
                await client.call("Registry/RegisterWorker", worker("w", incarnation=2))
            assert low.value.lowest == 4
            await agree(client)

    run(story())


def test_five_masters_stand_the_loss_of_two(tmp_path: Path):
    """The leader and another one of five are killed with -9 at once under commands: none that was acknowledged is
    missing, commands go on with three, and not with two. When all are back they agree."""
    with local_cluster(masters=5, workers=0, dir=tmp_path / "masters", settings=CALM) as cluster:

        async def story():
            async with ControlClient(cluster.endpoints) as client:
                await client.call("Registry/RegisterWorker", worker("w1"))
                driver = Driver(client)
                await driver.register()
                acknowledged: set[int] = set()

                async def register(number: int) -> None:
                    await driver.shuffle(number)
                    acknowledged.add(number)

                first = leader_of(cluster)
                others = [each for each in cluster.masters if each is not first]
                calls = [asyncio.create_task(register(number)) for number in range(60)]
                await wait_until_async(lambda: len(acknowledged) > 10, "some to be acknowledged")
                first.kill()
                others[0].kill()
                await asyncio.gather(*calls)
                assert acknowledged == set(range(60))
                next(each for each in others[1:] if each is not leader_of(cluster)).kill()
                with pytest.raises(RetryError):
                    await client.call("Shuffles/Attach", pb.AttachRequest(name="app", holder=drawn()), deadline_s=1.5)
                for each in cluster.masters:
                    if not each.running:
                        each.start()
                await agree(client, 5)
                request = pb.ListShufflesRequest(instance=driver.instance)
                listed = await client.call("Admin/ListShuffles", request)
                assert {each.key.shuffle for each in listed.shuffles} == acknowledged
                status = await client.ask(leader_of(cluster).address, "Admin/Status", pb.StatusRequest())
                assert [each.reachable for each in status.masters] == [True] * 5

        run(story())


def test_one_machine_is_one_host(short: LocalCluster):
    """A second host of one machine is refused while the first one lives, with the sentence that says what to change;
    one that was lost meanwhile is asked to register by its heartbeat, and hears the same."""

    async def story():
        async with ControlClient(short.endpoints) as client:
            first = await client.call("Registry/RegisterWorker", worker("p", host="p", machine_id="m"))
            with pytest.raises(ConflictError, match='the machine of host "q" is host "p", by worker "p"'):
                await client.call("Registry/RegisterWorker", worker("q", host="q", machine_id="m"))
            while (await client.call("Admin/ListWorkers", pb.ListWorkersRequest())).workers[0].state != "lost":
                await silent(0.05, "the first one to be lost")
            await client.call("Registry/RegisterWorker", worker("q", host="q", machine_id="m"))
            assert (await client.call("Registry/Heartbeat", heartbeat("p", first))).reregister
            listed = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
            assert {each.machine_id for each in listed.workers if each.name in "pq"} == {"m"}

    run(story())


def test_worker_without_heartbeats_is_lost_and_comes_back(short: LocalCluster):
    """Lost after its lease, alive again with the next heartbeat; one of an unknown incarnation, of another worker with
    that number or of another state of the masters is asked to register."""

    async def state(client: ControlClient) -> str:
        reply = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
        return reply.workers[0].state

    async def story():
        async with ControlClient(short.endpoints) as client:
            registered = await client.call("Registry/RegisterWorker", worker("w"))
            assert await state(client) == "alive"
            while await state(client) == "alive":
                await silent(0.05, "the worker to be lost")
            driver = Driver(client)
            await driver.register()
            with pytest.raises(HoldfastError, match="no worker is alive"):
                await driver.shuffle(1)
            beat = heartbeat("w", registered, files=3)
            assert not (await client.call("Registry/Heartbeat", beat)).reregister
            while await state(client) != "alive":
                await client.call("Registry/Heartbeat", beat)
            for changed in ({"incarnation": 2}, {"uid": b"x" * 16}, {"state": registered.state ^ 1}, {"worker": 99}):
                other = pb.HeartbeatRequest()
                other.CopyFrom(beat)
                for name, value in changed.items():
                    setattr(other, name, value)
                assert (await client.call("Registry/Heartbeat", other)).reregister, changed

    run(story())


def test_a_heartbeat_brings_others_along(short: LocalCluster):
    """Each worker whose heartbeat comes along is heard and has an answer of its own; who brings others and comes along
    is refused, with all."""

    async def story():
        async with ControlClient(short.endpoints) as client:
            known = {name: await client.call("Registry/RegisterWorker", worker(name)) for name in "abc"}
            first, second, third = (heartbeat(name, registered) for name, registered in known.items())
            second.files, third.incarnation = 7, 2
            first.neighbours.extend((second, third))
            reply = await client.call("Registry/Heartbeat", first)
            assert [each.reregister for each in (reply, *reply.neighbours)] == [False, False, True]
            listed = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
            assert {each.name: each.files for each in listed.workers if each.name in "abc"} == {"a": 0, "b": 7, "c": 0}
            outer = heartbeat("c", known["c"])
            outer.neighbours.append(first)
            with pytest.raises(HoldfastError, match="brings at most"):
                await client.call("Registry/Heartbeat", outer)

    run(story())


def test_lease_ends_only_without_calls(short: LocalCluster):
    """Calls keep an application beyond its lease; silence ends it; an attached driver keeps it for both."""

    async def story():
        async with ControlClient(short.endpoints) as client:
            kept, attached, left = Driver(client, 600), Driver(client, 600), Driver(client, 600)
            for driver in (kept, attached, left):
                await driver.register()
            request = pb.AttachRequest(instance=attached.instance, holder=kept.holder, lease_ms=600)
            await client.call("Shuffles/Attach", request)
            while True:
                for driver in (kept, attached):
                    renew = pb.RenewLeaseRequest(instance=driver.instance, holder=kept.holder)
                    await client.call("Shuffles/RenewLease", renew)
                listed = await client.call("Admin/Status", pb.StatusRequest())
                if listed.applications < 3:
                    break
                await silent(0.05, "the silent application to go")
            with pytest.raises(ApplicationGoneError):
                await client.call("Shuffles/RenewLease", pb.RenewLeaseRequest(instance=left.instance))
            renew = pb.RenewLeaseRequest(instance=attached.instance, holder=attached.holder)
            with pytest.raises(ApplicationGoneError):  # the application is there, this holder's lease is not
                await client.call("Shuffles/RenewLease", renew)

    run(story())


def test_leader_that_stood_still_expires_nobody(short: LocalCluster):
    """All masters stopped for longer than every lease: nothing is expired when they go on."""

    async def story():
        async with ControlClient(short.endpoints) as client:
            driver = Driver(client, lease_ms=1_500)
            await driver.register()
            await client.call("Registry/RegisterWorker", worker("w"))
            for master in short.masters:
                master.kill(signal.SIGSTOP)
            await silent(3.0, "every lease to run out")
            for master in short.masters:
                master.kill(signal.SIGCONT)
            reply = await client.call("Shuffles/RenewLease", pb.RenewLeaseRequest(instance=driver.instance))
            assert reply.raft_index
            listed = await client.call("Admin/ListShuffles", pb.ListShufflesRequest())
            assert listed.total == 0

    run(story())


def test_master_stops_on_sigterm_and_hands_over(own: LocalCluster):
    """SIGTERM ends the leader with exit 0, and another one leads without waiting for an election time-out."""
    leader = leader_of(own)
    assert leader.stop() == 0
    assert leader_of(own) is not leader
