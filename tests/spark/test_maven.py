"""The plug-in from a Maven repository: mvn puts it there, and Spark fetches it as a package (docs/use/spark.md)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.spark.jar import jar
from holdfast.client.spark.settings import MANAGER
from holdfast.common.version import VERSION
from tests.spark.test_plugin import SUMS, job, pushed
from tests.support.jvm import the_spark
from tests.support.spark_conf import conf

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="needs mvn"),
]
GROUP = "org.holdfast"
DEPLOY_SECONDS = 600.0


def test_a_job_takes_the_plugin_from_a_repository(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deployed into a repository that is a folder, the plug-in reaches driver and executors with --packages alone: all
    of them load its classes from the package, and its bytes go through the workers."""
    spark = the_spark()
    artifact = f"holdfast-spark-{spark.line[0]}.{spark.line[1]}_{spark.scala}"
    if spark.line < (4, 0):
        pytest.skip("Spark 3.5 fetches packages too late")
    coordinate, repository = f"{GROUP}:{artifact}:{VERSION}", (tmp_path / "repository").as_uri()
    deploy(jar(), artifact, repository)
    before = pushed(cluster)
    settings = conf(cluster.endpoints, fallback="never", jar=coordinate)
    assert "spark.jars" not in settings
    logged = f"-Xlog:class+load:file={tmp_path}/loaded-%p.txt"
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), logged)
    settings |= {"spark.jars.ivy": str(tmp_path / "ivy")}
    words = f"--packages {coordinate} --repositories {repository} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    with job("sums", settings, tmp_path, "local-cluster[2,1,1024]") as running:
        assert running.step() == SUMS
        running.go()
        assert running.step() == "stopped"
    assert pushed(cluster) > before
    sources = [loaded_from(path) for path in tmp_path.glob("loaded-*.txt")]
    assert len([each for each in sources if each]) == 3, "of the driver and two executors"
    name = f"{GROUP}_{artifact}-{VERSION}.jar"
    assert all(source.endswith(f"/{name}") for each in sources for source in each), sources
    assert (tmp_path / "ivy" / "jars" / name).read_bytes() == jar().read_bytes()


def deploy(file: Path, artifact: str, repository: str) -> None:
    """Put a jar into a repository, as the documentation says."""
    words = {"url": repository, "repositoryId": "own", "file": str(file)}
    words |= {"groupId": GROUP, "artifactId": artifact, "version": VERSION}
    command = ["mvn", "-q", "-B", "deploy:deploy-file", *(f"-D{key}={value}" for key, value in words.items())]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEPLOY_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_from(log: Path) -> set[str]:
    """Where a JVM found the class of our manager, by its log of classes."""
    lines = [line for line in log.read_text().splitlines() if f" {MANAGER} source: " in line]
    return {line.partition(" source: ")[2] for line in lines}
