"""What of Spark the plug-in was seen to serve, by release of Spark and Java: `pytest --record-features`.

Tests of a feature have the mark `feature(NAME)`, with a name of FEATURES. A run records the features of which all tests
passed that it ran, at least one, and forgets those of which one failed. tests/docs/features.py makes the table of
docs/use/spark.md from these records.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from holdfast.client.spark.jar import installed_spark
from tests.support.jvm import tool
from tests.support.tree import ROOT

#: By name, in the order of the table.
FEATURES = (
    "DataFrames, SQL, RDDs",
    "TLS and tokens",
    "Kryo",
    "off-heap memory",
    "I/O encryption",
    "AQE: skew joins, local readers",
    "speculation",
    "barrier stages",
    "Structured Streaming with state",
    "Spark Connect server",
    "`spark.shuffle.push.enabled` switched off",
    "shuffle service for fallback",
)
RECORDS = ROOT / "tests" / "spark" / "features.json"
_JAVA = re.compile(r'version "((\d+)[^"]*)"')

#: One for each line of Spark and each Java: {"spark": "4.1.2", "java": "17.0.15", "features": [NAME, …]}
Record = dict[str, Any]


def records() -> list[Record]:
    """All records, ordered by line of Spark and Java."""
    return json.loads(RECORDS.read_text("utf-8")) if RECORDS.exists() else []


def line_of(record: Record) -> tuple[int, ...]:
    """Which record this is: the line of Spark, and which Java."""
    spark, java = (each.split(".") for each in (record["spark"], record["java"]))
    return int(spark[0]), int(spark[1]), int(java[0])


def merged(before: list[Record], spark: str, java: str, outcomes: dict[str, bool]) -> list[Record]:
    """The records after a run: what was seen with other releases of this line and Java is forgotten."""
    record: Record = {"spark": spark, "java": java, "features": []}
    others = [each for each in before if line_of(each) != line_of(record)]
    same = [each for each in before if (each["spark"], each["java"]) == (spark, java)]
    had = same[0]["features"] if same else []
    record["features"] = [each for each in FEATURES if outcomes.get(each, each in had)]
    return sorted([*others, record], key=line_of)


class Recorder:
    """Writes down which features passed; one for a run, registered as a plug-in of pytest."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._outcomes: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Learn which tests are of which features."""
        self._names = {item.nodeid: named(item) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note: a part of a test that fails counts, and a call that passes."""
        if report.failed or (report.when == "call" and report.passed):
            for name in self._names[report.nodeid]:
                self._outcomes[name] = self._outcomes.get(name, True) and report.passed

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        if self._outcomes:
            now = merged(records(), installed_spark().version, java_version(), self._outcomes)
            RECORDS.write_text(json.dumps(now, indent=1) + "\n", "utf-8")


def named(item: pytest.Item) -> list[str]:
    """The features of a test. A name that is not in FEATURES ends the run."""
    names = [mark.args[0] for mark in item.iter_markers("feature")]
    if unknown := set(names) - {*FEATURES}:
        raise pytest.UsageError(f"{item.nodeid}: {unknown} is not in FEATURES of tests/support/features.py")
    return names


def java_version() -> str:
    """Of the Java that runs Spark."""
    done = subprocess.run([tool("java"), "-version"], check=True, capture_output=True, text=True, timeout=60)
    found = _JAVA.search(done.stderr)
    assert found, done.stderr
    return found[1]
