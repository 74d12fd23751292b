"""`holdfast apps` and `holdfast forget`: nobody's data goes by mistake."""

import asyncio
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.cli.test_commands import COMMAND, SECONDS_MAX, document, run

SHELL = "pyspark-shell"


@pytest.fixture
def cluster(tmp_path) -> Iterator[LocalCluster]:
    """One master is enough."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as started:
        yield started


def register(cluster: LocalCluster, name: str, user: str, spark_id: str = "") -> str:
    """Register an application with one shuffle; return its instance in hex."""

    async def call() -> str:
        async with ControlClient(cluster.endpoints) as client:
            instance = os.urandom(16)
            request = pb.RegisterApplicationRequest(
                instance=instance, name=name, user=user, holder=instance, spark_id=spark_id
            )
            await client.call("Shuffles/RegisterApplication", request)
            key = pb.ShuffleKey(instance=instance, shuffle=1)
            kind = pb.PARTITION_KIND_MAP
            shuffle = pb.RegisterShuffleRequest(key=key, kind=kind, partitions=2, maps=1, ack=1, holder=instance)
            await client.call("Shuffles/RegisterShuffle", shuffle)
            return instance.hex()

    return asyncio.run(call())


def alive(cluster: LocalCluster) -> set[str]:
    listed = document(run("apps", "--json", masters=cluster.endpoints))["applications"]
    return {each["instance"] for each in listed}


def test_a10_a_name_that_several_have_drops_nobody(cluster: LocalCluster, tmp_path: Path):
    """Two shells of two users and one of another name: `forget pyspark-shell` is refused, with --yes too, with the list
    of both: instance, user, id in Spark, age and size. Each is dropped by its instance, how that begins, or its id
    in Spark, and nothing else with it. `export` and `placement` take and refuse the same names."""
    mine, theirs = register(cluster, SHELL, "ann", "app-1"), register(cluster, SHELL, "bob", "app-2")
    other = register(cluster, "nightly", "ann")
    refused = run("forget", SHELL, "--yes", masters=cluster.endpoints)
    assert refused.returncode == 2
    assert f'2 applications are called "{SHELL}"' in refused.stderr
    for reported in (mine, theirs, "of ann, app-1 in Spark", "of bob, app-2 in Spark", " old, 1 shuffle, 0 B"):
        assert reported in refused.stderr
    assert other not in refused.stderr
    assert alive(cluster) == {mine, theirs, other}
    refused = run("export", f"{SHELL}/1", "--to", tmp_path / "out", masters=cluster.endpoints)
    assert (refused.returncode, "2 applications" in refused.stderr) == (2, True)
    assert document(run("placement", "app-2/1", "--json", masters=cluster.endpoints))["instance"] == theirs
    open_yet = run("export", "app-2/1", "--to", tmp_path / "out", masters=cluster.endpoints)
    assert (open_yet.returncode, "committed" in open_yet.stderr) == (1, True), open_yet.stderr
    assert document(run("forget", "app-2", "--yes", "--json", masters=cluster.endpoints))["applications"] == 1
    assert alive(cluster) == {mine, other}
    assert document(run("forget", other[:4], "--yes", "--json", masters=cluster.endpoints))["applications"] == 1
    assert alive(cluster) == {mine}


def test_shuffles_of_one_application_are_listed_by_its_id_in_spark(cluster: LocalCluster):
    """`shuffles --app-id` takes the id by which Spark's UI and YARN know an application, and lists no other's."""
    mine, _ = register(cluster, SHELL, "ann", "application_1_1"), register(cluster, SHELL, "bob", "application_1_2")
    listed = document(run("shuffles", "--app-id", "application_1_1", "--json", masters=cluster.endpoints))["shuffles"]
    assert [each["instance"] for each in listed] == [mine]


def test_a10_nothing_is_dropped_without_a_yes(cluster: LocalCluster):
    """Where nobody can be asked the command ends with a sentence, and with --dry-run with what it would do. A terminal
    is asked: no keeps the application, yes drops it."""
    instance = register(cluster, "nightly", "ann")
    refused = run("forget", "nightly", masters=cluster.endpoints)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert instance in refused.stderr
    would = document(run("forget", "nightly", "--dry-run", "--json", masters=cluster.endpoints))
    assert would["would_drop"]["instance"] == instance
    assert "would drop" in run("forget", f"{instance[:8]}/1", "--dry-run", masters=cluster.endpoints).stdout
    for nothing in ("nightly/7", "weekly"):
        for how in ("--dry-run", "--yes"):
            said = run("forget", nothing, how, masters=cluster.endpoints)
            assert (said.returncode, said.stdout) == (1, "")
            assert ("there is no shuffle nightly/7 of" if "/" in nothing else "no application is called") in said.stderr
    assert alive(cluster) == {instance}
    for answer, left in (("n", {instance}), ("y", set())):
        main, terminal = pty.openpty()
        command = [*COMMAND, "forget", "nightly", "--masters", cluster.endpoints]
        with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asked:
            os.write(main, f"{answer}\n".encode())
            _, reported = asked.communicate(timeout=SECONDS_MAX)
            assert b"this drops " in reported
            assert (b"nothing was done" in reported) == bool(left)
        os.close(main)
        os.close(terminal)
        assert alive(cluster) == left
