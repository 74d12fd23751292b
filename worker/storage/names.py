"""The fixed names of a storage directory and the forms of the others, without our types: what a listing needs.

    identity                                     whose directory this is, written once
    starts                                       the incarnation counter, replaced at every start
    standing                                     what the worker knows of the masters, see worker_identity.py
    dfs                                          which DFS this worker has seen and used, see away_note.py
    lock                                         held by the process that uses the directory
    probe                                        what the check of the disk writes, reads back and removes
    index/data.mdb, index/lock.mdb               the LMDB environment
    data/<instance hex>/<shuffle>-<generation>-<state hex>/  one folder for each shuffle generation
        m-<map>-<attempt>-<epoch>.map            a sealed map file
        m-<map>-<attempt>-<epoch>.<incarnation>.<level>.open    one that is being written, or was left behind
        m-<map>-<attempt>-<epoch>.failed         a copy that is given up for good
        p-…, k-…                                 files of REDUCE partitions, see layout.py
        ….moving                                 a sealed file that is on its way here
    log/<incarnation>-<number>.push              a segment of the push log
    quarantine/<number>-<name>                   what was found damaged, for people to look at

Kept apart from layout.py, which has the typed half, so that the processes of check.py start quickly.
"""

from __future__ import annotations

import re

#: The format of a storage directory and of everything in it: the one place to raise it. A directory that has another
#: number is refused whole (identity.py).
FORMAT = 4
IDENTITY = "identity"
STARTS = "starts"
STANDING = "standing"
LOCK = "lock"
PROBE = "probe"
DFS = "dfs"
INDEX = "index"
INDEX_DATA = "index/data.mdb"
DATA = "data"
QUARANTINE = "quarantine"
LOG = "log"
#: Names that say nothing about whose a directory is: the lock, what a first start may leave that was killed at once,
#: and what file systems have at their root.
NOBODYS = frozenset({LOCK, "identity.new", "lost+found"})
#: What a worker writes into a directory that is emptied while it is in use, until it notices.
STRAYS = frozenset({PROBE} | {f"{name}{new}" for name in (STANDING, STARTS, DFS) for new in ("", ".new")})

SEALED_SUFFIX = ".map"
FAILED_SUFFIX = ".failed"
LOST_SUFFIX = ".lost"
OPEN_SUFFIX = ".open"
PART_SUFFIX = ".part"
PACK_SUFFIX = ".pack"
LOG_SUFFIX = ".push"
#: Behind the name of a sealed file that is on its way here from another directory; nothing hangs on it.
MOVING_SUFFIX = ".moving"
#: What a sealed file ends in.
SEALED_SUFFIXES = (SEALED_SUFFIX, PART_SUFFIX, PACK_SUFFIX)
_INSTANCE = re.compile(r"[0-9a-f]{32}")
_SHUFFLE = re.compile(r"(0|[1-9]\d{0,9})-(0|[1-9]\d{0,9})-([0-9a-f]{16})", re.ASCII)
_U32_MAX = 0xFFFF_FFFF


def parse_instance(name: str) -> bytes | None:
    """The instance that a folder below data/ stands for; None if it is no name of ours."""
    return bytes.fromhex(name) if _INSTANCE.fullmatch(name) else None


def parse_shuffle(name: str) -> tuple[int, int, int] | None:
    """Shuffle, generation and state that a folder of an instance stands for; None if it is no name of ours."""
    found = _SHUFFLE.fullmatch(name)
    if not found:
        return None
    shuffle, generation = int(found[1]), int(found[2])
    return (shuffle, generation, int(found[3], 16)) if max(shuffle, generation) <= _U32_MAX else None


def is_data_file(root: str, path: str) -> bool:
    """Whether a path below `root` is that of something in a shuffle's folder."""
    parts = path.removeprefix(f"{root.rstrip('/')}/").split("/")
    return len(parts) == 4 and parts[0] == DATA
