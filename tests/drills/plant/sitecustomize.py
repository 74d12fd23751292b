"""Plants a mistake in servers before they run: Python imports this at its start where PLANT_PATH is on its path.

Only processes that become a master or a worker get it, and the client of tests/consistency; the name is that of a
function of tests/drills/mistakes.py.
"""

import importlib.util
import os
import sys
from pathlib import Path

ROLES = {"holdfast.master": "master", "holdfast.worker": "worker", "tests.consistency.client": "client"}

if (name := os.environ.get("HOLDFAST_TEST_MISTAKE")) and (mine := ROLES.keys() & set(sys.orig_argv)):
    path = Path(__file__).parents[1] / "mistakes.py"
    spec = importlib.util.spec_from_file_location("mistakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, name)(ROLES[mine.pop()])
