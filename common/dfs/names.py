"""Names of things in a DFS store: what belongs to which cluster, shuffle and worker. Pure.

    <cluster id>/holdfast-store                      the marker: this is the store of that cluster; its id is in it
    <cluster id>/holdfast-store.<store id>           an id of the store, one of each worker that made it at once
    <cluster id>/<instance hex>/<shuffle>-<generation>-<state hex>/<worker uid hex>/<file name>.<token>

The token is drawn for each attempt to store a file, so no name is ever used twice: a request that was abandoned and
arrives late (an upload that ends, a removal) can hurt nothing that came after it. A name that ends in .tmp is a file
that is being written. So everything of a dead application is below one folder, whichever worker wrote it; the leader
removes it there. Two clusters share a store by having different ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.common.errors import ConfigError
from holdfast.common.ids import INSTANCE_BYTES, UID_BYTES, Generation, Instance, ShuffleId, ShuffleKey, StateId
from holdfast.common.limits import U32_MAX

MARKER = "holdfast-store"
TEMPORARY_SUFFIX = ".tmp"
#: Hex digits of a token: one name in 2^32 is drawn twice for the same file of the same worker.
TOKEN_DIGITS = 8
STORE_ID_BYTES = 16
#: Of a marker that is read: more than any has.
MARKER_BYTES_MAX = 1_024

_CLUSTER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_INSTANCE = re.compile(rf"[0-9a-f]{{{2 * INSTANCE_BYTES}}}")
_SHUFFLE = re.compile(r"(0|[1-9]\d{0,9})-(0|[1-9]\d{0,9})-([0-9a-f]{16})", re.ASCII)
_UID = re.compile(rf"[0-9a-f]{{{2 * UID_BYTES}}}")
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
_STORE = re.compile(rb"^Store ([0-9a-f]{%d})$" % (2 * STORE_ID_BYTES), re.MULTILINE)
_STORED = re.compile(rf"({_FILE.pattern})\.([0-9a-f]{{{TOKEN_DIGITS}}})")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A parsed name of a stored file. `file` is the name that the worker gave it, without the token."""

    cluster: str
    shuffle: ShuffleKey
    worker: bytes
    file: str
    token: str


def cluster_folder(cluster: str) -> str:
    """The folder of a cluster. Raises ConfigError for an id that cannot be one."""
    if not _CLUSTER.fullmatch(cluster):
        raise ConfigError(
            f"[cluster] id {cluster!r} cannot name a folder in the DFS store: use up to 128 letters, digits, . _ -"
        )
    return cluster


def marker(cluster: str) -> str:
    """The name of the file that says whose store this is."""
    return f"{cluster_folder(cluster)}/{MARKER}"


def id_file(cluster: str, ident: str) -> str:
    """The name of the file that says that this is the store with this id."""
    return f"{marker(cluster)}.{ident}"


def marker_text(cluster: str, ident: str) -> bytes:
    """What is in the marker of a store."""
    return f"The DFS tier of the Holdfast cluster {cluster}. Do not remove.\nStore {ident}\n".encode()


def parse_marker(data: bytes) -> str:
    """The id of the store that a marker is of; "" if it was made before stores had one."""
    found = _STORE.search(data)
    return found[1].decode() if found is not None else ""


def instance_folder(cluster: str, instance: Instance) -> str:
    """The folder with everything of one application instance."""
    return f"{cluster_folder(cluster)}/{instance.hex()}"


def shuffle_folder(cluster: str, key: ShuffleKey) -> str:
    """The folder with everything of one generation of a shuffle."""
    return f"{instance_folder(cluster, key.instance)}/{key.shuffle}-{key.generation}-{key.state:016x}"


def worker_folder(cluster: str, key: ShuffleKey, worker: bytes) -> str:
    """The folder with what one worker (by uid) stored of one generation of a shuffle."""
    assert len(worker) == UID_BYTES, f"a worker uid has {UID_BYTES} bytes, not {len(worker)}"
    return f"{shuffle_folder(cluster, key)}/{worker.hex()}"


def file_name(cluster: str, key: ShuffleKey, worker: bytes, file: str) -> str:
    """What `DfsStore.put` is given: the name of a file, to which it adds a token."""
    assert _FILE.fullmatch(file), f"{file!r} cannot name a file in a DFS store"
    return f"{worker_folder(cluster, key, worker)}/{file}"


def stored_name(folder: str, file: str, token: bytes) -> str:
    """The name under which a file of this worker folder is stored."""
    return f"{folder}/{file}.{token.hex()}"


def parse(name: str) -> ObjectName | None:
    """Take apart the name of a stored file; None for what is no whole file of ours."""
    parts = name.split("/")
    if len(parts) != 5 or not _CLUSTER.fullmatch(parts[0]) or not _UID.fullmatch(parts[3]):
        return None
    instance, stored = parse_instance(parts[1]), _STORED.fullmatch(parts[4])
    key = parse_shuffle(instance, parts[2]) if instance is not None else None
    if key is None or stored is None:
        return None
    return ObjectName(parts[0], key, bytes.fromhex(parts[3]), stored[1], stored[2])


def parse_instance(part: str) -> Instance | None:
    """The instance of a folder of a cluster; None if Holdfast does not use such names."""
    return Instance(bytes.fromhex(part)) if _INSTANCE.fullmatch(part) else None


def parse_shuffle(instance: Instance, part: str) -> ShuffleKey | None:
    """The generation of a shuffle of a folder of an instance; None if Holdfast does not use such names."""
    found = _SHUFFLE.fullmatch(part)
    if found is None or max(int(found[1]), int(found[2])) > U32_MAX:
        return None
    return ShuffleKey(instance, ShuffleId(int(found[1])), Generation(int(found[2])), StateId(int(found[3], 16)))
