"""Committed shuffles as Arrow without Spark: read by pandas and others, written from tables, exported to files."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from holdfast.client import Session, local_cluster
from holdfast.client.arrow.tables import shuffle_stream, shuffle_table, write_table
from holdfast.client.arrow.types import arrow_schema, not_in_spark, spark_schema
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.spark.header import Header, write_header
from holdfast.common.errors import ConfigError, ConflictError, DataLostError, RetryError

COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", "export"]
ROWS = 20_000
EVERYTHING = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "part": pa.array([index % 7 for index in range(ROWS)], pa.int32()),
        "name": pa.array([None if index % 11 == 0 else f"row {index}" for index in range(ROWS)]),
        "kind": pa.array([f"k{index % 3}" for index in range(ROWS)]).dictionary_encode(),
        "list": pa.array([[index, None] for index in range(ROWS)], pa.list_(pa.int32())),
        "pair": pa.array([{"a": index, "b": "x" * (index % 5)} for index in range(ROWS)]),
        "when": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
        "cost": pa.array(range(ROWS)).cast(pa.decimal128(22, 2)),
    }
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker that the tests of this file share."""
    with local_cluster(masters=1, workers=1, dir=tmp_path_factory.mktemp("arrow")) as started:
        yield started


@pytest.fixture
def session(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session with an application named after the test."""
    with Session(cluster.endpoints, app=request.node.name) as opened:
        yield opened


def plain(table: pa.Table) -> pa.Table:
    """As it is stored: dictionaries are resolved."""
    index = table.schema.get_field_index("kind")
    return table.set_column(index, "kind", table.column("kind").cast(pa.string()))


def export(cluster: LocalCluster, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `holdfast export` to its end."""
    environ = {**os.environ, "HOLDFAST_MASTERS": cluster.endpoints}
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=120)


def test_rows_come_back_as_they_were(session: Session):
    """What is written by its partition numbers is read back exactly: types, nulls, names, nested values, order."""
    number = write_table(session, EVERYTHING, 7, by="part")
    table = shuffle_table(session, number)
    assert table.schema.names == EVERYTHING.schema.names
    assert table.sort_by("id").equals(plain(EVERYTHING))
    for partition in (0, 6):
        some = shuffle_table(session, number, [partition])
        assert set(some.column("part").to_pylist()) == {partition}
        assert some.column("id").to_pylist() == sorted(some.column("id").to_pylist())


def test_rows_are_dealt_out_without_numbers(session: Session):
    """Without a column of numbers all partitions get about as many rows, and none is lost."""
    number = write_table(session, EVERYTHING, 5)
    counts = [shuffle_table(session, number, [partition]).num_rows for partition in range(5)]
    assert counts == [ROWS // 5] * 5


def test_pandas_and_duckdb_read_a_stream(session: Session):
    """The reader is an Arrow C stream: DuckDB and pandas take it as it is, and pandas' tables can be written."""
    frame = pd.DataFrame({"key": [1, 2, 3] * 1000, "value": [0.5] * 3000})
    number = write_table(session, pa.Table.from_pandas(frame, preserve_index=False), 4)
    sums = duckdb.from_arrow(shuffle_stream(session, number)).aggregate("key, sum(value)").order("key")
    assert sums.fetchall() == [(key, 500.0) for key in (1, 2, 3)]
    back = shuffle_stream(session, number).read_pandas().sort_values("key", kind="stable", ignore_index=True)
    assert back.equals(frame.sort_values("key", kind="stable", ignore_index=True))
    imported = pa.RecordBatchReader.from_stream(shuffle_stream(session, number))  # through the C interface alone
    assert imported.read_all().num_rows == 3000


def test_polars_reads_a_stream(session: Session):
    """Polars takes the stream, and what it exports can be written."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": ["a", "b"] * 500, "value": range(1000)})
    number = write_table(session, frame, 4)
    back = polars.DataFrame(shuffle_stream(session, number))
    assert back.sort("value").equals(frame)


def test_a_stream_holds_a_few_batches(session: Session):
    """While a shuffle of 64 MiB is read batch by batch, Arrow never holds a third of it."""
    payload = os.urandom(1 << 20)
    batches = (pa.record_batch({"b": [payload]}) for _ in range(64))
    reader = pa.RecordBatchReader.from_batches(pa.schema([("b", pa.binary())]), batches)
    number = write_table(session, reader, 3, compression="none")
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for batch in shuffle_stream(session, number):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 64
    assert most < 64 << 20 // 3


def test_a_shuffle_without_rows_has_its_columns(session: Session):
    """No row at all: a table of the right columns."""
    number = write_table(session, EVERYTHING.slice(0, 0), 3)
    assert shuffle_table(session, number).schema.equals(plain(EVERYTHING).schema)
    target = session.register_map_shuffle(2)
    reported = '{"type":"struct","fields":[{"name":"a b","type":"decimal(9,2)","nullable":true,"metadata":{}}]}'
    target.commit([write_header(target, 0, Header(reported, b"", 0, 0))])  # as Spark's side writes it
    empty = shuffle_table(session, target.key.shuffle)
    assert empty.schema == pa.schema([("a b", pa.decimal128(9, 2))])


def test_spark_and_arrow_agree_on_types():
    """What both have is said in Spark's words and read back; what Spark lacks has no form there."""
    schema = plain(EVERYTHING).schema
    assert arrow_schema(spark_schema(schema)).names == schema.names
    assert spark_schema(arrow_schema(spark_schema(schema))) == spark_schema(schema)
    assert spark_schema(pa.schema([("u", pa.uint64())])) == ""


def test_what_spark_lacks_is_named():
    """The columns that keep a table from Spark are told by name and type."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.uint8()), ("c", pa.list_(pa.timestamp("ns")))])
    assert not_in_spark(schema) == ["b (uint8)", "c (list<item: timestamp[ns]>)"]


def test_types_that_spark_lacks_are_read_all_the_same(session: Session):
    """Unsigned numbers have no form in Spark, and come back with their names."""
    number = write_table(session, pa.table({"u": pa.array([1, 2], pa.uint64())}), 1)
    assert shuffle_table(session, number).to_pydict() == {"u": [1, 2]}


def test_what_cannot_be_read_says_why(session: Session, cluster: LocalCluster):
    """Not committed, no such shuffle, no Arrow rows, pushed records, other arguments: a typed error with a sentence."""
    open_one = session.register_map_shuffle(2)
    with pytest.raises(RetryError, match="commit"):
        shuffle_table(session, open_one.key.shuffle)
    with open_one.writer(0, 1) as writer:
        status = writer.close([(0, b"a record of somebody else's")])
    open_one.commit([status])
    with pytest.raises(ConflictError, match=r"no Arrow rows.*MapShuffle\.reader"):
        shuffle_table(session, open_one.key.shuffle)
    pushed = session.register_reduce_shuffle(1, maps=0)
    pushed.commit([])
    with pytest.raises(ConflictError, match="REDUCE"):
        shuffle_table(session, pushed.key.shuffle)
    number = write_table(session, EVERYTHING, 7, by="part")
    with pytest.raises(ConfigError, match="0 to 6"):
        shuffle_table(session, number, [7])
    for data, by, sentence in (
        (EVERYTHING, "name", "integer column"),
        (EVERYTHING, "id", "0 to 6 and never null"),
        ({"a": [1]}, None, "not dict"),
        (EVERYTHING.select([]), None, "rows and no columns"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            write_table(session, data, 7, by=by)


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_export_writes_a_file_a_partition(form: str, session: Session, cluster: LocalCluster, tmp_path: Path):
    """Every row is in the file of its partition, as many files as partitions, and the last one says that all are."""
    table = EVERYTHING.select(["id", "part", "name"])
    number = write_table(session, table, 8, by="part")
    named = {"parquet": session.app, "arrow": session.instance.hex(), "csv": session.instance.hex()[:8]}[form]
    done = export(cluster, f"{named}/{number}", "--to", tmp_path / "out", "--format", form, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == ROWS
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_SUCCESS", *(f"part-{index:05}.{form}" for index in range(8))]
    read = {"parquet": pq.read_table, "csv": csv.read_csv, "arrow": lambda path: pa.ipc.open_file(path).read_all()}[
        form
    ]
    for partition in range(8):
        found = read(tmp_path / "out" / f"part-{partition:05}.{form}")
        assert found.column("id").to_pylist() == [index for index in range(ROWS) if index % 7 == partition]


def test_export_refuses_what_it_cannot_do(session: Session, cluster: LocalCluster, tmp_path: Path):
    """A directory with files, a shuffle that is not there, wrong words: a sentence, and nothing is written."""
    number = write_table(session, EVERYTHING, 2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "keep").write_text("mine")
    for words, status, sentence in (
        ([f"{session.app}/{number}", "--to", tmp_path / "full"], 2, "is not empty (it has keep)"),
        ([session.app, "--to", tmp_path / "a"], 2, "APP/SHUFFLE"),
        ([f"{session.app}/{number}", "--to", tmp_path / "b", "--partitions", "1-2"], 2, "below 2"),
        ([f"{session.app}/{number}", "--to", tmp_path / "c", "--format", "csv"], 2, "--format arrow"),
        ([f"{session.app}/999", "--to", tmp_path / "d"], 1, "999"),
        (["nobody/0", "--to", tmp_path / "e"], 1, "nobody"),
    ):
        done = export(cluster, *words)
        assert done.returncode == status, done.stderr
        assert sentence in done.stderr
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ["keep"]


def test_lost_data_is_an_error_by_name(cluster: LocalCluster, tmp_path: Path):
    """With the only worker's files gone neither a table nor an export is made, and the error names the partition."""
    with Session(cluster.endpoints, app="lost") as session:
        number = write_table(session, EVERYTHING, 2)
        for path in cluster.directory.glob(f"w1/data/{session.instance.hex()}/{number}-0-*/*.map"):
            path.unlink()
        with pytest.raises(DataLostError, match="partition"):
            shuffle_table(session, number, [1])
        done = export(cluster, f"lost/{number}", "--to", tmp_path / "out")
    assert done.returncode == 1
    assert not (tmp_path / "out").exists()
