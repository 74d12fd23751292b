"""The 22 queries of TPC-H through the plug-in give the answers of DuckDB, and the workers count the bytes.

The scale of the long form is HOLDFAST_TPCH_SCALE, 1 unless it is set; 1 is six million line items.
"""

import math
import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster
from tests.spark.test_plugin import job, pushed
from tests.support.spark_conf import conf

pytest.importorskip("duckdb")
pytest.importorskip("duckdb_extension_tpch")
import pyarrow.parquet

from benchmarks import tpch

pytestmark = pytest.mark.timeout(3600)
QUERIES = 22
#: Sort-merge joins only, so that tables of every size are shuffled.
SHUFFLES = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "16"}


@pytest.mark.long
def test_answers_are_those_of_duckdb(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 22 queries over small tables."""
    _compare(cluster, tmp_path, monkeypatch, tpch.make(0.01, tmp_path / "tpch"))


@pytest.mark.long
@pytest.mark.parametrize("copies", [1, 2])
def test_answers_at_scale_are_those_of_duckdb(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """All 22 queries at scale 1, with one copy and with two."""
    scale = float(os.environ.get("HOLDFAST_TPCH_SCALE", "1"))
    _compare(cluster, tmp_path, monkeypatch, tpch.make(scale, tmp_path / "tpch"), copies)


def _compare(
    cluster: LocalCluster, directory: Path, monkeypatch: pytest.MonkeyPatch, data: Path, copies: int = 1
) -> None:
    monkeypatch.setenv("HOLDFAST_TPCH", str(data))
    settings = conf(cluster.endpoints, fallback="never", replication=copies) | SHUFFLES | {"spark.driver.memory": "2g"}
    before = pushed(cluster)
    with job("tpch", settings, directory, module="plugin_tpch_job") as running:
        for _ in range(QUERIES):
            query, rows = running.step()
            wrong = differences(rows, data / "answers" / f"{query}.parquet")
            assert not wrong, f"{query}: {wrong[:3]}"
            running.go()
        assert running.step() == "stopped"
    assert pushed(cluster) > before


def differences(rows: list[list[Any]], stored: Path) -> list[Any]:
    """Pairs of a row of Spark's and DuckDB's row at its place that are not equal."""
    expected = [list(row.values()) for row in pyarrow.parquet.read_table(stored).to_pylist()]
    assert len(rows) == len(expected), f"{len(rows)} rows, not {len(expected)}"
    pairs = zip(rows, expected, strict=True)
    return [(row, wanted) for row, wanted in pairs if not all(_same(*each) for each in zip(row, wanted, strict=True))]


def _same(cell: Any, wanted: Any) -> bool:
    """Equal cells; what DuckDB has as a double Spark computes as a decimal of six digits."""
    if isinstance(wanted, float):
        return math.isclose(float(cell), wanted, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(wanted, int | Decimal):
        return Decimal(cell) == wanted
    return bool(cell == (str(wanted) if isinstance(wanted, date) else wanted))
