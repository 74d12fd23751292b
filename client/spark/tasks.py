"""Spares Spark's Python workers work that they would repeat for every task.

Rules: caches only, so that nothing can depend on it. Before each task a Python worker invalidates importlib's caches.
Python 3.11 then reads the directory of pyspark.zip anew for every package that was imported from it, and a full garbage
collection walks everything that those imports made: together 0.17 s of CPU per task, more than most tasks have to do
themselves. Called by map_side.py and reduce_side.py.
"""

from __future__ import annotations

import gc
import sys
import zipimport
from collections.abc import Iterator
from contextlib import contextmanager

_frozen = False


@contextmanager
def lean_worker() -> Iterator[None]:
    """Around the work of a task: leave the worker so that its next task starts fast."""
    global _frozen  # noqa: PLW0603 - once per process
    if not _frozen:
        gc.freeze()  # what is imported stays: no collection has to look at it again
        _frozen = True
    try:
        yield
    finally:
        for path, importer in list(sys.path_importer_cache.items()):
            if isinstance(importer, zipimport.zipimporter):
                del sys.path_importer_cache[path]  # made again when needed, from the directory that zipimport keeps
