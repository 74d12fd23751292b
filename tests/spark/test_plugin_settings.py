"""What becomes of Spark's own settings of shuffles: they hold, or are refused or switched off with a sentence."""

import fnmatch
import re
import zipfile
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.spark.jar import installed_spark
from tests.spark.test_plugin import Job, job, pushed
from tests.support.spark_conf import conf
from tests.support.tree import ROOT

pytestmark = pytest.mark.timeout(900)
#: Of the job `noisy`: what it shuffles, and how much of it is noise.
ROWS_BYTES, NOISE_BYTES = 16_000_000, 2_000_000
#: Where Spark's settings of shuffles are.
_GROUPS = r"shuffle|io\.compression|dynamicAllocation\.shuffleTracking|storage\.decommission|executor\.decommission"
_SQL = r"spark\.sql\.adaptive\.localShuffleReader\.[A-Za-z0-9.]+|spark\.sql\.adaptive\.fetchShuffleBlocksInBatch"


def ended(running: Job) -> str:
    """The log of a job that ended at its start."""
    with pytest.raises(AssertionError) as reported:
        running.step()
    return str(reported.value)


@pytest.mark.long
def test_a25_the_level_of_zstd_holds(cluster: LocalCluster, tmp_path: Path) -> None:
    """spark.io.compression.zstd.level says how hard shuffles are compressed."""
    took = []
    for level in (1, 12):
        before = pushed(cluster)
        settings = {"spark.io.compression.codec": "zstd", "spark.io.compression.zstd.level": str(level)}
        with job("noisy", conf(cluster.endpoints, fallback="never") | settings, tmp_path) as running:
            assert running.step() == ROWS_BYTES
        took.append(pushed(cluster) - before - NOISE_BYTES)
    assert took[1] < 0.9 * took[0]


def test_a25_what_cannot_be_honoured_is_said(cluster: LocalCluster, tmp_path: Path) -> None:
    """A codec that Holdfast does not have ends Spark's start with a sentence that says what to set, and Spark's own
    pushing, which would look for map files, is switched off with one."""
    settings = conf(cluster.endpoints, fallback="never")
    for codec in ("snappy", "lzf"):
        with job("noisy", settings | {"spark.io.compression.codec": codec}, tmp_path) as running:
            said = ended(running)
        assert f"spark.io.compression.codec is {codec}, which Holdfast does not have: set spark.holdfast.codec" in said
    chosen = {"spark.io.compression.codec": "snappy", "spark.holdfast.codec": "lz4"}
    with job("noisy", settings | chosen | {"spark.shuffle.push.enabled": "true"}, tmp_path) as running:
        assert running.step() == ROWS_BYTES
        running.go()
        assert running.step()["spark.shuffle.push.enabled"] == "false"
        assert running.log().count("spark.shuffle.push.enabled is switched off") == 1


def test_a25_every_setting_of_spark_has_its_line() -> None:
    """docs/use/spark.md says of every setting of shuffles that the installed Spark has whether it holds."""
    table = (ROOT / "docs" / "use" / "spark.md").read_text().split("## Spark's own settings")[1].split("\n## ")[0]
    reported = re.findall(r"`(spark\.[A-Za-z0-9.*]+)`", table)
    spark = installed_spark()
    pattern = re.compile(rf"spark\.(?:{_GROUPS})\.[A-Za-z0-9.]+|{_SQL}".encode())
    found: set[str] = set()
    for name in ("spark-core_", "spark-network-common_", "spark-network-shuffle_", "spark-catalyst_"):
        for jar in spark.jars.glob(f"{name}*.jar"):
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    if entry.endswith(".class"):
                        found |= {each.decode().rstrip(".") for each in pattern.findall(archive.read(entry))}
    assert len(found) > 60
    assert [each for each in sorted(found) if not any(fnmatch.fnmatchcase(each, line) for line in reported)] == []
