"""TPC-H tables, queries and answers from DuckDB's extension, made once and kept.

Usage: python -m benchmarks.tpch SCALE DIRECTORY
Leaves DIRECTORY/tables/NAME.parquet, queries/qNN.sql, answers/qNN.parquet. The extension comes as a Python package, so
nothing is downloaded at run time. A directory is either whole or not there.
"""

import shutil
import sys
from pathlib import Path


def make(scale: float, directory: Path) -> Path:
    """Make the data unless it is there; return `directory`. Needs about 1 GiB of memory per unit of scale."""
    if directory.exists():
        return directory
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for folder in ("tables", "queries", "answers"):
        (unfinished / folder).mkdir(parents=True)
    _generate(scale, unfinished)
    unfinished.rename(directory)
    return directory


def _generate(scale: float, out: Path) -> None:
    import duckdb
    import duckdb_extension_tpch

    package = Path(duckdb_extension_tpch.__file__).parent
    extension = next(package.rglob("*.duckdb_extension"))
    # The package's file is not signed for this build of DuckDB; it comes from the same index as DuckDB itself.
    database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    database.execute(f"load '{extension}'")
    database.execute(f"call dbgen(sf={scale})")
    for (name,) in database.execute("show tables").fetchall():
        database.execute(f"copy {name} to '{out}/tables/{name}.parquet' (format parquet)")
    for number, text in database.execute("select query_nr, query from tpch_queries()").fetchall():
        query = text.rstrip().rstrip(";")
        (out / "queries" / f"q{number:02d}.sql").write_text(query + "\n", encoding="utf-8")
        database.execute(f"copy ({query}) to '{out}/answers/q{number:02d}.parquet' (format parquet)")
    database.close()


if __name__ == "__main__":
    print(make(float(sys.argv[1]), Path(sys.argv[2])))
