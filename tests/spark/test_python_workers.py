"""Spark's Python workers are looked at before a job (client/spark/python_workers.py)."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.client.spark.python_workers import check_python_workers
from holdfast.common.errors import ConfigError


def session(python: str, master: str = "local[2]") -> Any:
    """What of a Spark session is looked at; a whole one would need a JVM for each interpreter."""
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python, master=master))


def test_an_interpreter_without_holdfast_is_named_with_the_remedy(tmp_path) -> None:
    """The sentence says what to set; nothing is found out by a trace from inside a task."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(ConfigError, match=f"PYSPARK_PYTHON={sys.executable}"):
        check_python_workers(session(str(bare)))


def test_what_can_import_holdfast_or_is_elsewhere_passes(tmp_path) -> None:
    """This interpreter, one of the same environment under another name, and workers on other machines."""
    same = tmp_path / "same"
    same.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    same.chmod(0o755)
    check_python_workers(session(sys.executable))
    check_python_workers(session(str(same)))
    check_python_workers(session("/no/such/python", "spark://host:7077"))
