"""Three masters as real processes: what is replicated, redirected, retried, and kept through kills and restarts.

Rows 38 to 40 of the acceptance list are tests named after them (row 40 in full:
tests/unit/common/test_control_client.py).
"""

import asyncio
import json
import os
import random
import secrets
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from holdfast.client.cluster import LocalCluster, Server, local_cluster
from holdfast.common.errors import (
    ApplicationGoneError,
    ConflictError,
    GiveUpError,
    HoldfastError,
    IncarnationTooLowError,
    NotLeaderError,
    ProtocolError,
    RetryError,
    Status,
)
from holdfast.common.layouts import MapAssignment, MapWinner, MapWinners
from holdfast.common.net.control import ControlClient
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from tests.support.waiting import wait_until, wait_until_async
from tests.unit.master.build import winners

#: Short leases, so that expiry is seen within a test; the defaults elsewhere.
SHORT = {"lease": {"worker": "1s", "heartbeat": "200ms", "tick": "100ms", "deletion_grace": "500ms"}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters for the tests that leave them running."""
    with local_cluster(masters=3, workers=0, dir=tmp_path_factory.mktemp("masters")) as started:
        yield started


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters with short leases, for one test that kills or stops some."""
    with local_cluster(masters=3, workers=0, dir=tmp_path / "masters", settings=SHORT) as started:
        yield started


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


def drawn() -> bytes:
    return secrets.token_bytes(16)


def worker(name: str, incarnation: int = 1, **changed: Any) -> pb.RegisterWorkerRequest:
    directory = pb.Directory(id=name.encode().ljust(16, b"d"), path="/d", tier="SSD", free_bytes=1, healthy=True)
    fields: dict[str, Any] = {"uid": name.encode().ljust(16, b"u"), "name": name, "incarnation": incarnation}
    fields |= {"host": f"host-{name}", "data_address": "127.0.0.1:1", "boot_id": "b", "directories": [directory]}
    return pb.RegisterWorkerRequest(**{**fields, **changed})


class Driver:
    """What a driver does: an application with a lease, shuffles, commits."""

    def __init__(self, client: ControlClient, lease_ms: int = 0) -> None:
        self.client = client
        self.instance, self.holder, self.lease_ms = drawn(), drawn(), lease_ms

    async def register(self) -> None:
        request = pb.RegisterApplicationRequest(instance=self.instance, name="app", holder=self.holder, user="u")
        request.lease_ms = self.lease_ms
        await self.client.call("Shuffles/RegisterApplication", request)

    def key(self, shuffle: int, generation: int = 0) -> pb.ShuffleKey:
        return pb.ShuffleKey(instance=self.instance, shuffle=shuffle, generation=generation)

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


async def agree(client: ControlClient, masters: int = 3) -> None:
    """Wait until that many masters have applied the same; their hashes must be equal then."""
    seen: dict[str, tuple[int, bytes]] = {}
    for _ in range(1000):
        seen = await hashes(client)
        if len(seen) == masters and len({index for index, _ in seen.values()}) == 1:
            break
        await wait_until_async(lambda: True, "a turn")
    assert len(set(seen.values())) == 1, seen
    assert len(seen) == masters


async def silent(seconds: float, what: str) -> None:
    """Let real time pass: leases are about nothing else."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    await wait_until_async(lambda: loop.time() >= end, what)


def leader_of(cluster: LocalCluster) -> Server:
    return cluster.leader()


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_shuffle_from_registration_to_manifest(shared: LocalCluster, transport):
    """Workers, application, shuffle, a reader that waits, the commit that wakes it, and the end of it all."""

    async def story():
        async with ControlClient(shared.endpoints, transport=transport) as client:
            first = await client.call("Registry/RegisterWorker", worker(f"a-{transport}"))
            second = await client.call("Registry/RegisterWorker", worker(f"b-{transport}"))
            assert first.worker != second.worker
            driver = Driver(client)
            with pytest.raises(ApplicationGoneError):
                await driver.shuffle(1)
            await driver.register()
            registered = await driver.shuffle(1, copies=2)
            assert registered.copies == 2
            assert (await driver.shuffle(1, copies=2)).assignment_array == registered.assignment_array
            ring = MapAssignment.decode(registered.assignment_array).workers
            assert {first.worker, second.worker} <= set(ring) == {each.worker for each in registered.workers}

            with pytest.raises(RetryError) as early:
                await driver.manifest(1)
            assert early.value.status is Status.NOT_COMMITTED
            reader = asyncio.ensure_future(driver.manifest(1, wait_ms=30_000))
            await wait_until_async(lambda: waiting(shared) == 1, "the reader to wait")
            with pytest.raises(ProtocolError, match="assignment"):
                await driver.commit(1, winners(worker=999))
            await driver.commit(1, winners(ring[0]))
            await driver.commit(1, winners(ring[0]))
            with pytest.raises(ConflictError):
                await driver.commit(1, winners(ring[0], attempt=8))
            assert (await reader).winners_array == winners(ring[0])

            listed = await client.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=driver.instance))
            assert [(each.state, each.bytes, each.copies) for each in listed.shuffles] == [("committed", 10, 2)]
            check = pb.CheckShufflesRequest(worker=first.worker, keys=[driver.key(1), driver.key(2)])
            assert (await client.call("Registry/CheckShuffles", check)).unknown == [driver.key(2)]
            dropped = await client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(1)))
            assert dropped.dropped == 1
            with pytest.raises(GiveUpError) as unknown:
                await driver.manifest(1)
            assert unknown.value.status is Status.UNKNOWN_GENERATION
            await client.call("Shuffles/Detach", pb.DetachRequest(instance=driver.instance, holder=driver.holder))
            with pytest.raises(ApplicationGoneError):
                await driver.manifest(1)

    run(story())


def waiting(cluster: LocalCluster) -> float:
    """Long polls that wait on the leader, by its metrics."""
    with urllib.request.urlopen(f"http://{leader_of(cluster).address}/metrics", timeout=5) as page:
        text = page.read().decode()
    line = next(line for line in text.splitlines() if line.startswith("holdfast_master_long_polls "))
    return float(line.split()[1])


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


@pytest.mark.parametrize(
    "method", ["Admin/ListShuffles", "Shuffles/Attach", "Shuffles/GetManifest", "Registry/Heartbeat"]
)
def test_row_38_followers_redirect_to_the_leader(shared: LocalCluster, method):
    """Over gRPC and over HTTP with JSON a follower answers NOT_LEADER with the leader's HTTP address."""
    leader = leader_of(shared)
    follower = next(master for master in shared.masters if master is not leader)
    request = METHODS[method].request()
    if method == "Shuffles/GetManifest":
        request = pb.GetManifestRequest(key=pb.ShuffleKey(instance=drawn()))
    if method == "Shuffles/Attach":
        request = pb.AttachRequest(name="x", holder=drawn(), lease_ms=1)

    async def story():
        async with ControlClient(shared.endpoints) as client:
            with pytest.raises(NotLeaderError) as told:
                await client.ask(follower.address, method, request)
            assert told.value.leader == leader.address

    run(story())
    with grpc.insecure_channel(grpc_address(follower)) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHODS[method].path)(request.SerializeToString(), timeout=10)
    metadata = dict(caught.value.trailing_metadata())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (metadata["holdfast-status"], metadata["holdfast-leader"]) == (str(int(Status.NOT_LEADER)), leader.address)


def grpc_address(master: Server) -> str:
    return str(master.wait_ready()["grpc"])


def post(
    address: str, method: str, body: bytes, content: str = "application/json"
) -> tuple[int, dict[str, str], bytes]:
    """What curl does."""
    url = f"http://{address}/holdfast.v1.{method}"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": content})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_http_with_json_needs_no_stub(shared: LocalCluster):
    """proto3 JSON in and out, errors as Connect writes them, by nothing but POST."""
    leader = leader_of(shared)
    follower = next(master for master in shared.masters if master is not leader)
    status, _, body = post(follower.address, "Shuffles/Discover", b"{}")
    assert status == 200
    assert json.loads(body)["leaderHttp"] == leader.address
    status, headers, body = post(follower.address, "Admin/ListWorkers", b"{}")
    assert (status, headers["Holdfast-Status"], headers["Holdfast-Leader"]) == (503, "110", leader.address)
    assert json.loads(body)["code"] == "unavailable"
    status, headers, body = post(leader.address, "Shuffles/RenewLease", b'{"instance": "enp6enp6enp6enp6enp6eg=="}')
    assert (status, headers["Holdfast-Status"], json.loads(body)["code"]) == (404, "30", "not_found")
    for wrong, wanted in [
        (b'{"instant": 1}', "instant"),
        (b"[]", "JSON"),
        (b'{"instance": 5}', "instance"),
        (b"\xff", "JSON"),
    ]:
        status, headers, body = post(leader.address, "Shuffles/RenewLease", wrong)
        assert (status, headers["Holdfast-Status"]) == (400, str(int(Status.BAD_REQUEST)))
        assert wanted in json.loads(body)["message"]
    assert post(leader.address, "Shuffles/RenewLease", b"x", "text/plain")[0] == 400
    assert post(leader.address, "Shuffles/Nothing", b"{}")[0] == 404
    with urllib.request.urlopen(f"http://{follower.address}/healthz", timeout=5) as page:
        assert page.read() == b"ok\n"


def test_health_and_reflection(shared: LocalCluster):
    """gRPC tools find out that a master serves, and what."""
    with grpc.insecure_channel(grpc_address(shared.masters[0])) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="holdfast.v1.Shuffles"))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"holdfast.v1.Shuffles", "holdfast.v1.Registry", "holdfast.v1.Admin"} <= set(database.get_services())


def test_metrics_have_documented_names_and_bounded_labels(shared: LocalCluster):
    """Every series is in docs/control_plane.md; labels are methods and statuses, never what a client sent."""
    with urllib.request.urlopen(f"http://{leader_of(shared).address}/metrics", timeout=5) as page:
        text = page.read().decode()
    documented = (Path(__file__).parents[2] / "docs" / "control_plane.md").read_text("utf-8")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in documented} == set()
    known = {*METHODS, *(status.name for status in Status)}
    for line in text.splitlines():
        if line.startswith("holdfast_master_calls_total{"):
            labels = dict(pair.split("=") for pair in line[line.index("{") + 1 : line.index("}")].split(","))
            assert {value.strip('"') for value in labels.values()} <= known


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


def test_worker_without_heartbeats_is_lost_and_comes_back(own: LocalCluster):
    """Lost after its lease, alive again with the next heartbeat; an unknown incarnation is asked to register."""

    async def state(client: ControlClient) -> str:
        reply = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
        return reply.workers[0].state

    async def story():
        async with ControlClient(own.endpoints) as client:
            number = (await client.call("Registry/RegisterWorker", worker("w"))).worker
            assert await state(client) == "alive"
            while await state(client) == "alive":
                await silent(0.05, "the worker to be lost")
            driver = Driver(client)
            await driver.register()
            with pytest.raises(HoldfastError, match="no worker is alive"):
                await driver.shuffle(1)
            beat = pb.HeartbeatRequest(worker=number, incarnation=1, files=3)
            assert not (await client.call("Registry/Heartbeat", beat)).reregister
            while await state(client) != "alive":
                await client.call("Registry/Heartbeat", beat)
            beat.incarnation = 2
            assert (await client.call("Registry/Heartbeat", beat)).reregister

    run(story())


def test_lease_ends_only_without_calls(own: LocalCluster):
    """Calls keep an application beyond its lease; silence ends it; an attached driver keeps it for both."""

    async def story():
        async with ControlClient(own.endpoints) as client:
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


def test_leader_that_stood_still_expires_nobody(own: LocalCluster):
    """All masters stopped for longer than every lease: nothing is expired when they go on."""

    async def story():
        async with ControlClient(own.endpoints) as client:
            driver = Driver(client, lease_ms=1_500)
            await driver.register()
            await client.call("Registry/RegisterWorker", worker("w"))
            for master in own.masters:
                master.kill(signal.SIGSTOP)
            await silent(3.0, "every lease to run out")
            for master in own.masters:
                master.kill(signal.SIGCONT)
            reply = await client.call("Shuffles/RenewLease", pb.RenewLeaseRequest(instance=driver.instance))
            assert reply.raft_index
            listed = await client.call("Admin/ListShuffles", pb.ListShufflesRequest())
            assert listed.total == 0

    run(story())


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A few bytes flipped, cut, doubled or drawn."""
    body = bytearray(data or b"\x00")
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(4):
            case 0:
                body[rng.randrange(len(body))] = rng.randrange(256)
            case 1:
                del body[rng.randrange(len(body)) :]
            case 2:
                body += body[: rng.randrange(len(body) + 1)]
            case _:
                body += rng.randbytes(rng.randrange(20))
        body = body or bytearray(b"\x00")
    return bytes(body)


def test_garbage_gets_typed_errors_and_harms_nobody(shared: LocalCluster):
    """Mutated bodies of every method, as protobuf and as JSON: an answer or a typed error, and the service goes on."""
    rng = random.Random(4)
    full = {
        "Shuffles/RegisterShuffle": pb.RegisterShuffleRequest(
            call=pb.CallId(client=drawn(), number=1), key=pb.ShuffleKey(instance=drawn()), kind=1, partitions=5
        ),
        "Shuffles/Commit": pb.CommitRequest(key=pb.ShuffleKey(instance=drawn()), winners_array=winners(1, maps=20)),
        "Registry/RegisterWorker": worker("garbage"),
        "Registry/CheckShuffles": pb.CheckShufflesRequest(keys=[pb.ShuffleKey(instance=drawn())]),
    }

    async def story():
        async with ControlClient(shared.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("before"))
            driver = Driver(client)
            await driver.register()
            await driver.shuffle(1)
            leader = leader_of(shared).address
            told: list[tuple[Status, str, bytes]] = []
            for name, method in METHODS.items():
                for _ in range(60):
                    request = full.get(name) or method.request()
                    body = mutated(rng, request.SerializeToString())
                    try:
                        await client._http.call(leader, method.path, body, 10)
                    except HoldfastError as error:
                        told.append((error.status, name, body))
            for name in METHODS:
                for _ in range(10):
                    status, headers, _ = await asyncio.to_thread(
                        post, leader, name, mutated(rng, b'{"key": {"shuffle": 1}}')
                    )
                    assert status == 200 or headers["Holdfast-Status"] != str(int(Status.INTERNAL))
            assert [each for each in told if each[0] is Status.INTERNAL] == []
            array = winners(1, maps=5)
            for _ in range(100):
                commit = pb.CommitRequest(key=driver.key(1), winners_array=mutated(rng, array))
                with pytest.raises(HoldfastError) as refused:
                    await client.call("Shuffles/Commit", commit)
                assert refused.value.status in (Status.BAD_REQUEST, Status.CONFLICT, Status.TOO_LARGE)
            await driver.shuffle(2)
            await agree(client)

    run(story())


def test_bodies_above_the_bound_are_refused(shared: LocalCluster):
    """A body that says it is too long is refused before it is read."""

    async def story():
        reader, writer = await asyncio.open_connection(*shared.masters[0].address.split(":"))
        writer.write(
            b"POST /holdfast.v1.Shuffles/Commit HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert f"Holdfast-Status: {int(Status.TOO_LARGE)}".encode() in head
        writer.close()

    run(story())


def test_winners_above_a_command_go_in_parts(shared: LocalCluster):
    """Winners of more than 4 MiB are committed in parts and come back whole."""
    rng = random.Random(1)
    maps, partitions = 50, 1_000_000

    def array_of(number: int) -> bytes:
        fields = {"epoch": 0, "workers": (number,), "batches": 1, "size_bytes": 1}
        bits = [rng.randbytes(partitions // 8) for _ in range(maps)]
        return MapWinners(partitions, tuple(MapWinner(attempt=1, partitions=each, **fields) for each in bits)).encode()

    async def story():
        async with ControlClient(shared.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("before"))
            driver = Driver(client)
            await driver.register()
            request = pb.RegisterShuffleRequest(key=driver.key(1), kind=1, partitions=partitions, maps=maps)
            reply = await client.call("Shuffles/RegisterShuffle", request)
            array = array_of(MapAssignment.decode(reply.assignment_array).workers[0])
            assert len(array) > 4 << 20
            await driver.commit(1, array)
            await driver.commit(1, array)
            assert (await driver.manifest(1)).winners_array == array
            await agree(client)

    run(story())


def test_master_stops_on_sigterm_and_hands_over(own: LocalCluster):
    """SIGTERM ends the leader with exit 0, and another one leads without waiting for an election time-out."""
    leader = leader_of(own)
    assert leader.stop() == 0
    assert leader_of(own) is not leader


def test_wrong_configuration_is_one_sentence_and_exit_2(processes, tmp_path: Path):
    """No file, or a file without what a master needs: exit 2 and a sentence; -O is refused too."""
    (tmp_path / "bare.toml").write_text('[master]\nname = "m1"\n')
    for name, arguments, wanted in [
        ("nofile", ["-m", "holdfast.master", "--config", str(tmp_path / "none.toml")], "cannot read the configuration"),
        ("bare", ["-m", "holdfast.master", "--config", str(tmp_path / "bare.toml")], "[master] needs directory"),
        ("optimised", ["-O", "-m", "holdfast.master", "--config", str(tmp_path / "bare.toml")], "without -O"),
    ]:
        child = processes.start(name, [sys.executable, *arguments], {"PYTHONPATH": os.pathsep.join(sys.path)})
        wait_until(lambda child=child: child.poll() is not None, "the master to end")
        assert (child.returncode, wanted in processes.log(name).read_text()) == (2, True), processes.log(
            name
        ).read_text()
