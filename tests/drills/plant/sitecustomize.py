"""Plants a mistake in servers before they run: Python imports this at its start where PLANT_PATH is on its path.

Only processes that become a master or a worker get it; the name is that of a function of tests/drills/mistakes.py.
"""

import importlib.util
import os
import sys
from pathlib import Path

ROLES = {"holdfast.master", "holdfast.worker"}

if (name := os.environ.get("HOLDFAST_TEST_MISTAKE")) and ROLES & set(sys.orig_argv):
    path = Path(__file__).parents[1] / "mistakes.py"
    spec = importlib.util.spec_from_file_location("mistakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    role = (ROLES & set(sys.orig_argv)).pop().removeprefix("holdfast.")
    getattr(module, name)(role)
