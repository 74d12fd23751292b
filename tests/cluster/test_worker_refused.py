"""Workers that the masters refuse for good: whoever has nothing to serve ends and says why, whoever has serves on."""

import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from holdfast.client.cluster.local import LocalCluster, local_cluster
from tests.support.map_data import file_key, make_content, read_files, write_file
from tests.support.waiting import wait_until_async
from tests.support.worker_world import World, run

SECONDS_MAX = 60


def impostor(cluster: LocalCluster, tmp_path: Path, cluster_id: str = "") -> Path:
    """The configuration of a worker with an empty directory and the name of the first one, or of another cluster."""
    text = cluster.workers[0].config.read_text("utf-8")
    text = text.replace(str(cluster.directory / "w1"), str(tmp_path / "empty"))
    for port in (cluster.workers[0].address, cluster.workers[0].http):
        text = text.replace(f"port = {port.rpartition(':')[2]}", "port = 0")
    if cluster_id:
        text = text.replace((cluster.directory / "cluster").read_text(), cluster_id).replace('"w1"', '"w2"')
    path = tmp_path / "impostor.toml"
    path.write_text(text)
    return path


def start(config: Path) -> subprocess.Popen[str]:
    """A worker of this configuration."""
    command = [sys.executable, "-P", "-m", "holdfast.worker", "--config", str(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_new_worker_that_is_refused_for_good_ends_and_says_why(tmp_path: Path) -> None:
    """A worker with empty directories and a taken name, or of another cluster, ends with status 2 and one sentence."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        for cluster_id, expected in (
            ("", 'holdfast worker: the masters refuse this worker: the name "w1" belongs to worker 1 with another uid'),
            ("elsewhere", "holdfast worker: the masters refuse this worker: the masters are of cluster 'local-"),
        ):
            with start(impostor(cluster, tmp_path, cluster_id)) as process:
                errors = process.communicate(timeout=SECONDS_MAX)[1]
            assert process.returncode == 2, errors
            assert expected in errors
            assert "Traceback" not in errors
            shutil.rmtree(tmp_path / "empty")
        assert cluster.workers[0].running


def test_a_worker_with_data_that_is_refused_serves_it(tmp_path: Path) -> None:
    """Masters that lost their state gave its name away: its data is read all the same, and its status says why; the log
    does not repeat it with every try."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        world = World(cluster)

        async def story() -> None:
            content = make_content(file_key(await world.new_shuffle()))
            async with world.client() as client:
                await write_file(client, content)
            master = cluster.masters[0]
            world.worker.kill()
            master.kill()
            shutil.rmtree(cluster.directory / master.name)
            master.start()
            with start(impostor(cluster, tmp_path)) as other:
                assert other.stderr is not None
                assert any("registered" in line for line in other.stderr)
                other.terminate()
                other.communicate(timeout=SECONDS_MAX)
            world.worker.start()
            await wait_until_async(lambda: bool(world.status()["problems"]), "the worker to be refused")
            before = tries(cluster)
            await wait_until_async(lambda: tries(cluster) >= before + 3, "more tries")
            assert world.worker.log.read_text("utf-8").count("belongs to worker") == 1
            assert 'the name "w1" belongs to worker 1' in "".join(world.status()["problems"])
            async with world.client() as client:
                assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)
            assert world.worker.running

        run(story)


def tries(cluster: LocalCluster) -> int:
    """How many registrations the master has answered."""
    with urllib.request.urlopen(f"http://{cluster.masters[0].http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if "RegisterWorker" in line and "_total" in line)
