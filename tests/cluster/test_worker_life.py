"""A worker and the masters, its end, its numbers and its faults, in real processes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.common.errors import RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, MapAbort, MapSealed
from holdfast.common.ids import NO_WORKER
from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.shapes import Shape
from tests.support.map_data import (
    file_key,
    make_content,
    open_file,
    push_all,
    read_files,
    seal,
    shuffle_key,
    write_file,
)
from tests.support.waiting import gone, wait_until_async
from tests.support.worker_world import HOLDER, World, failure_of, refused, run

#: What `shared` is here.
SHARED = Shape(masters=1, workers=1)


@pytest.fixture
def world(shared: LocalCluster) -> World:
    """An application of its own on the shared cluster."""
    return World(shared)


def test_data_is_served_and_taken_without_masters(tmp_path: Path) -> None:
    """With every master dead a restarted worker that was registered before serves, and takes new files."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        world = World(cluster)

        async def story() -> None:
            shuffle = await world.new_shuffle()
            old, new = make_content(file_key(shuffle, 1)), make_content(file_key(shuffle, 2))
            async with world.client() as client:
                await write_file(client, old)
                number = client.hello.worker
            standing = world.worker
            await wait_until_async(lambda: _standing(cluster, standing), "the standing to be kept")
            cluster.masters[0].kill()
            world.restart()
            async with world.client() as client:
                assert client.hello.worker == number
                await write_file(client, new)
                assert await read_files(client, [old.key], 0, 8) == old.pieces(0, 8)
            assert world.status()["registered"] == 0

        run(story)


def _standing(cluster: LocalCluster, worker: Server) -> bool:
    return (cluster.directory / worker.name / "standing").exists()


def test_a32_a_hello_that_named_no_worker_is_said_again(tmp_path: Path) -> None:
    """Whoever greets a worker before the masters have given it a number hears no number. That connection ends when the
    number comes, whatever it was kept for, and the next HELLO tells the number."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        world = World(cluster)
        (master,) = cluster.masters
        for server in (master, world.worker):
            server.kill()
            (cluster.directory / server.name).rename(cluster.directory / f"{server.name}-before")
        world.worker.start()

        async def story() -> None:
            async with world.client() as early:
                assert early.hello.worker == NO_WORKER
                master.start()
                await wait_until_async(lambda: early.closed, "the connection to be closed")
                with pytest.raises(RetryError, match="it is worker 1"):
                    await early.request(FrameType.PING)
            async with world.client() as late:
                assert late.hello.worker == 1
                await late.request(FrameType.PING)

        run(story)


def test_a_worker_nobody_knows_takes_no_files(tmp_path: Path) -> None:
    """Before the masters have ever accepted a worker it refuses new files with UNAVAILABLE."""
    config = tmp_path / "worker.toml"
    config.write_text(
        '[cluster]\nid = "c"\n[worker]\nname = "w"\ndata_port = 0\nhttp_port = 0\nmasters = ["127.0.0.1:9"]\n'
        f'directories = [{{ path = "{tmp_path / "d"}" }}]\n'
    )
    (tmp_path / "d").mkdir()
    command = [sys.executable, "-m", "holdfast.worker", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            host, port = json.loads(process.stdout.readline())["data"].split(":")

            async def story() -> None:
                client = await FrameClient.connect(host, int(port), Hello(cluster_id="c"), BufferPool(64 * MIB))
                assert await refused(open_file(client, make_content(file_key(shuffle_key())))) == Status.UNAVAILABLE
                client.abort()

            run(story)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_what_the_masters_do_not_know_is_deleted_unless_they_were_restored(tmp_path: Path) -> None:
    """Unregistered data goes. Masters that lost their state know nothing: nothing goes, also when their log has grown
    past what the worker has seen; status says why, until somebody has the masters forget the application."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        world = World(cluster)

        async def story() -> None:
            gone, kept = await world.new_shuffle(), await world.new_shuffle()
            contents = [make_content(file_key(shuffle)) for shuffle in (gone, kept)]
            async with world.client() as client:
                for content in contents:
                    await write_file(client, content)
                key = pb.ShuffleKey(instance=world.instance, shuffle=gone.shuffle, generation=0)
                await world.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=key, holder=HOLDER))
                await wait_until_async(lambda: world.count("shuffles_forgotten") == 1, "the deletion")
                assert await refused(read_files(client, [contents[0].key], 0, 8)) == Status.UNKNOWN_FILE
                assert await refused(open_file(client, contents[0])) == Status.UNKNOWN_SHUFFLE
            master = cluster.masters[0]
            master.kill()
            shutil.rmtree(cluster.directory / master.name)
            master.start()
            world.restart()
            await wait_until_async(lambda: world.count("forgetting_refused") > 0, "the worker to refuse")
            assert any("restored" in problem for problem in world.status()["problems"])
            async with world.client() as client:
                assert await read_files(client, [contents[1].key], 0, 8) == contents[1].pieces(0, 8)
            before, world.instance = world.instance, os.urandom(16)
            for _ in range(30):  # the masters' index passes everything that the worker has seen
                await world.new_shuffle()

            def strange() -> bool:
                return any("do not know" in problem for problem in world.status()["problems"])

            await wait_until_async(strange, "the worker to ask again")
            async with world.client() as client:
                assert await read_files(client, [contents[1].key], 0, 8) == contents[1].pieces(0, 8)
            await world.call("Admin/Forget", pb.ForgetRequest(instance=before))
            await wait_until_async(lambda: world.count("shuffles_forgotten") == 1, "the deletion that was asked for")
            await wait_until_async(lambda: not world.status()["problems"], "the problem to end")

        run(story)


@pytest.mark.parametrize("restart", [False, True])
def test_a36_a_shuffle_of_which_nothing_was_sealed_leaves_no_folder(world: World, restart: bool) -> None:
    """The only attempt of a map is aborted, and the shuffle is dropped: its folder and that of its application go, also
    if the worker was started anew in between."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        folder = world.cluster.directory / world.worker.name / "data" / world.instance.hex()
        async with world.client() as client:
            content = make_content(file_key(shuffle))
            await push_all(client, content, await open_file(client, content))
            await client.request(FrameType.MAP_ABORT, MapAbort(content.key).encode())
            assert not [path for path in folder.rglob("*") if path.is_file()]
        if restart:
            world.restart()
        key = pb.ShuffleKey(instance=world.instance, shuffle=shuffle.shuffle, generation=0)
        await world.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=key, holder=HOLDER))
        await wait_until_async(lambda: not folder.exists(), "the folders to go")

    run(story)


def test_what_an_earlier_start_left_unsealed_is_deleted_when_the_masters_have_answered(world: World) -> None:
    """After kill -9 the unsealed file goes, though its shuffle is known; the sealed one beside it stays."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        sealed, left = make_content(file_key(shuffle, 1)), make_content(file_key(shuffle, 2))
        data = world.cluster.directory / world.worker.name
        async with world.client() as client:
            await write_file(client, sealed)
            await push_all(client, left, await open_file(client, left))
            assert len(list(data.rglob("m-2-*.open"))) == 1
            world.restart()
        await wait_until_async(lambda: world.count("leftovers_removed") == 1, "the deletion")
        assert not list(data.rglob("m-2-*.open"))
        async with world.client() as client:
            assert await read_files(client, [sealed.key], 0, 8) == sealed.pieces(0, 8)

    run(story)


def is_sealed(answer: object) -> bool:
    """Whether asking for a seal brought an answer and no exception."""
    return isinstance(answer, MapSealed)


def test_sigterm_ends_the_worker_in_order(tmp_path: Path) -> None:
    """Seals that were asked for are answered or refused, connections hear why they end, and the exit status is 0."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        world = World(cluster)

        async def story() -> None:
            shuffle = await world.new_shuffle()
            contents = [make_content(file_key(shuffle, n), batch_bytes=100_000) for n in range(20)]
            async with world.client() as client:
                for content in contents:
                    await push_all(client, content, await open_file(client, content))
                futures = [asyncio.create_task(seal(client, content)) for content in contents]
                await client.request(FrameType.PING)
                world.worker.kill(signal.SIGTERM)
                answers = await asyncio.gather(*futures, return_exceptions=True)
                await gone(client)
                with pytest.raises(RetryError, match="ending"):
                    await client.request(FrameType.PING)
            sealed = [content for content, answer in zip(contents, answers, strict=True) if is_sealed(answer)]
            assert sealed
            assert await asyncio.to_thread(world.worker.wait, 20) == 0
            world.worker.start()
            async with world.client() as client:
                for content in sealed:
                    assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)

        run(story)


def test_metrics_and_health_are_reported(world: World) -> None:
    """Every counter of /status is in /metrics by its documented name, and in docs/operate/metrics.md."""
    text = urllib.request.urlopen(f"http://{world.worker.http}/metrics", timeout=60).read().decode()
    status = world.status()
    documented = (Path(__file__).parents[2] / "docs" / "operate" / "metrics.md").read_text()
    for name in status["counters"]:
        assert f"holdfast_worker_{name}_total " in text
        assert f"`holdfast_worker_{name}_total`" in documented
    assert f"holdfast_worker_memory_bytes {status['memory_bytes']:.1f}"[:28] in text
    health = urllib.request.urlopen(f"http://{world.worker.http}/healthz", timeout=60)
    assert (health.status, health.read()) == (200, b"ok")


def test_heartbeats_carry_the_counters(world: World) -> None:
    """The masters' list of workers shows what a worker wrote and served."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            await write_file(client, content)
            await read_files(client, [content.key], 0, 8)

        async def listed() -> pb.WorkerInfo:
            reply = await world.call("Admin/ListWorkers", pb.ListWorkersRequest())
            return reply.workers[0]

        written = world.count("push_bytes")
        info = await listed()
        while info.counters["push_bytes"] < written:  # the story's time limit is the deadline
            info = await listed()
        assert info.counters["stream_bytes"] >= content.totals.size_bytes

    run(story)


def test_a_failing_disk_poisons_the_copy_and_is_shown(tmp_path: Path) -> None:
    """After a failed write the file fails for good, no new one is begun there, sealed ones are served, status tells."""
    settings = {"faults": {"enabled": True, "disk_error_rate": 1.0, "disk_error_after": "1MiB", "disk_delay": "1ms"}}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster:
        world = World(cluster)

        async def story() -> None:
            shuffle = await world.new_shuffle()
            reported = world.status()["faults"]
            assert "disk_delay=0.001s" in reported
            assert any("EIO" in each for each in reported)
            sealed = []
            async with world.client() as client:
                content = make_content(file_key(shuffle))
                while (failure := await failure_of(write_file(client, content))) is None:
                    sealed.append(content)
                    content = make_content(file_key(shuffle, len(sealed)))
                assert failure == Status.FAILED_COPY
                assert await refused(seal(client, content)) == Status.FAILED_COPY
                assert await refused(open_file(client, content)) == Status.FAILED_COPY
                other = make_content(file_key(shuffle, epoch=1))
                assert await refused(open_file(client, other)) == Status.DISK_FAILED
                for content in sealed:
                    assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)
            assert not world.status()["directories"][0]["healthy"]

        run(story)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{world.worker.http}/healthz", timeout=60)
