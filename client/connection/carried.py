"""Tokens that travel with what is pickled: sealed, so that no closure, task or file has one that anybody could show.

Rules: sealed with a key that this process shares with those it makes (multiprocessing's own `authkey`), and that
Spark's file distribution brings to Python workers (`share` in spark/sharing.py; a classic session's is found here). So
tasks carry the one half, and what Spark keeps on the disks of executors is the other. Keystream and authentication are
HMAC-SHA256 under keys of their own, with a nonce for each. Called where tickets are pickled (shuffle.py).
"""

from __future__ import annotations

import atexit
import hmac
import os
import shutil
import sys
import tempfile
import threading
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from holdfast.common.errors import ConfigError
from holdfast.common.system.files import read_small, write_whole

_ID_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 16, 32
_HASH = "sha256"
_SEALED = (
    "the token of this shuffle is sealed: it can be used by the process that pickled it and by those that this one"
    " made. Before Spark Connect's tasks use a shuffle, call holdfast.client.spark.share(spark) in the driver; other"
    " processes take part with Session(endpoints, app=NAME, attach=True)"
)
_guard = threading.RLock()
#: where Spark was given the key, and which applications of Spark have which
_directory: Path | None = None
_shared: set[tuple[str, str]] = set()


def seal(token: str) -> bytes:
    """Return a token as it is pickled here."""
    secret = _own()
    nonce, text = os.urandom(_NONCE_BYTES), token.encode("ascii")
    hidden = _masked(secret, nonce, text)
    head = _id_of(secret) + nonce
    return head + hidden + _tag(secret, head + hidden)


def unseal(sealed: bytes) -> str:
    """Return what was sealed. Raises ConfigError where the key is not known, or the bytes are others."""
    asked, head, tag = sealed[:_ID_BYTES], _ID_BYTES + _NONCE_BYTES, len(sealed) - _TAG_BYTES
    own = _own()
    secret = own if _id_of(own) == asked else _of_spark(asked)
    if secret is None or tag < head or not hmac.compare_digest(_tag(secret, sealed[:tag]), sealed[tag:]):
        raise ConfigError(_SEALED)
    return _masked(secret, sealed[_ID_BYTES:head], sealed[head:tag]).decode("ascii")


def share_with_context(context: Any) -> None:
    """Have every Python worker of a classic session get the key, as a file of Spark's. Once for each."""
    with _guard:
        file = key_file()
        if (found := (str(context.applicationId), file.name)) not in _shared:
            context.addFile(str(file))
            _shared.add(found)


def share_with_active() -> None:
    """The same for the classic session of this process, if it has one."""
    active = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if active is not None:
        share_with_context(active)


def key_file() -> Path:
    """Return the path of a file with the key, which is there as long as this process."""
    global _directory  # noqa: PLW0603 - once per process
    secret = _own()
    with _guard:
        if _directory is None:
            _directory = Path(tempfile.mkdtemp(prefix="holdfast-"))
            atexit.register(_forget, os.getpid())
        path = _directory / _name(_id_of(secret))
        if not path.exists():
            write_whole(path, secret, 0o600)
        return path


def _forget(process: int) -> None:
    if _directory is not None and os.getpid() == process:  # a forked child leaves it to its parent
        shutil.rmtree(_directory, ignore_errors=True)


def _of_spark(asked: bytes) -> bytes | None:
    """The key that Spark brought to this Python worker."""
    files: Any = getattr(sys.modules.get("pyspark"), "SparkFiles", None)
    if files is None or not files._is_running_on_worker:
        return None
    try:
        secret = read_small(files.get(_name(asked)), "the key of a driver")
    except ConfigError:
        return None
    return secret if _id_of(secret) == asked else None


def _own() -> bytes:
    return _derived(bytes(current_process().authkey), b"holdfast: tokens that are pickled")


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, purpose, _HASH)


def _id_of(secret: bytes) -> bytes:
    return _derived(secret, b"id")[:_ID_BYTES]


def _name(key_id: bytes) -> str:
    return f"holdfast-{key_id.hex()}.key"


def _tag(secret: bytes, said: bytes) -> bytes:
    return hmac.digest(_derived(secret, b"tag"), said, _HASH)


def _masked(secret: bytes, nonce: bytes, text: bytes) -> bytes:
    stream, key = b"", _derived(secret, b"mask")
    while len(stream) < len(text):
        stream += hmac.digest(key, nonce + len(stream).to_bytes(4, "little"), _HASH)
    return bytes(one ^ other for one, other in zip(text, stream, strict=False))
