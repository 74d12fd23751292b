"""Jobs on YARN: executors and drivers in containers of real daemons, while hosts, executors, drivers and leaders die.

`tox -e yarn` brings the daemons' jars and names their folder; without it there is nothing to run on.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from tests.support.spark_conf import conf
from tests.support.submitted import SPARK, Running, drill_on, own_answers, submitted
from tests.support.yarn import HADOOP, Yarn, yarn

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get(HADOOP), reason=f"needs YARN's jars in the folder {HADOOP}: run `tox -e yarn`"
    ),
]
#: Spark's jars are on every host.
PLACED = {"spark.yarn.jars": f"local:{SPARK}/jars/*"}
_SECONDS = 900.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """A YARN of two hosts."""
    with yarn(tmp_path_factory.mktemp("yarn"), Path(os.environ[HADOOP])) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers, with TLS and tokens."""
    with local_cluster(3, 2, dir=tmp_path_factory.mktemp("holdfast") / "cluster", secure=True) as started:
        yield started


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, cluster: LocalCluster) -> Path:
    """An archive for spark.yarn.archive: Spark's jars and the plug-in's."""
    archive = tmp_path_factory.mktemp("archive") / "libraries.zip"
    plug_in = Path(settings(cluster)["spark.jars"])
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as written:
        for each in [*(SPARK / "jars").glob("*.jar"), plug_in]:
            written.write(each, each.name)
    return archive


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This Python's environment as an archive, without Spark, which brings its own part of it."""
    archive = tmp_path_factory.mktemp("environment") / "env.tar.gz"
    command = [
        sys.executable,
        "-m",
        "venv_pack",
        "--prefix",
        sys.prefix,
        "--output",
        str(archive),
        "--compress-level",
        "1",
    ]
    subprocess.run([*command, "--exclude", "*/pyspark/*"], check=True, timeout=_SECONDS)
    return archive


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the job's queries give with Spark's own shuffle."""
    return own_answers(tmp_path_factory.mktemp("own"))


def settings(cluster: LocalCluster) -> dict[str, str]:
    """What a user of the secured cluster sets; the driver's files come with --files."""
    security = cluster.directory / "security"
    return conf(
        cluster.endpoints, fallback="never", replication=2, ca=security / "ca.pem", token_file=security / "admin.token"
    )


def pushed(cluster: LocalCluster) -> int:
    """Bytes that the workers took."""
    status = [worker_status(worker.http, 5.0, cluster.credentials) for worker in cluster.workers]
    return sum(each["counters"]["push_bytes"] for each in status)


@contextmanager
def job(
    hosts: Yarn, directory: Path, given: dict[str, str], *words: str, arguments: tuple[str, ...] = ()
) -> Iterator[Running]:
    """Submit the job to YARN; it ends with the block."""
    every = {
        "spark.executor.instances": "2",
        "spark.executor.memory": "768m",
        "spark.yarn.stagingDir": (directory / "staging").as_uri(),
        "spark.yarn.maxAppAttempts": "3",
        "spark.executor.maxNumFailures": "100",
    }
    environ = {"HADOOP_CONF_DIR": str(hosts.settings)}
    with submitted(
        directory, every | given, "--master", "yarn", *words, environ=environ, arguments=arguments
    ) as running:
        try:
            yield running
        finally:
            hosts.kill_applications()


def test_client_mode_with_the_jar_from_an_archive(
    hosts: Yarn, cluster: LocalCluster, libraries: Path, own: list[Any], tmp_path: Path
) -> None:
    """The plug-in's jar comes with spark.yarn.archive; rows are Spark's own, and the bytes went through the workers."""
    before, given = pushed(cluster), settings(cluster)
    plug_in = given.pop("spark.jars")
    given["spark.yarn.archive"] = libraries.as_uri()
    with job(hosts, tmp_path, given, "--driver-class-path", plug_in) as running:
        assert running.wait_for(0)["answers"] == own
        running.end()
    assert pushed(cluster) > before


@contextmanager
def in_the_cluster(hosts: Yarn, cluster: LocalCluster, directory: Path) -> Iterator[Running]:
    """Submit in cluster mode: the driver finds the CA and the token beside it, as `--files` puts them there."""
    security = cluster.directory / "security"
    asked = conf(
        cluster.endpoints, fallback="never", replication=2, ca="ca.pem", token_file="admin.token", deploy_mode="cluster"
    )
    files = f"{security / 'ca.pem'},{security / 'admin.token'}"
    with job(hosts, directory, asked | PLACED, "--deploy-mode", "cluster", "--files", files) as running:
        yield running


def test_cluster_mode_while_an_executor_a_driver_and_a_leader_are_killed(
    hosts: Yarn, cluster: LocalCluster, own: list[Any], tmp_path: Path
) -> None:
    """With the jar of spark.jars, and tokens beside the driver: rows are Spark's own through the death of an executor,
    of the leading master, of a worker and of the driver, whose next attempt does all again; no token is in any log."""
    before = pushed(cluster)
    with in_the_cluster(hosts, cluster, tmp_path) as running:
        driver = running.wait_for(0)["container"]
        executors = [each for each in hosts.containers() if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]
        assert running.after(executors[0].kill)["answers"] == own
        for server in (cluster.leader(), cluster.workers[0]):
            assert running.after(server.kill)["answers"] == own
            server.start()
        (driving,) = [each for each in hosts.containers() if "ApplicationMaster" in " ".join(each.cmdline())]
        driving.kill()

        def again() -> Any:
            return next((each for each in running.passes() if each["container"] != driver), None)

        running.wait_until(again, "a pass of the next driver")
        assert all(each["answers"] == own for each in running.passes())
        running.end()
    assert pushed(cluster) > before
    token = (cluster.directory / "security" / "admin.token").read_text().strip()
    assert all(token not in path.read_text(errors="replace") for path in hosts.logs())


def test_hosts_that_are_killed_and_decommissioned(
    hosts: Yarn, cluster: LocalCluster, own: list[Any], tmp_path: Path
) -> None:
    """Rows are Spark's own, and no map runs again, when a host dies with its executors, and when another is excluded
    and its executors end: finished maps are with the workers. The driver is on this machine."""
    first, second = hosts.names
    with job(hosts, tmp_path, settings(cluster) | PLACED) as running:
        running.wait_for(0)
        assert running.after(lambda: hosts.kill_host(first))["answers"] == own
        hosts.start_node(first)
        hosts.wait_until_running({first, second})
        assert running.after(lambda: hosts.exclude(second))["answers"] == own
        running.end()
        assert "FetchFailed" not in running.said()
    hosts.exclude()
    hosts.start_node(second)
    hosts.wait_until_running({first, second})


def test_jar_free_with_an_environment_from_an_archive(
    hosts: Yarn, cluster: LocalCluster, own: list[Any], environment: Path, tmp_path: Path
) -> None:
    """The function `shuffle` runs in cluster mode, its Python from an archive; no plug-in is there. The rows are those
    that were sent."""
    before = pushed(cluster)
    security = cluster.directory / "security"
    python = {"HOLDFAST_CA": "ca.pem", "HOLDFAST_TOKEN_FILE": "admin.token", "PYSPARK_PYTHON": "./env/bin/python"}
    given = PLACED | {f"spark.yarn.appMasterEnv.{name}": value for name, value in python.items()}
    given["spark.executorEnv.PYSPARK_PYTHON"] = "./env/bin/python"
    files = f"{security / 'ca.pem'},{security / 'admin.token'}"
    words = ("--deploy-mode", "cluster", "--files", files, "--archives", f"{environment}#env")
    with job(hosts, tmp_path, given, *words, arguments=(cluster.endpoints,)) as running:
        *others, sent = running.wait_for(0)["answers"]
        running.end()
    assert others == own
    texts = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(200_000))
    assert sent == [200_000, sum(range(200_000)), sum(zlib.crc32(text.encode()) for text in texts)]
    assert pushed(cluster) > before


@pytest.mark.parametrize("killed", ["leader", "worker", "executors"])
def test_the_drill_with_executors_on_yarn(hosts: Yarn, tmp_path: Path, killed: str) -> None:
    """`holdfast drill spark --spark-master yarn`: equal answers, no map again, no fetch that fails."""
    given = PLACED | {
        "spark.executor.instances": "2",
        "spark.executor.memory": "1g",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.executor.maxNumFailures": "100",
    }
    drill_on("yarn", tmp_path, killed, given, {"HADOOP_CONF_DIR": str(hosts.settings)})
