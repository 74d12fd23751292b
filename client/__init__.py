"""The client: a library that writes shuffles to workers and reads them back.

The names below are imported when they are first used, so that a Spark task, which needs few of them, starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.cluster.local import LocalCluster, local_cluster
    from holdfast.client.read.fetch_options import FetchOptions
    from holdfast.client.read.stream_reader import Record
    from holdfast.client.reduce_shuffle import ReduceShuffle
    from holdfast.client.session import Session
    from holdfast.client.shuffle import MapShuffle
    from holdfast.client.write.status import MapStatus, PushStatus
    from holdfast.common.errors import (
        AbortedError,
        ApplicationGoneError,
        ConfigError,
        ConflictError,
        CorruptError,
        DataError,
        DataLostError,
        GiveUpError,
        HoldfastError,
        NoRoomError,
        OutcomeUnknownError,
        ProtocolError,
        RetryError,
    )
    from holdfast.common.formats.batch import Codec
    from holdfast.common.formats.messages import Ack
    from holdfast.common.security.credentials import Credentials

__all__ = [
    "AbortedError",
    "Ack",
    "ApplicationGoneError",
    "Codec",
    "ConfigError",
    "ConflictError",
    "CorruptError",
    "Credentials",
    "DataError",
    "DataLostError",
    "FetchOptions",
    "GiveUpError",
    "HoldfastError",
    "LocalCluster",
    "MapShuffle",
    "MapStatus",
    "NoRoomError",
    "OutcomeUnknownError",
    "ProtocolError",
    "PushStatus",
    "QuotaExceededError",
    "Record",
    "ReduceShuffle",
    "RetryError",
    "Session",
    "local_cluster",
]

#: Where the others are than those that errors.py has.
_HOMES = {
    "Ack": "holdfast.common.formats.messages",
    "Codec": "holdfast.common.formats.batch",
    "Credentials": "holdfast.common.security.credentials",
    "FetchOptions": "holdfast.client.read.fetch_options",
    "LocalCluster": "holdfast.client.cluster.local",
    "MapShuffle": "holdfast.client.shuffle",
    "MapStatus": "holdfast.client.write.status",
    "PushStatus": "holdfast.client.write.status",
    "Record": "holdfast.client.read.stream_reader",
    "ReduceShuffle": "holdfast.client.reduce_shuffle",
    "Session": "holdfast.client.session",
    "local_cluster": "holdfast.client.cluster.local",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "holdfast.common.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
