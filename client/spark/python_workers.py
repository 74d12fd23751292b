"""Whether Spark's Python workers on this machine can run our tasks: asked before a job, not found out inside one.

Only where the workers are here, on a classic session with a local master; elsewhere the driver cannot check.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.common.errors import ConfigError

_NEEDED = ("holdfast.client", "numpy", "pyarrow")
_LOOK = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {_NEEDED!r})))"


def check_python_workers(spark: SparkSession) -> None:
    """Raise ConfigError if the interpreter that Spark will start cannot import what our tasks need."""
    try:
        context = spark.sparkContext
    except (PySparkException, AttributeError):
        return  # Spark Connect
    python = context.pythonExec
    here = (context.master or "").startswith("local")
    if not here or shutil.which(python) == sys.executable or _can_import(python):
        return
    raise ConfigError(
        f'Spark would run its Python workers with "{python}", which cannot import {", ".join(_NEEDED)}: set '
        f"PYSPARK_PYTHON={sys.executable} before the session is made"
    )


@functools.lru_cache(maxsize=16)
def _can_import(python: str) -> bool:
    try:
        return not subprocess.run([python, "-c", _LOOK], capture_output=True, timeout=60, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return True  # Spark's own error is better
