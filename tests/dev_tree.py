"""Makes the tree of links through which the packages can be imported without installing them.

`python tests/dev_tree.py DIR` leaves DIR/holdfast/{common,master,worker,client}, each a link to the top-level folder.
Put DIR on PYTHONPATH to run the sources, or on MYPYPATH to type-check them under their real names (CONTRIBUTING.md).
tox works on installed wheels instead.
"""

import sys
from pathlib import Path

PARTS = ("common", "master", "worker", "client")
ROOT = Path(__file__).resolve().parent.parent


def make_tree(directory: Path) -> Path:
    """Make the links below `directory` (created if missing; links that are there stay) and return it."""
    package = directory / "holdfast"
    package.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        link = package / part
        if not link.is_symlink():
            link.symlink_to(ROOT / part, target_is_directory=True)
    return directory


if __name__ == "__main__":
    make_tree(Path(sys.argv[1]))
