"""Rows of SQL of every shape are turned into planes, and are the same behind a shuffle."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.formats.batch import MORE, Codec
from tests.spark.plugin_rows_job import REPEATED
from tests.spark.test_plugin import SUMS, job, pushed
from tests.support.changing import files_below
from tests.support.spark_conf import conf
from tests.support.tree import ROOT

pytestmark = pytest.mark.timeout(900)
ROWS = {
    **dict.fromkeys(("nulls", "texts", "decimals", "nested", "small", "fieldless"), 20_000),
    "columns": 2_000,
    "long": 60,
    "longest": 2,
    "few": 60,
    "none": 0,
    "empty": 6_667,
}
OTHERS = [
    pytest.param({"spark.io.compression.codec": "zstd"}, Codec.ZSTD_ROWS, id="zstd", marks=pytest.mark.long),
    pytest.param({"spark.io.encryption.enabled": "true"}, Codec.LZ4_ROWS, id="encrypted", marks=pytest.mark.long),
    pytest.param({"spark.holdfast.push.buffer": "4k"}, Codec.LZ4_ROWS, id="small batches", marks=pytest.mark.long),
    pytest.param({"spark.holdfast.codec.rowPlanes": "false"}, Codec.LZ4, id="off", marks=pytest.mark.long),
]


def codecs(cluster: LocalCluster) -> Counter[Codec]:
    """How many batches of each codec lie in the workers' files."""
    found: Counter[Codec] = Counter()
    for path in files_below(cluster.directory):
        if path.suffix != ".mdb":
            for flags in re.findall(rb"HB\x01([\x00-\x7f])", path.read_bytes()):
                codec = flags[0] >> 4
                if codec in Codec.__members__.values():
                    found[Codec(codec)] += not flags[0] & MORE
    return found


@pytest.mark.parametrize(("settings", "used"), [pytest.param({}, Codec.LZ4_ROWS, id="usual"), *OTHERS])
def test_rows_of_every_shape_come_back(tmp_path: Path, settings: dict[str, str], used: Codec) -> None:
    """Nulls, texts, decimals of any width, structs, rows without a field, longer than a batch, and too few for planes:
    the same rows come out, and most batches that lie on the worker are of the codec that was asked for."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        wanted = conf(cluster.endpoints, fallback="never") | settings
        with job("rows", wanted, tmp_path, module="plugin_rows_job") as running:
            found = [running.step()]
            ((most, _),) = codecs(cluster).most_common(1)
            assert most is used
            for _ in range(len(ROWS) - 1):
                running.go()
                found.append(running.step())
        assert {name: count for name, count, _ in found} == ROWS
        assert [name for name, _, equal in found if not equal] == []


def test_planes_take_fewer_bytes(cluster: LocalCluster, tmp_path: Path) -> None:
    """A group-by and a join of numbers push less than two thirds of the bytes that they push without planes."""
    took = []
    for planes in ("true", "false"):
        before = pushed(cluster)
        settings = conf(cluster.endpoints, fallback="never") | {"spark.holdfast.codec.rowPlanes": planes}
        with job("sums", settings, tmp_path) as running:
            assert running.step() == SUMS
            took.append(pushed(cluster) - before)
    assert took[0] < 0.67 * took[1]


def test_planes_are_left_out_where_they_are_longer(tmp_path: Path) -> None:
    """A few rows again and again, which repeat each other as they are and not as planes, take a tenth of them."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        settings = conf(cluster.endpoints, fallback="never")
        with job("repeated", settings, tmp_path, module="plugin_rows_job") as running:
            assert running.step() == REPEATED
            assert pushed(cluster) < 0.1 * 64 * REPEATED


@pytest.mark.long
def test_fewer_bytes_than_sparks_own() -> None:
    """benchmarks.bytes counts what a query pushes, and what Spark's own shuffle writes: less than 0.55 of that."""
    rows = "SELECT /*+ REPARTITION(8, id) */ id, id % 1000 AS key, id * 7 AS n FROM range(300000)"
    command = [sys.executable, "-m", "benchmarks.bytes", "--sql", f"SELECT sum(key), sum(n) FROM ({rows})"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, cwd=ROOT)
    one, whole = map(json.loads, done.stdout.splitlines())
    assert one["spark_bytes"] == whole["spark_bytes"] > 1_000_000
    assert 0 < whole["ratio"] < 0.55
