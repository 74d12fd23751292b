"""Masters as people look after them: leadership handed over, one lost, all restored from a backup."""

import asyncio
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.net.control import ControlClient
from tests.cli.test_commands import document, run
from tests.cluster.masters import CALM, Driver, agree, worker
from tests.cluster.masters import run as run_story
from tests.cluster.shapes import Shape
from tests.support.waiting import wait_until

#: A state that is cut into snapshots soon, so that a backup has both of its parts.
SHARED = Shape(masters=3, workers=0, settings={**CALM, "raft": {"snapshot_entries": 20}})
SHUFFLES = 60


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters of one test, which writes into their directories."""
    with local_cluster(SHARED.masters, SHARED.workers, dir=tmp_path / "c", settings=SHARED.settings) as started:
        yield started


def leader_name(cluster: LocalCluster) -> str:
    """Who leads."""
    return cluster.leader().name


def directory_of(cluster: LocalCluster, name: str) -> Path:
    """A master's Raft directory."""
    return cluster.directory / name


def fill(cluster: LocalCluster) -> bytes:
    """Register an application with shuffles, one command each; return its instance."""
    made: list[bytes] = []

    async def story() -> None:
        async with ControlClient(cluster.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("w1"))
            driver = Driver(client)
            await driver.register()
            for number in range(SHUFFLES):
                await driver.shuffle(number)
            made.append(driver.instance)

    run_story(story())
    return made[0]


def test_leadership_goes_to_whom_it_is_given(shared: LocalCluster) -> None:
    """`handover` ends when the master that was named leads; away from one that does not lead it changes nothing, away
    from one that does anybody else leads; a name that no master has is refused with the names.

    On a busy machine leadership may move by itself at any moment, so no more is asked of who led before."""
    before = leader_name(shared)
    to = next(each.name for each in shared.masters if each.name != before)
    reported = document(run("handover", "--to", to, "--json", masters=shared.endpoints))
    assert reported["leader"] == to
    assert reported["changed"] is (reported["before"] != to)
    again = document(run("handover", "--to", to, "--away-from", before, "--json", masters=shared.endpoints))
    assert again["leader"] != before
    anyone = document(run("handover", "--away-from", to, "--json", masters=shared.endpoints))
    assert anyone["leader"] != to
    refused = document(run("handover", "--to", "m9", "--json", masters=shared.endpoints), 1)
    assert "there is no master m9; the masters are m1, m2, m3" in refused["error"]


def test_leadership_moves_under_commands(shared: LocalCluster) -> None:
    """While eight clients command, leadership goes round three times, and no client gets an error: commands that
    wait for the change are repeated."""

    async def story() -> None:
        done = asyncio.Event()
        async with ControlClient(shared.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("w1"))

        async def command() -> int:
            async with ControlClient(shared.endpoints) as client:
                driver, number = Driver(client), 0
                await driver.register()
                while not done.is_set():
                    await driver.shuffle(number)
                    number += 1
                return number

        clients = [asyncio.create_task(command()) for _ in range(8)]
        try:
            for _ in range(3):
                leader = await asyncio.to_thread(leader_name, shared)
                words = ("handover", "--away-from", leader, "--json")
                reported = document(await asyncio.to_thread(run, *words, masters=shared.endpoints))
                assert reported["leader"] != leader
        finally:
            done.set()
        assert all(count > 0 for count in await asyncio.gather(*clients))
        async with ControlClient(shared.endpoints) as client:
            await agree(client)

    run_story(story())


def test_all_masters_from_one_backup(trio: LocalCluster, tmp_path: Path) -> None:
    """What was there when a running master was backed up is there after all masters were lost and restored from it,
    equal on all of them; neither backup nor restore replaces anything."""
    fill(trio)
    name = leader_name(trio)
    config = next(each.config for each in trio.masters if each.name == name)
    file = tmp_path / "masters.backup"
    made = document(run("backup", file, "--config", config, "--json"))
    assert (made["master"], made["file"]) == (name, str(file))
    assert made["index"] > SHUFFLES
    assert file.stat().st_mode & 0o777 == 0o600
    assert "replaces nothing" in document(run("backup", file, "--config", config, "--json"), 2)["error"]
    for each in trio.masters:
        each.kill()
    assert "is not empty" in document(run("restore", file, "--config", config, "--json"), 2)["error"]
    for each in trio.masters:
        shutil.rmtree(directory_of(trio, each.name))
        assert document(run("restore", file, "--config", each.config, "--json"))["index"] == made["index"]
        each.start()
    listed = document(run("shuffles", "--json", masters=trio.endpoints))
    assert listed["total"] == SHUFFLES
    fill(trio)
    assert document(run("shuffles", "--json", masters=trio.endpoints))["total"] == 2 * SHUFFLES

    async def story() -> None:
        async with ControlClient(trio.endpoints) as client:
            await agree(client)

    run_story(story())


def test_one_master_that_lost_its_disk(trio: LocalCluster) -> None:
    """Started with an empty directory, under its name and address, it catches up from the others; nothing else is
    done."""
    fill(trio)
    lost = trio.leader()
    lost.kill()
    shutil.rmtree(directory_of(trio, lost.name))
    lost.start()

    async def story() -> None:
        async with ControlClient(trio.endpoints) as client:
            await agree(client)

    run_story(story())
    assert document(run("shuffles", "--json", masters=trio.endpoints))["total"] == SHUFFLES


def test_a_master_is_ready_when_it_has_caught_up(trio: LocalCluster) -> None:
    """One that started before the others lives, and is not ready; with them it is."""
    fill(trio)
    for each in trio.masters:
        each.kill()
    first, *others = trio.masters
    first.start()
    assert get(first.address, "/healthz") == (200, "ok\n")
    code, text = get(first.address, "/readyz")
    assert (code, "restart no other master" in text) == (503, True)
    for each in others:
        each.start()
    ready = (200, "ok\n")
    assert wait_until(lambda: {get(each.address, "/readyz") for each in trio.masters} == {ready}, "all have caught up")


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of what a master says."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_backup_that_is_not_one(trio: LocalCluster, tmp_path: Path) -> None:
    """Another file, a backup of another cluster and one that was cut or changed are refused, and nothing is left where
    a master would start from it."""
    config = trio.masters[0].config
    trio.masters[0].kill()
    good = tmp_path / "good"
    document(run("backup", good, "--config", config, "--json"))
    shutil.rmtree(directory_of(trio, "m1"))
    cut, changed, other = tmp_path / "cut", tmp_path / "changed", tmp_path / "other"
    cut.write_bytes(good.read_bytes()[:5000])
    other.write_text("not an archive")
    spoilt = bytearray(good.read_bytes())
    spoilt[len(spoilt) // 2] ^= 0xFF
    changed.write_bytes(spoilt)
    for file in (cut, changed, other, tmp_path / "missing"):
        done = run("restore", file, "--config", config)
        assert done.returncode in (1, 2), file
        assert "Traceback" not in done.stderr
        assert not directory_of(trio, "m1").exists() or not any(directory_of(trio, "m1").iterdir())
    own = tmp_path / "m1.toml"
    own.write_text(Path(config).read_text("utf-8").replace('id = "', 'id = "other-'), "utf-8")
    assert "is of cluster" in run("restore", good, "--config", own).stderr
