"""Spark's Python workers are looked at before a job (client/spark/python_workers.py)."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.client.spark.python_workers import check_python_workers, check_task_error
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


def test_a_job_whose_executors_lack_holdfast_says_what_to_install() -> None:
    """The trace of a task on another machine becomes the sentence; every other error stays as it is."""
    trace = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "pyspark/serializers.py", line 458, in loads\n'
        "ModuleNotFoundError: No module named 'holdfast'\n"
    )
    with pytest.raises(ConfigError, match=r"cannot import holdfast: install .* PYSPARK_PYTHON"):
        check_task_error(RuntimeError(trace))
    check_task_error(RuntimeError("ModuleNotFoundError: No module named 'holdfast_of_mine'"))
    check_task_error(KeyboardInterrupt())
