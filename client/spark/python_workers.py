"""Whether Spark's Python workers can run our tasks: asked before a job, not found out inside one, where the workers are
on this machine, on a classic session with a local master. Elsewhere the driver cannot check, and a job's error is put
into the same words.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.common.errors import ConfigError

_NEEDED = ("holdfast.client", "numpy", "pyarrow")
#: At the end of a task's error; Spark's exceptions have it all in their text.
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(holdfast|numpy|pyarrow)\b")
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


def check_task_error(error: BaseException) -> None:
    """Raise ConfigError if tasks failed because the executors' Python cannot import what they need."""
    if found := _MISSING.search(str(error)):
        raise ConfigError(
            f"the Python of Spark's executors cannot import {found[1]}: install {', '.join(_NEEDED)} on every host, in"
            " the interpreter that PYSPARK_PYTHON names (spark.pyspark.python, if set, wins)"
        ) from error


@functools.lru_cache(maxsize=16)
def _can_import(python: str) -> bool:
    try:
        return not subprocess.run([python, "-c", _LOOK], capture_output=True, timeout=60, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return True  # Spark's own error is better
