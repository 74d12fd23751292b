"""The doors of three real masters: HTTP with JSON, gRPC, health, metrics, redirects, garbage and configuration."""

import asyncio
import json
import os
import random
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import (
    ApplicationGoneError,
    ConflictError,
    GiveUpError,
    HoldfastError,
    NotLeaderError,
    ProtocolError,
    RetryError,
)
from holdfast.common.formats.layouts import MapAssignment, MapWinner, MapWinners
from holdfast.common.net.control import ControlClient
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import (
    CALM,
    Driver,
    agree,
    drawn,
    grpc_address,
    leader_of,
    post,
    run,
    waiting,
    worker,
)
from tests.cluster.shapes import Shape
from tests.support.waiting import wait_until_async
from tests.unit.master.build import winners

#: What `shared` is here.
SHARED = Shape(masters=3, workers=0, settings=CALM)


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
            known, unknown = driver.key(1, state=registered.state), driver.key(2, state=registered.state)
            check = pb.CheckShufflesRequest(worker=first.worker, keys=[known, unknown])
            stranger = await client.call("Registry/CheckShuffles", check)
            assert not stranger.dropped
            assert not stranger.unheard
            check.uid, check.state = worker(f"a-{transport}").uid, first.state
            checked = await client.call("Registry/CheckShuffles", check)
            assert (list(checked.dropped), list(checked.unheard)) == ([], [unknown])
            dropped = await client.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=driver.key(1)))
            assert dropped.dropped == 1
            assert (await client.call("Registry/CheckShuffles", check)).dropped == [known]
            with pytest.raises(GiveUpError) as refused:
                await driver.manifest(1)
            assert refused.value.status is Status.UNKNOWN_GENERATION
            await client.call("Shuffles/Detach", pb.DetachRequest(instance=driver.instance, holder=driver.holder))
            with pytest.raises(ApplicationGoneError):
                await driver.manifest(1)

    run(story())


def cluster_of(address: str) -> str:
    """The id of the cluster, as this master tells it."""
    return str(json.loads(post(address, "Shuffles/Discover", b"{}")[2])["clusterId"])


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
            with pytest.raises(NotLeaderError) as reported:
                await client.ask(follower.address, method, request)
            assert reported.value.leader == leader.address

    run(story())
    with grpc.insecure_channel(grpc_address(follower)) as channel:
        ask: Any = channel.unary_unary(METHODS[method].path)
        with pytest.raises(grpc.RpcError) as caught:
            ask(request.SerializeToString(), timeout=60)
    trailing: Any = caught.value.trailing_metadata()
    metadata = dict(trailing)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (metadata["holdfast-status"], metadata["holdfast-leader"]) == (str(int(Status.NOT_LEADER)), leader.address)
    assert metadata["holdfast-cluster"] == cluster_of(follower.address)


def test_http_with_json_needs_no_stub(shared: LocalCluster):
    """proto3 JSON in and out, errors as Connect writes them, by nothing but POST."""
    leader = leader_of(shared)
    follower = next(master for master in shared.masters if master is not leader)
    status, headers, body = post(follower.address, "Shuffles/Discover", b"{}")
    assert (status, headers["Holdfast-Cluster"]) == (200, json.loads(body)["clusterId"])
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
        assert headers["Holdfast-Cluster"] == cluster_of(leader.address)
        assert wanted in json.loads(body)["message"]
    assert post(leader.address, "Shuffles/RenewLease", b"x", "text/plain")[0] == 400
    assert post(leader.address, "Shuffles/Nothing", b"{}")[0] == 404
    with urllib.request.urlopen(f"http://{follower.address}/healthz", timeout=60) as page:
        assert page.read() == b"ok\n"


def test_health_and_reflection(shared: LocalCluster):
    """gRPC tools find out that a master serves, and what."""
    with grpc.insecure_channel(grpc_address(shared.masters[0])) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="holdfast.v1.Shuffles"))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"holdfast.v1.Shuffles", "holdfast.v1.Registry", "holdfast.v1.Admin"} <= set(database.get_services())


def test_metrics_have_documented_names_and_bounded_labels(shared: LocalCluster):
    """Every series is in docs/operate/metrics.md; labels are methods and statuses, never what a client sent."""
    with urllib.request.urlopen(f"http://{leader_of(shared).address}/metrics", timeout=60) as page:
        text = page.read().decode()
    documented = (Path(__file__).parents[2] / "docs" / "operate" / "metrics.md").read_text("utf-8")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in documented} == set()
    known = {*METHODS, *(status.name for status in Status)}
    for line in text.splitlines():
        if line.startswith("holdfast_master_calls_total{"):
            labels = dict(pair.split("=") for pair in line[line.index("{") + 1 : line.index("}")].split(","))
            assert {value.strip('"') for value in labels.values()} <= known


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
            call=pb.CallId(client=drawn(), number=1),
            key=pb.ShuffleKey(instance=drawn()),
            kind=pb.PARTITION_KIND_MAP,
            partitions=5,
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
            reported: list[tuple[Status, str, bytes]] = []
            for name, method in METHODS.items():
                for _ in range(60):
                    request = full.get(name) or method.request()
                    body = mutated(rng, request.SerializeToString())
                    try:
                        await client._http.call(leader, method.path, body, 10)
                    except HoldfastError as error:
                        reported.append((error.status, name, body))
            for name in METHODS:
                for _ in range(10):
                    status, headers, _ = await asyncio.to_thread(
                        post, leader, name, mutated(rng, b'{"key": {"shuffle": 1}}')
                    )
                    assert status == 200 or headers["Holdfast-Status"] != str(int(Status.INTERNAL))
                for value in (rb'"\ud800"', b"Infinity", b"1e400", b'"\xed\xa0\x80"', b"[" * 20_000):
                    for field in ("kind", *METHODS[name].request.DESCRIPTOR.fields_by_name):
                        status, headers, _ = await asyncio.to_thread(
                            post, leader, name, b'{"%s":%s}' % (field.encode(), value)
                        )
                        assert (status, headers["Holdfast-Status"]) == (400, str(int(Status.BAD_REQUEST)))
            assert [each for each in reported if each[0] is Status.INTERNAL] == []
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
    """Winners of several MiB are committed in parts and come back whole."""
    rng = random.Random(1)
    maps, partitions = 50, 1_000_000

    def array_of(number: int) -> bytes:
        fields: dict[str, Any] = {"attempt": 1, "epoch": 0, "workers": (number,), "batches": 1, "size_bytes": 1}
        bits = [rng.randbytes(partitions // 8) for _ in range(maps)]
        return MapWinners(partitions, tuple(MapWinner(partitions=each, **fields) for each in bits)).encode()

    async def story():
        async with ControlClient(shared.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("before"))
            driver = Driver(client)
            await driver.register()
            request = pb.RegisterShuffleRequest(key=driver.key(1), partitions=partitions, maps=maps)
            request.kind = pb.PARTITION_KIND_MAP
            reply = await client.call("Shuffles/RegisterShuffle", request)
            array = array_of(MapAssignment.decode(reply.assignment_array).workers[0])
            assert len(array) > 4 << 20
            await driver.commit(1, array)
            await driver.commit(1, array)
            assert (await driver.manifest(1)).winners_array == array
            await agree(client)

    run(story())


def test_wrong_configuration_is_one_sentence_and_exit_2(processes, tmp_path: Path):
    """No file, or a file without what a master needs: exit 2 and a sentence; -O is refused too."""
    (tmp_path / "bare.toml").write_text('[master]\nname = "m1"\n')
    for name, arguments, wanted in [
        ("nofile", ["-m", "holdfast.master", "--config", str(tmp_path / "none.toml")], "cannot read the configuration"),
        ("bare", ["-m", "holdfast.master", "--config", str(tmp_path / "bare.toml")], "[master] needs directory"),
        ("optimised", ["-O", "-m", "holdfast.master", "--config", str(tmp_path / "bare.toml")], "without -O"),
    ]:
        child = processes.start(name, [sys.executable, *arguments], {"PYTHONPATH": os.pathsep.join(sys.path)})
        child.wait(60)
        assert (child.returncode, wanted in processes.log(name).read_text()) == (2, True), processes.log(
            name
        ).read_text()
