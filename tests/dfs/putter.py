"""Puts one file and says so: the child that tests kill. `python -m tests.dfs.putter CONFIG CLUSTER NAME FILE`."""

import sys
from pathlib import Path

from holdfast.common.config import config
from holdfast.common.dfs.store import DfsStore

if __name__ == "__main__":
    text, cluster, name, path = sys.argv[1:]
    store = DfsStore(config.parse(Path(text).read_text()).dfs, cluster)
    sys.stdout.write(f"stored {store.put(name, Path(path)).name}\n")
